/* Command lines to jobs. The world around them is a test double (tests/support/fake_world.h).
 * Wrong ones are data: tests/data/options/bad/CASE/ holds argv (a word a line, from argv[0] on),
 * perhaps env (a variable a line), and the error that they end with. */
#include "common/error.h"
#include "common/scope.h"
#include "launcher/cli.h"
#include "launcher/job_spec.h"
#include "tests/support/fake_world.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 64 };

static struct fake_world fake;
static struct cli_world world;
static struct job_spec spec;
static struct co_error err;
static enum cli_wish wish;

static void set_up(void)
{
    fake = fake_world_usual;
    world = fake_world_make(&fake);
}

static void tear_down(void)
{
    job_spec_fini(&spec);
}

static int parse(const char *const *words)
{
    int argc = 0;
    while (words[argc] != NULL)
        argc++;
    job_spec_fini(&spec);
    return cli_parse(argc, (char **)words, &world, &wish, &spec, &err);
}

#define PARSE(...) parse((const char *[]){__VA_ARGS__, NULL})

/* Parse what has to be right. */
#define JOB(...)                                                                                   \
    do {                                                                                           \
        err.text[0] = '\0';                                                                        \
        int job_rc = PARSE(__VA_ARGS__);                                                           \
        ck_assert_msg(job_rc == 0, "%s", err.text);                                                \
        ck_assert_int_eq(wish, CLI_RUN);                                                           \
    } while (0)

#define WITH_ENV(...)                                                                              \
    fake.env = (const char *[])                                                                    \
    {                                                                                              \
        "PATH=/usr/bin", __VA_ARGS__, NULL                                                         \
    }

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

START_TEST(without_a_number_there_is_a_rank_per_gpu_or_one)
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

START_TEST(words_mean_what_the_node_has)
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
    ck_assert_str_eq(err.text,
                     "-p cpu means 1025 ranks here, and 1024 are the most: give a number");
    fake.n_cpus = JOB_RANKS_MAX;
    JOB("ddprun", "-p", "cpu", "train.py");
    ck_assert_int_eq(spec.n_local, JOB_RANKS_MAX);
}
END_TEST

START_TEST(one_node_may_be_said_in_every_way)
{
    JOB("ddprun", "-N", "1", "train.py");
    JOB("ddprun", "--nnodes=1:1", "--standalone", "train.py");
    JOB("torchrun", "--standalone", "--nnodes", "1", "--nproc-per-node", "2", "train.py");
    WITH_ENV("PET_NNODES=2");
    JOB("ddprun", "--nnodes=1", "train.py");
}
END_TEST

START_TEST(defaults_are_those_of_the_header)
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

START_TEST(everything_from_the_program_on_is_the_programs)
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

START_TEST(torchrun_is_a_name_and_nothing_else)
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
    world = cli_real_world;
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
}
END_TEST

START_TEST(threads_are_the_ranks_share_of_the_cpus)
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

START_TEST(the_command_line_beats_the_environment)
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
    static const char *const helps[] = {"-h", "--help", "--he", "-vh"};
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

START_TEST(the_help_names_each_option_and_fits_a_terminal)
{
    static const char *const names[] = {"-n, --np N",
                                        "-p, --nproc-per-node N|auto|gpu|cpu",
                                        "-N, --nnodes",
                                        "--standalone",
                                        "-m, --module",
                                        "--no-python",
                                        "--omp N",
                                        "--rdzv-id ID",
                                        "--role NAME",
                                        "--master-addr ADDR",
                                        "--master-port PORT",
                                        "--store auto|agent|worker",
                                        "--shutdown-timeout TIME",
                                        "-v, --verbose",
                                        "-h, --help",
                                        "-V, --version",
                                        "PET_NNODES"};
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    cli_print_help(out);
    fclose(out);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_assert_msg(strstr(text, names[i]) != NULL, "%s is missing", names[i]);
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        ck_assert_msg(strcspn(line, "\n") <= 84, "%.100s", line); /* a variable may stick out */
    free(text);
}
END_TEST

