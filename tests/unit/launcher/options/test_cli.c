/* Command lines to jobs: what is run, by how many ranks, from which of the words and variables.
 * Wrong ones are data: tests/data/options/bad/CASE/ holds argv (a word a line, from argv[0] on),
 * perhaps env (a variable a line), and the error that they end with. */
#include "one_command_line.h"

#include "common/scope.h"
#include "tests/support/cases.h"
#include "tests/support/suite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 64 };

START_TEST(every_spelling_of_a_number_of_ranks_is_known)
{
    static const char *const spellings[][4] = {
        {"-n", "4"},
        {"-n4"},
        {"-n=4"},
        {"--np", "4"},
        {"--np=4"},
        {"-p", "4"},
        {"-p4"},
        {"--nproc-per-node", "4"},
        {"--nproc_per_node=4"},
        {"--nproc-per-node=4"},
        {"--nproc_per-node", "4"},
        {"--nproc", "4"},
        {"--nproc-per=4"},
        {"-p", "2", "-p4"},
        {"-n", "4", "-p4"},
    };
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        const char *words[8] = {"ddprun"};
        int n = 1;
        for (int j = 0; j < 4 && spellings[i][j] != NULL; j++)
            words[n++] = spellings[i][j];
        words[n] = "train.py";
        ck_assert_msg(parse(words) == 0, "%s: %s", words[1], err.text);
        ck_assert_int_eq(spec.n_local, 4);
        ck_assert_str_eq(spec.shown, "train.py");
    }
}
END_TEST

START_TEST(without_a_number_each_gpu_has_a_rank_or_one_rank_starts)
{
    JOB("ddprun", "train.py");
    ck_assert_int_eq(spec.n_local, 1);
    fake.n_gpus = 6;
    JOB("ddprun", "train.py");
    ck_assert_int_eq(spec.n_local, 6);
    JOB("torchrun", "train.py");
    ck_assert_int_eq(spec.n_local, 1);
    fake.n_gpus = 5000;
    JOB("ddprun", "train.py");
    ck_assert_int_eq(spec.n_local, JOB_RANKS_MAX);
}
END_TEST

START_TEST(words_mean_the_devices_of_the_node)
{
    JOB("ddprun", "-p", "auto", "train.py");
    ck_assert_int_eq(spec.n_local, 8);
    JOB("ddprun", "-p", "cpu", "train.py");
    ck_assert_int_eq(spec.n_local, 8);
    fake.n_gpus = 3;
    JOB("ddprun", "-p", "auto", "train.py");
    ck_assert_int_eq(spec.n_local, 3);
    JOB("ddprun", "-p", "gpu", "train.py");
    ck_assert_int_eq(spec.n_local, 3);
    JOB("ddprun", "-p", "cpu", "train.py");
    ck_assert_int_eq(spec.n_local, 8);
    JOB("torchrun", "--nproc_per_node=gpu", "train.py");
    ck_assert_int_eq(spec.n_local, 3);
}
END_TEST

START_TEST(a_word_that_means_too_many_ranks_is_refused)
{
    fake.n_cpus = JOB_RANKS_MAX + 1;
    ck_assert_int_eq(PARSE("ddprun", "-p", "cpu", "train.py"), -EINVAL);
    ck_assert_str_eq(
        err.text,
        "-p cpu means 1025 ranks on this node, but at most 1024 are allowed; give a number");
    fake.n_cpus = JOB_RANKS_MAX;
    JOB("ddprun", "-p", "cpu", "train.py");
    ck_assert_int_eq(spec.n_local, JOB_RANKS_MAX);
}
END_TEST

START_TEST(one_node_may_be_specified_in_every_way)
{
    JOB("ddprun", "-N", "1", "train.py");
    JOB("ddprun", "--nnodes=1:1", "--standalone", "train.py");
    JOB("torchrun", "--standalone", "--nnodes", "1", "--nproc-per-node", "2", "train.py");
    WITH_ENV("PET_NNODES=2");
    JOB("ddprun", "--nnodes=1", "train.py");
}
END_TEST

