/* What --dry-run shows, whole. */
#include "launcher/job/job_spec.h"
#include "launcher/reporting/dry_run.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static char *text;

static const char *show(const struct job_spec *spec, const char *const *parent)
{
    size_t size;
    free(text);
    FILE *out = open_memstream(&text, &size);
    ck_assert_int_eq(dry_run_print(spec, (char *const *)parent, out, NULL), 0);
    fclose(out);
    return text;
}

static const char *word(const char *w)
{
    size_t size;
    free(text);
    FILE *out = open_memstream(&text, &size);
    dry_run_print_word(w, out);
    fclose(out);
    return text;
}

START_TEST(words_are_quoted_for_a_shell)
{
    ck_assert_str_eq(word("--lr=1e-3,a/b:c@d%e+f_g"), "--lr=1e-3,a/b:c@d%e+f_g");
    ck_assert_str_eq(word(""), "''");
    ck_assert_str_eq(word("a b"), "'a b'");
    ck_assert_str_eq(word("it's"), "'it'\\''s'");
    ck_assert_str_eq(word("$HOME"), "'$HOME'");
    ck_assert_str_eq(word("~"), "'~'");
    ck_assert_str_eq(word("a\nb"), "'a\nb'");
}
END_TEST

START_TEST(each_rank_has_its_command_and_what_its_environment_adds)
{
    char *argv[] = {"python3", "-u", "train.py", "out/${local_rank} x", NULL};
    const struct job_spec spec = {
        .n_local = 1,
        .run_id = "a b",
        .role = "",
        .master_addr = "127.0.0.1",
        .path = "/usr/bin/python3",
        .argv = argv,
        .n_program_words = 3,
        .has_templates = true,
        .signals_to_handle = "SIGTERM",
    };
    const char *const parent[] = {"HOME=/root",   "PMI_RANK=4",    "ROLE_NAME=old",
                                  "WORLD_SIZE=1", "DDP_NODE_FD=9", NULL};
    ck_assert_str_eq(
        show(&spec, parent),
        "rank 0: /usr/bin/python3 -u train.py 'out/0 x'\n    RANK=0\n    LOCAL_RANK=0\n    "
        "LOCAL_WORLD_SIZE=1\n    GROUP_RANK=0\n    GROUP_WORLD_SIZE=1\n    ROLE_NAME=\n    "
        "ROLE_RANK=0\n    ROLE_WORLD_SIZE=1\n    MASTER_ADDR=127.0.0.1\n    MASTER_PORT=<free "
        "port>\n    TORCHELASTIC_RESTART_COUNT=0\n    TORCHELASTIC_MAX_RESTARTS=0\n    "
        "TORCHELASTIC_RUN_ID='a b'\n    TORCHELASTIC_USE_AGENT_STORE=False\n    "
        "TORCHELASTIC_ERROR_FILE=<a file in the job's directory>\n    "
        "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM\n    TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n    "
        "DDP_GENERATION=0\n    DDP_TERM=1\n    DDP_NODE_FD=3\n    DDP_PROGRESS_FD=6\n    PMI_RANK "
        "is removed\n");
}
END_TEST

START_TEST(several_ranks_have_the_requested_port)
{
    char *argv[] = {"./train", NULL};
    const struct job_spec spec = {
        .n_local = 3,
        .run_id = "a",
        .role = "r",
        .master_addr = "localhost",
        .master_port = 29500,
        .path = "./train",
        .argv = argv,
        .n_program_words = 1,
        .local_rank_arg = "--local_rank",
        .signals_to_handle = "",
    };
    const char *const parent[] = {NULL};
    const char *shown = show(&spec, parent);
    ck_assert_int_eq(strncmp(shown, "rank 0: ./train --local_rank=0\n", 31), 0);
    ck_assert_ptr_nonnull(strstr(shown, "\nrank 2: ./train --local_rank=2\n    RANK=2\n"));
    ck_assert_ptr_nonnull(strstr(shown, "    MASTER_PORT=29500\n"));
    ck_assert_ptr_nonnull(strstr(shown, "    TORCHELASTIC_USE_AGENT_STORE=True\n"));
}
END_TEST

/* What is shown of a variable. */
static void check_shown(const char *shown, const char *line)
{
    char whole[200];
    snprintf(whole, sizeof whole, "\n    %s\n", line);
    ck_assert_msg(strstr(shown, whole) != NULL, "no %s in:\n%s", line, shown);
}