START_TEST(the_manual_page_has_each_option_of_the_help)
{
    char path[1024];
    static char page[1 << 17];
    snprintf(path, sizeof path, "%s/../../man/ddprun.1", getenv("TEST_DATA"));
    co_autoclose FILE *in = fopen(path, "re");
    ck_assert_ptr_nonnull(in);
    page[fread(page, 1, sizeof page - 1, in)] = '\0';

    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    cli_print_help(out);
    fclose(out);
    int n = 0;
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        char option[64];
        if (sscanf(line, "%*6c--%60[a-z-]", option) != 1) /* long names begin in column 6 */
            continue;
        char named[80];
        snprintf(named, sizeof named, "Fl -%s", option);
        ck_assert_msg(strstr(page, named) != NULL, "%s is not in %s", option, path);
        n++;
    }
    free(text);
    ck_assert_int_ge(n, 15);
}
END_TEST

START_TEST(no_words_at_all_are_no_program)
{
    ck_assert_int_eq(cli_parse(0, (char *[]){NULL}, &world, &wish, &spec, &err), -EINVAL);
    ck_assert_str_eq(err.text, "no program to run is given: try --help");
    ck_assert_int_eq(cli_parse(0, (char *[]){NULL}, &world, &wish, &spec, NULL), -EINVAL);
}
END_TEST

START_TEST(long_names_are_refused)
{
    char name[CLI_NAME_MAX + 2];
    memset(name, 'x', sizeof name);
    name[CLI_NAME_MAX + 1] = '\0';
    ck_assert_int_eq(PARSE("ddprun", "--rdzv-id", name, "train.py"), -EINVAL);
    ck_assert_str_eq(err.text, "--rdzv-id is longer than 256 bytes");
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

START_TEST(wrong_command_lines_are_told_what_is_wrong)
{
    char dir[900];
    int n_cases = 0;
    snprintf(dir, sizeof dir, "%s/options/bad", getenv("TEST_DATA"));
    DIR *cases = opendir(dir);
    ck_assert_ptr_nonnull(cases);
    for (struct dirent *e; (e = readdir(cases)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        char path[1200];
        char said[CO_ERROR_TEXT_BYTES + 20];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        char **words = read_lines(path, "argv");
        char **env = read_lines(path, "env");
        char **expected = read_lines(path, "error");
        ck_assert_msg(words != NULL && expected != NULL, "%s: a file is missing", path);
        fake = fake_world_usual;
        if (env != NULL)
            fake.env = (const char *const *)env;
        int rc = parse((const char *const *)words);
        snprintf(said, sizeof said, "%s: %s", strerrorname_np(-rc), rc < 0 ? err.text : "");
        ck_assert_msg(rc < 0 && rc == err.code && strcmp(said, expected[0]) == 0,
                      "%s:\nexpected %s\nsaid     %s", e->d_name, expected[0], said);
        ck_assert_ptr_null(expected[1]);
        free_lines(words);
        free_lines(env);
        free_lines(expected);
        n_cases++;
    }
    closedir(cases);
    ck_assert_int_ge(n_cases, 30);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cli");
    TCase *c = tcase_create("cli");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, every_spelling_of_a_number_of_ranks_is_known);
    tcase_add_test(c, without_a_number_there_is_a_rank_per_gpu_or_one);
    tcase_add_test(c, words_mean_what_the_node_has);
    tcase_add_test(c, a_word_that_means_too_many_ranks_is_refused);
    tcase_add_test(c, one_node_may_be_said_in_every_way);
    tcase_add_test(c, defaults_are_those_of_the_header);
    tcase_add_test(c, everything_from_the_program_on_is_the_programs);
    tcase_add_test(c, the_rule_for_the_program_follows_the_options);
    tcase_add_test(c, torchrun_is_a_name_and_nothing_else);
    tcase_add_test(c, a_job_without_a_name_gets_a_random_uuid);
    tcase_add_test(c, without_random_bytes_only_named_jobs_run);
    tcase_add_test(c, values_reach_the_job);
    tcase_add_test(c, threads_are_the_ranks_share_of_the_cpus);
    tcase_add_test(c, the_environment_gives_defaults);
    tcase_add_test(c, the_command_line_beats_the_environment);
    tcase_add_test(c, help_and_version_are_wishes);
    tcase_add_test(c, the_help_names_each_option_and_fits_a_terminal);
    tcase_add_test(c, the_manual_page_has_each_option_of_the_help);
    tcase_add_test(c, no_words_at_all_are_no_program);
    tcase_add_test(c, long_names_are_refused);
    tcase_add_test(c, wrong_command_lines_are_told_what_is_wrong);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