START_TEST(defaults_equal_those_of_the_header)
{
    JOB("/usr/bin/ddprun", "train.py", "-n", "3", "--", "--lr=1");
    ck_assert(!spec.as_torchrun);
    ck_assert_str_eq(spec.role, "default");
    ck_assert_str_eq(spec.master_addr, "127.0.0.1");
    ck_assert_uint_eq(spec.master_port, 0);
    ck_assert_int_eq(spec.store, STORE_AUTO);
    ck_assert_uint_eq(spec.grace_ms, 30000);
    ck_assert_uint_eq(spec.failure_grace_ms, 5000);
    ck_assert_int_eq(spec.verbose, 0);
    ck_assert(!spec.omp_asked);
}
END_TEST

START_TEST(the_program_gets_all_arguments_after_it)
{
    JOB("ddprun", "--np", "2", "train.py", "-n", "3", "--", "--help", "", "${local_rank}");
    ck_assert_int_eq(spec.n_local, 2);
    static const char *const expected[] = {
        "/usr/bin/python3", "-u", "train.py", "-n", "3", "--", "--help", "", "${local_rank}"};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        ck_assert_str_eq(spec.argv[i], expected[i]);
    ck_assert_ptr_null(spec.argv[sizeof expected / sizeof *expected]);
    JOB("ddprun", "--", "train.py", "-x");
    ck_assert_str_eq(spec.argv[3], "-x");
}
END_TEST

START_TEST(the_rule_for_the_program_follows_the_options)
{
    JOB("ddprun", "./program", "a");
    ck_assert_str_eq(spec.path, "./program");
    JOB("torchrun", "./program", "a");
    ck_assert_str_eq(spec.path, "/usr/bin/python3");
    ck_assert_str_eq(spec.argv[2], "./program");
    JOB("/opt/bin/torchrun", "--no_python", "./program");
    ck_assert_str_eq(spec.path, "./program");
    JOB("ddprun", "--no-python", "./tool.py");
    ck_assert_str_eq(spec.path, "./tool.py");
    JOB("ddprun", "-m", "package.train", "a");
    ck_assert_str_eq(spec.argv[2], "-m");
    ck_assert_str_eq(spec.argv[3], "package.train");
    ck_assert_str_eq(spec.shown, "package.train");
    JOB("torchrun", "--module", "package.train");
    ck_assert_str_eq(spec.argv[2], "-m");
}
END_TEST

START_TEST(only_the_name_torchrun_selects_torchrun)
{
    JOB("torchrun", "train.py");
    ck_assert(spec.as_torchrun);
    JOB("/a/b/torchrun", "train.py");
    ck_assert(spec.as_torchrun);
    JOB("/torchrun/ddprun", "train.py");
    ck_assert(!spec.as_torchrun);
    JOB("torchrun2", "train.py");
    ck_assert(!spec.as_torchrun);
}
END_TEST

START_TEST(a_job_without_a_name_gets_a_random_uuid)
{
    JOB("ddprun", "train.py");
    ck_assert_str_eq(spec.run_id, "abababab-abab-4bab-abab-abababababab");
    world = host_env_real;
    JOB("ddprun", "/bin/sh");
    char *first = strdup(spec.run_id);
    JOB("ddprun", "/bin/sh");
    ck_assert_uint_eq(strlen(first), 36);
    ck_assert_str_ne(first, spec.run_id);
    free(first);
}
END_TEST

START_TEST(without_random_bytes_only_named_jobs_run)
{
    fake.random_error = -ENOSYS;
    ck_assert_int_eq(PARSE("ddprun", "train.py"), -EIO);
    ck_assert_str_eq(err.text, "cannot get random bytes for a run id: Function not implemented");
    JOB("ddprun", "--rdzv-id", "job7", "train.py");
    ck_assert_str_eq(spec.run_id, "job7");
}
END_TEST