#define ALL_NODES "<known when all nodes have joined>"

START_TEST(arguments_in_braces_are_shown_as_far_as_they_are_known)
{
    char *argv[] = {"./train", "{rank}", "{nnodes}", "{master_ip}", NULL};
    struct job_spec spec = {
        .n_local = 1,
        .run_id = "a",
        .role = "r",
        .master_addr = "node1",
        .path = "./train",
        .argv = argv,
        .n_program_words = 1,
        .has_templates = true,
        .fills_braces = true,
        .signals_to_handle = "",
        .world = {.has_others = true, .min_nodes = 2, .max_nodes = 2, .node_rank = 1},
    };
    const char *const parent[] = {NULL};
    const char *shown = show(&spec, parent);
    static const char expected[] = "local rank 0: ./train '<known when all nodes have joined>' 2 "
                                   "'<the address of MASTER_ADDR>'\n";
    ck_assert_int_eq(strncmp(shown, expected, sizeof expected - 1), 0);
    spec.master_addr = "10.0.0.1";
    ck_assert_ptr_nonnull(strstr(show(&spec, parent), "joined>' 2 10.0.0.1\n"));
}
END_TEST

START_TEST(for_several_nodes_the_known_values_are_shown)
{
    char *argv[] = {"./train", NULL};
    struct job_spec spec = {
        .n_local = 2,
        .run_id = "a",
        .role = "r",
        .path = "./train",
        .argv = argv,
        .n_program_words = 1,
        .signals_to_handle = "",
        .world = {.has_others = true, .min_nodes = 2, .max_nodes = 4, .node_rank = MESSAGE_NO_RANK},
    };
    const char *const parent[] = {NULL};
    const char *shown = show(&spec, parent);
    ck_assert_int_eq(strncmp(shown, "local rank 0: ./train\n", 22), 0);
    check_shown(shown, "RANK=" ALL_NODES);
    check_shown(shown, "LOCAL_RANK=1");
    check_shown(shown, "LOCAL_WORLD_SIZE=2");
    check_shown(shown, "WORLD_SIZE=" ALL_NODES);
    check_shown(shown, "GROUP_RANK=" ALL_NODES);
    check_shown(shown, "GROUP_WORLD_SIZE=" ALL_NODES);
    check_shown(shown, "MASTER_ADDR=<the node with rank 0>");
    check_shown(shown, "MASTER_PORT=<free port>");
    check_shown(shown, "TORCHELASTIC_USE_AGENT_STORE=True");

    spec.store_relay = RELAY_ON;
    shown = show(&spec, parent);
    check_shown(shown, "MASTER_ADDR=127.0.0.1");
    check_shown(shown, "MASTER_PORT=<free port>");
    check_shown(shown, "DDP_MASTER_HOST=<the node with rank 0>");
    spec.store_relay = RELAY_OFF;

    spec.world.max_nodes = 2;
    spec.world.node_rank = 1;
    spec.master_addr = "node1";
    spec.master_port = 29500;
    shown = show(&spec, parent);
    check_shown(shown, "RANK=" ALL_NODES);
    check_shown(shown, "GROUP_RANK=1");
    check_shown(shown, "GROUP_WORLD_SIZE=2");
    check_shown(shown, "MASTER_ADDR=node1");
    check_shown(shown, "MASTER_PORT=29500");

    spec.world.node_rank = 0;
    shown = show(&spec, parent);
    check_shown(shown, "RANK=1");
    check_shown(shown, "ROLE_RANK=1");
    check_shown(shown, "GROUP_RANK=0");
    check_shown(shown, "ROLE_WORLD_SIZE=" ALL_NODES);
}
END_TEST

TEST_SUITE(dry_run)
{
    Suite *suite = suite_create("dry_run");
    TCase *c = tcase_create("dry_run");
    tcase_add_test(c, words_are_quoted_for_a_shell);
    tcase_add_test(c, each_rank_has_its_command_and_what_its_environment_adds);
    tcase_add_test(c, several_ranks_have_the_requested_port);
    tcase_add_test(c, arguments_in_braces_are_shown_as_far_as_they_are_known);
    tcase_add_test(c, for_several_nodes_the_known_values_are_shown);
    suite_add_tcase(suite, c);
    return suite;
}