START_TEST(values_reach_the_job)
{
    JOB("ddprun", "--rdzv_id=a b", "--role", "trainer", "--master-port", "29500", "--master-addr",
        "localhost", "--store", "worker", "--shutdown-timeout", "1.5s", "--omp", "3", "-v",
        "train.py");
    ck_assert_str_eq(spec.run_id, "a b");
    ck_assert_str_eq(spec.role, "trainer");
    ck_assert_str_eq(spec.master_addr, "localhost");
    ck_assert_uint_eq(spec.master_port, 29500);
    ck_assert_int_eq(spec.store, STORE_WORKER);
    ck_assert_uint_eq(spec.grace_ms, 1500);
    ck_assert_uint_eq(spec.failure_grace_ms, 1500);
    ck_assert_int_eq(spec.omp_threads, 3);
    ck_assert(spec.omp_asked);
    ck_assert_int_eq(spec.verbose, 1);
    JOB("ddprun", "--store=agent", "--role=", "-vvv", "--shutdown-timeout=0", "train.py");
    ck_assert_int_eq(spec.store, STORE_AGENT);
    ck_assert_str_eq(spec.role, "");
    ck_assert_int_eq(spec.verbose, 2);
    ck_assert_uint_eq(spec.grace_ms, 0);
    ck_assert_uint_eq(spec.failure_grace_ms, 0);
    JOB("ddprun", "--store=agent", "--store=auto", "train.py");
    ck_assert_int_eq(spec.store, STORE_AUTO);
    WITH_ENV("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=0");
    JOB("torchrun", "train.py");
    ck_assert_int_eq(spec.store, STORE_AUTO);
    WITH_ENV("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1");
    JOB("torchrun", "train.py");
    ck_assert_int_eq(spec.store, STORE_WORKER);
    JOB("ddprun", "--store=agent", "train.py");
    ck_assert_int_eq(spec.store, STORE_AGENT);
}
END_TEST

START_TEST(each_rank_gets_its_share_of_threads)
{
    JOB("ddprun", "-n", "3", "train.py");
    ck_assert_int_eq(spec.omp_threads, 2);
    JOB("ddprun", "train.py");
    ck_assert_int_eq(spec.omp_threads, 8);
    JOB("ddprun", "-n", "100", "train.py");
    ck_assert_int_eq(spec.omp_threads, 1);
    JOB("torchrun", "-n", "3", "train.py");
    ck_assert_int_eq(spec.omp_threads, 1);
    JOB("torchrun", "train.py");
    ck_assert_int_eq(spec.omp_threads, 0);
    JOB("ddprun", "--omp=0", "train.py");
    ck_assert_int_eq(spec.omp_threads, 0);
    ck_assert(!spec.omp_asked);
}
END_TEST

START_TEST(the_environment_gives_defaults)
{
    WITH_ENV("PET_NPROC_PER_NODE=4", "PET_NNODES=1:1", "PET_RDZV_ID=job7", "PET_ROLE=r",
             "PET_MASTER_PORT=1234", "PET_MASTER_ADDR=localhost", "PET_STANDALONE=0",
             "PET_SHUTDOWN_TIMEOUT=7", "PET_MODULE=1");
    JOB("torchrun", "package");
    ck_assert_int_eq(spec.n_local, 4);
    ck_assert_str_eq(spec.run_id, "job7");
    ck_assert_str_eq(spec.role, "r");
    ck_assert_str_eq(spec.master_addr, "localhost");
    ck_assert_uint_eq(spec.master_port, 1234);
    ck_assert_uint_eq(spec.grace_ms, 7000);
    ck_assert_str_eq(spec.argv[2], "-m");
}
END_TEST

START_TEST(the_command_line_overrides_the_environment)
{
    WITH_ENV("PET_NPROC_PER_NODE=nonsense", "PET_RDZV_ID=", "PET_MASTER_PORT=-1", "PET_MODULE=0",
             "PET_NO_PYTHON=1");
    JOB("ddprun", "-p2", "--rdzv-id=job8", "--master-port=0", "./program");
    ck_assert_int_eq(spec.n_local, 2);
    ck_assert_str_eq(spec.run_id, "job8");
    JOB("ddprun", "-n3", "--rdzv-id=job8", "--master-port=0", "./program");
    ck_assert_int_eq(spec.n_local, 3);
}
END_TEST

START_TEST(help_and_version_are_wishes)
{
    static const char *const helps[] = {"-h", "--help", "--he", "-vh", "-hv"};
    for (size_t i = 0; i < sizeof helps / sizeof *helps; i++) {
        ck_assert_int_eq(PARSE("ddprun", helps[i], "--nonsense"), 0);
        ck_assert_int_eq(wish, CLI_HELP);
    }
    ck_assert_int_eq(PARSE("ddprun", "-V"), 0);
    ck_assert_int_eq(wish, CLI_VERSION);
    ck_assert_int_eq(PARSE("ddprun", "-n", "0", "--version"), 0);
    ck_assert_int_eq(wish, CLI_VERSION);
    JOB("ddprun", "train.py", "--help");
}
END_TEST

START_TEST(completions_are_wishes)
{
    static char text[1 << 16];
    static const char *const shells[] = {"bash", "zsh", "fish", "tcsh"};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        const char *words[] = {"/bin/torchrun", "--print-completion", shells[i], "--nonsense"};
        ck_assert_int_eq(PARSE(words[0], words[1], words[2], words[3]), 0);
        ck_assert_int_eq(wish, CLI_COMPLETION);
        FILE *out = fmemopen(text, sizeof text, "w");
        ck_assert_ptr_nonnull(out);
        cli_print_completion(4, (char **)words, out);
        fclose(out);
        ck_assert_ptr_nonnull(strstr(text, "completion of torchrun, made of"));
    }
    ck_assert_int_eq(PARSE("ddprun", "--print-completion=ksh"), -EINVAL);
    ck_assert_int_eq(PARSE("ddprun", "--print-completion"), -EINVAL);
}
END_TEST

START_TEST(options_without_effect_on_one_node_are_accepted)
{
    JOB("torchrun", "--nnodes=1", "--node_rank=0", "--rdzv_backend", "c10d", "--rdzv-conf",
        "join_timeout=5,store_type=tcp", "--local_addr", "node7", "--monitor_interval=0.5",
        "--start-method", "fork", "train.py");
}
END_TEST

START_TEST(the_endpoint_is_this_node)
{
    JOB("torchrun", "--rdzv-endpoint", "node7:29400", "--master-port", "1", "train.py");
    ck_assert_str_eq(spec.master_addr, "127.0.0.1");
    ck_assert_uint_eq(spec.master_port, 29400);
    ck_assert_str_eq(spec.backend, "static");
    JOB("torchrun", "--rdzv-endpoint=[::1]:29401", "train.py");
    ck_assert_uint_eq(spec.master_port, 29401);
    JOB("torchrun", "--rdzv-endpoint=localhost", "train.py");
    ck_assert_str_eq(spec.master_addr, "localhost");
    ck_assert_uint_eq(spec.master_port, 0);
    JOB("torchrun", "--rdzv-endpoint", "node7:29400", "--rdzv-backend=c10d", "train.py");
    ck_assert_uint_eq(spec.master_port, 0); /* the port of the rendezvous, not of the store */
    ck_assert_str_eq(spec.backend, "c10d");
    JOB("torchrun", "--rdzv-endpoint", "node7:29400", "--standalone", "train.py");
    ck_assert_uint_eq(spec.master_port, 0);
    ck_assert_str_eq(spec.backend, "c10d");
    JOB("torchrun", "--master-addr", "node7", "--master-port", "29500", "train.py");
    ck_assert_str_eq(spec.master_addr, "127.0.0.1");
    ck_assert_uint_eq(spec.master_port, 29500);
}
END_TEST

START_TEST(a_nameless_job_of_torchruns_is_called_none)
{
    JOB("torchrun", "train.py");
    ck_assert_str_eq(spec.run_id, "none");
    JOB("torchrun", "--standalone", "train.py");
    ck_assert_uint_eq(strlen(spec.run_id), 36);
    JOB("torchrun", "--standalone", "--rdzv-id=a", "train.py");
    ck_assert_str_eq(spec.run_id, "a");
}
END_TEST

START_TEST(the_local_rank_can_be_an_argument)
{
    JOB("ddprun", "--use-env", "train.py");
    ck_assert_ptr_null(spec.local_rank_arg);
    JOB("ddprun", "--local-rank-arg=--local_rank", "train.py", "a");
    ck_assert_str_eq(spec.local_rank_arg, "--local_rank");
    ck_assert_int_eq(spec.n_program_words, 3);
    JOB("ddprun", "--local-rank-arg=--local-rank", "-m", "package", "a");
    ck_assert_int_eq(spec.n_program_words, 4);
}
END_TEST

START_TEST(a_double_dash_right_after_a_script_is_removed)
{
    JOB("torchrun", "train.py", "--", "a", "--");
    ck_assert_str_eq(spec.argv[2], "train.py");
    ck_assert_str_eq(spec.argv[3], "a");
    ck_assert_str_eq(spec.argv[4], "--");
    ck_assert_ptr_null(spec.argv[5]);
    JOB("torchrun", "train.py", "a", "--", "b");
    ck_assert_str_eq(spec.argv[4], "--");
    JOB("ddprun", "train.py", "--", "a");
    ck_assert_str_eq(spec.argv[3], "a");
    JOB("ddprun", "true", "--", "a"); /* of what is executed it is the program's */
    ck_assert_str_eq(spec.argv[1], "--");
}
END_TEST

START_TEST(virtual_local_ranks_are_accepted_with_enough_devices)
{
    JOB("ddprun", "-n4", "--virtual-local-rank", "train.py");
    ck_assert(spec.virtual_local_rank);
    WITH_ENV("CUDA_VISIBLE_DEVICES=3,4,5,6", "PET_VIRTUAL_LOCAL_RANK=1");
    JOB("ddprun", "-n4", "train.py");
    ck_assert(spec.virtual_local_rank);
}
END_TEST

START_TEST(an_empty_command_line_has_no_program)
{
    ck_assert_int_eq(cli_parse(0, (char *[]){NULL}, &world, &wish, &spec, &err), -EINVAL);
    ck_assert_str_eq(err.text, "no program given; try --help");
    ck_assert_int_eq(cli_parse(0, (char *[]){NULL}, &world, &wish, &spec, NULL), -EINVAL);
}
END_TEST

START_TEST(long_names_are_refused)
{
    char name[CLI_NAME_MAX + 2];
    memset(name, 'x', sizeof name);
    name[CLI_NAME_MAX + 1] = '\0';
    ck_assert_int_eq(PARSE("ddprun", "--rdzv-id", name, "train.py"), -EINVAL);
    ck_assert_str_eq(err.text, "--rdzv-id is too long: expected at most 256 bytes");
    name[CLI_NAME_MAX] = '\0';
    JOB("ddprun", "--rdzv-id", name, "--role", name, "train.py");
    ck_assert_str_eq(spec.role, name);
}
END_TEST

/* --- wrong command lines, as data --- */

/* A file's lines, without their ends; NULL if there is no such file. */
static char **read_lines(const char *dir, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    co_autoclose FILE *in = fopen(path, "re");
    if (in == NULL)
        return NULL;
    char **lines = calloc(WORDS_MAX + 1, sizeof *lines);
    co_autofree char *line = NULL;
    size_t cap = 0;
    for (int n = 0; getline(&line, &cap, in) >= 0; n++) {
        ck_assert_int_lt(n, WORDS_MAX);
        line[strcspn(line, "\n")] = '\0';
        lines[n] = strdup(line);
    }
    return lines;
}

static void free_lines(char **lines)
{
    for (int n = 0; lines != NULL && lines[n] != NULL; n++)
        free(lines[n]);
    free(lines);
}

static void check_wrong(const char *path)
{
    char said[CO_ERROR_TEXT_BYTES + 20];
    char **words = read_lines(path, "argv");
    char **env = read_lines(path, "env");
    char **expected = read_lines(path, "error");
    ck_assert_msg(words != NULL && expected != NULL, "%s: a file is missing", path);
    fake = fake_host_env_usual;
    if (env != NULL)
        fake.env = (const char *const *)env;
    int rc = parse((const char *const *)words);
    snprintf(said, sizeof said, "%s: %s", strerrorname_np(-rc), rc < 0 ? err.text : "");
    ck_assert_msg(rc < 0 && rc == err.code && strcmp(said, expected[0]) == 0,
                  "%s:\nexpected %s\nsaid     %s", path, expected[0], said);
    ck_assert_ptr_null(expected[1]);
    free_lines(words);
    free_lines(env);
    free_lines(expected);
}

START_TEST(invalid_command_lines_are_refused_with_the_reason)
{
    ck_assert_int_ge(cases_each("options/bad", check_wrong), 30);
}
END_TEST

TEST_SUITE(cli)
{
    Suite *suite = suite_create("cli");
    TCase *t = tcase_create("cli");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, every_spelling_of_a_number_of_ranks_is_known);
    tcase_add_test(t, without_a_number_each_gpu_has_a_rank_or_one_rank_starts);
    tcase_add_test(t, words_mean_the_devices_of_the_node);
    tcase_add_test(t, a_word_that_means_too_many_ranks_is_refused);
    tcase_add_test(t, one_node_may_be_specified_in_every_way);
    tcase_add_test(t, defaults_equal_those_of_the_header);
    tcase_add_test(t, the_program_gets_all_arguments_after_it);
    tcase_add_test(t, the_rule_for_the_program_follows_the_options);
    tcase_add_test(t, only_the_name_torchrun_selects_torchrun);
    tcase_add_test(t, a_job_without_a_name_gets_a_random_uuid);
    tcase_add_test(t, without_random_bytes_only_named_jobs_run);
    tcase_add_test(t, values_reach_the_job);
    tcase_add_test(t, each_rank_gets_its_share_of_threads);
    tcase_add_test(t, the_environment_gives_defaults);
    tcase_add_test(t, the_command_line_overrides_the_environment);
    tcase_add_test(t, help_and_version_are_wishes);
    tcase_add_test(t, completions_are_wishes);
    tcase_add_test(t, options_without_effect_on_one_node_are_accepted);
    tcase_add_test(t, the_endpoint_is_this_node);
    tcase_add_test(t, a_nameless_job_of_torchruns_is_called_none);
    tcase_add_test(t, the_local_rank_can_be_an_argument);
    tcase_add_test(t, a_double_dash_right_after_a_script_is_removed);
    tcase_add_test(t, virtual_local_ranks_are_accepted_with_enough_devices);
    tcase_add_test(t, an_empty_command_line_has_no_program);
    tcase_add_test(t, long_names_are_refused);
    tcase_add_test(t, invalid_command_lines_are_refused_with_the_reason);
    suite_add_tcase(suite, t);
    suite_add_tcase(suite, cli_table_cases());
    suite_add_tcase(suite, cli_help_cases());
    suite_add_tcase(suite, cli_end_cases());
    suite_add_tcase(suite, cli_output_cases());
    return suite;
}
