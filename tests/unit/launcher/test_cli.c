/* Command lines to jobs. The world around them is a test double (tests/support/fake_world.h).
 * Wrong ones are data: tests/data/options/bad/CASE/ holds argv (a word a line, from argv[0] on),
 * perhaps env (a variable a line), and the error that they end with. */
#include "common/error.h"
#include "common/scope.h"
#include "launcher/cli.h"
#include "launcher/cli_table.h"
#include "launcher/job_spec.h"
#include "tests/support/cases.h"
#include "tests/support/cli_words.h"
#include "tests/support/fake_world.h"

#include <check.h>
#include <ctype.h>
#include <errno.h>
#include <signal.h>
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
    return cli_words_parse(words, &world, &wish, &spec, &err);
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
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    cli_print_help(out);
    fclose(out);
    for (const struct co_option *o = cli_table; o->id != 0; o++) {
        char name[80];
        int n = snprintf(name, sizeof name, o->letter != 0 ? "  -%c, " : "      ", o->letter);
        snprintf(name + n, sizeof name - (size_t)n, "--%s", o->name);
        ck_assert_msg(strstr(text, name) != NULL, "%s is missing", name);
        ck_assert(o->env == NULL || strstr(text, o->env) != NULL);
    }
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        ck_assert_msg(strcspn(line, "\n") <= 84, "%.100s", line); /* a variable may stick out */
    free(text);
}
END_TEST

/* A file of the source tree, whole. */
static const char *read_source(const char *name)
{
    char path[1024];
    static char text[1 << 17];
    snprintf(path, sizeof path, "%s/../../%s", getenv("TEST_DATA"), name);
    co_autoclose FILE *in = fopen(path, "re");
    ck_assert_msg(in != NULL, "%s", path);
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    return text;
}

START_TEST(the_manual_page_has_each_option)
{
    const char *page = read_source("man/ddprun.1");
    for (const struct co_option *o = cli_table; o->id != 0; o++) {
        char named[80], variable[80];
        snprintf(named, sizeof named, ".It Fl -%s", o->name);
        if (o->letter != 0)
            snprintf(named, sizeof named, ".It Fl %c , Fl -%s", o->letter, o->name);
        ck_assert_msg(strstr(page, named) != NULL, "%s is not in ddprun(1)", named);
        snprintf(variable, sizeof variable, ".It Ev %s\n", o->env);
        ck_assert_msg(o->env == NULL || strstr(page, variable) != NULL, "%s is not in ddprun(1)",
                      variable);
    }
}
END_TEST

/* What torchrun knows, by its long names. */
static const char *const torchruns[] = {
    "nnodes",
    "nproc-per-node",
    "rdzv-backend",
    "rdzv-endpoint",
    "rdzv-id",
    "rdzv-conf",
    "standalone",
    "max-restarts",
    "monitor-interval",
    "start-method",
    "event-log-handler",
    "role",
    "module",
    "no-python",
    "run-path",
    "log-dir",
    "redirects",
    "tee",
    "local-ranks-filter",
    "duplicate-stdout-filters",
    "duplicate-stderr-filters",
    "node-rank",
    "master-addr",
    "master-port",
    "local-addr",
    "logs-specs",
    "numa-binding",
    "signals-to-handle",
    "virtual-local-rank",
    "shutdown-timeout",
    "help",
};
enum { N_TORCHRUNS = sizeof torchruns / sizeof *torchruns };

/* The id that the table has for one spelling; 0: none. */
static int id_of(const char *spelling)
{
    char word[80];
    struct co_option_walk walk;
    struct co_option_found found;
    snprintf(word, sizeof word, "--%s", spelling);
    char *argv[] = {(char *)"ddprun", word, (char *)"1", NULL};
    co_options_start(&walk, cli_table, 3, argv);
    return co_options_next(&walk, &found, NULL) > 0 ? found.option->id : 0;
}

START_TEST(every_spelling_of_torchrun_means_here_what_it_means_there)
{
    for (int i = 0; i < N_TORCHRUNS; i++) {
        const char *name = torchruns[i];
        int id = id_of(name);
        ck_assert_msg(id > 0, "%s is unknown", name);
        for (size_t len = 1; len <= strlen(name); len++) {
            int n_meant = 0;
            for (int j = 0; j < N_TORCHRUNS; j++)
                n_meant += strncmp(torchruns[j], name, len) == 0;
            if (n_meant > 1 || strncmp(name, "np", len) == 0) /* --np is ours, and means the same */
                continue;
            char spelling[80];
            snprintf(spelling, sizeof spelling, "%.*s", (int)len, name);
            ck_assert_msg(id_of(spelling) == id, "--%s is not --%s", spelling, name);
            for (char *c = spelling; *c != '\0'; c++)
                *c = *c == '-' ? '_' : *c;
            ck_assert_msg(id_of(spelling) == id, "--%s is not --%s", spelling, name);
        }
    }
}
END_TEST

START_TEST(every_option_is_in_the_help_and_has_its_variable)
{
    for (const struct co_option *o = cli_table; o->id != 0; o++) {
        char variable[80] = "PET_";
        ck_assert_ptr_nonnull(o->help);
        if (o->env == NULL)
            continue;
        for (size_t i = 0; i <= strlen(o->name); i++)
            variable[4 + i] = (char)(o->name[i] == '-' ? '_' : toupper(o->name[i]));
        ck_assert_str_eq(o->env, variable);
        ck_assert(!o->weak);
    }
}
END_TEST

START_TEST(what_does_nothing_on_one_node_is_accepted)
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
    ck_assert_uint_eq(spec.master_port, 0); /* the port of the meeting, not of the store */
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

START_TEST(python_ranks_may_be_forked)
{
    JOB("ddprun", "train.py");
    ck_assert_int_eq(spec.warm, WARM_NEVER);
    ck_assert(spec.is_python);
    JOB("ddprun", "--warm", "train.py");
    ck_assert_int_eq(spec.warm, WARM_RESTARTS);
    ck_assert_str_eq(spec.shown, "train.py");
    JOB("ddprun", "--warm=start", "-m", "train");
    ck_assert_int_eq(spec.warm, WARM_START);
    ck_assert(spec.is_python);
    JOB("ddprun", "--warm=restarts", "./program");
    ck_assert_int_eq(spec.warm, WARM_RESTARTS);
    ck_assert(!spec.is_python);
}
END_TEST

START_TEST(progress_makes_restarts_free_if_asked_for)
{
    JOB("ddprun", "train.py");
    ck_assert(!spec.restart_after_progress);
    JOB("ddprun", "--restart-after-progress", "train.py");
    ck_assert(spec.restart_after_progress);
    ck_assert_uint_eq(spec.output_after_ms, 60000);
    ck_assert_str_eq(spec.shown, "train.py"); /* a value only follows behind '=' */
    JOB("ddprun", "--restart-after-progress=250ms", "train.py");
    ck_assert_uint_eq(spec.output_after_ms, 250);
    JOB("ddprun", "--restart_after_progress=0", "train.py");
    ck_assert(spec.restart_after_progress);
    ck_assert_uint_eq(spec.output_after_ms, 0);
}
END_TEST

START_TEST(restarts_have_a_number_a_window_and_exceptions)
{
    JOB("ddprun", "train.py");
    ck_assert_int_eq(spec.max_restarts, 0);
    JOB("ddprun", "--max-restarts", "3", "train.py");
    ck_assert_int_eq(spec.max_restarts, 3);
    ck_assert_uint_eq(spec.restart_window_ms, 0);
    JOB("ddprun", "--max-restarts=5/10m", "--no-restart-on", "1,130-132,255", "train.py");
    ck_assert_int_eq(spec.max_restarts, 5);
    ck_assert_uint_eq(spec.restart_window_ms, 600000);
    for (int code = 0; code < 256; code++)
        ck_assert_int_eq(spec.no_restart_on[code],
                         code == 1 || (code >= 130 && code <= 132) || code == 255);
}
END_TEST

START_TEST(a_failed_rank_is_replaced_unless_something_else_is_asked_for)
{
    JOB("ddprun", "train.py");
    ck_assert(!job_spec_mends(&spec)); /* there is no restart at all */
    JOB("ddprun", "--max-restarts", "3", "train.py");
    ck_assert_int_eq(spec.on_failure, FAILURE_REPLACES);
    ck_assert_uint_eq(spec.recovery_ms, 60000);
    ck_assert(job_spec_mends(&spec));
    JOB("ddprun", "--restart-after-progress", "--recovery-timeout=1.5s", "train.py");
    ck_assert_uint_eq(spec.recovery_ms, 1500);
    ck_assert(job_spec_mends(&spec));
    JOB("ddprun", "--max-restarts", "3", "--on-failure", "restart", "train.py");
    ck_assert_int_eq(spec.on_failure, FAILURE_RESTARTS);
    ck_assert_int_eq(spec.max_restarts, 3);
    ck_assert(!job_spec_mends(&spec));
    JOB("ddprun", "--max-restarts", "3", "--on-failure", "shrink", "train.py");
    ck_assert_int_eq(spec.on_failure, FAILURE_SHRINKS);
    ck_assert(job_spec_mends(&spec));
    JOB("torchrun", "--max-restarts", "3", "train.py");
    ck_assert_int_eq(spec.on_failure, FAILURE_RESTARTS);
    JOB("ddprun", "--nnodes=2", "--max-restarts=1", "--rdzv-id=a", "--rdzv-endpoint=h:1",
        "train.py");
    ck_assert(job_spec_mends(&spec));
    JOB("ddprun", "--nnodes=1:2", "--rdzv-id=a", "--rdzv-endpoint=h:1", "train.py");
    ck_assert(job_spec_mends(&spec)); /* nodes may come and go */
    JOB("ddprun", "--nnodes=2", "--rdzv-id=a", "--rdzv-endpoint=h:1", "train.py");
    ck_assert(!job_spec_mends(&spec));
    JOB("ddprun", "--max-restarts=3", "--restart-after-progress", "--on-failure=abort", "train.py");
    ck_assert_int_eq(spec.on_failure, FAILURE_ABORTS);
    ck_assert_int_eq(spec.max_restarts, 0);
    ck_assert(!spec.restart_after_progress);
}
END_TEST

#define BIT(sig) (UINT64_C(1) << (sig))
#define USUAL    (BIT(SIGTERM) | BIT(SIGINT) | BIT(SIGHUP) | BIT(SIGQUIT))

START_TEST(signals_that_end_the_job_can_be_added)
{
    JOB("ddprun", "train.py");
    ck_assert_uint_eq(spec.stop_signals, USUAL);
    ck_assert_str_eq(spec.signals_to_handle, "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
    ck_assert_int_eq(spec.signal_scope, SCOPE_PROCESS);
    ck_assert_ptr_null(spec.notes);
    JOB("ddprun", "--signals-to-handle=SIGUSR1,SIGXCPU,SIGIO", "--signal-scope", "group",
        "train.py");
    ck_assert_uint_eq(spec.stop_signals, USUAL | BIT(SIGUSR1) | BIT(SIGXCPU) | BIT(SIGIO));
    ck_assert_str_eq(spec.signals_to_handle, "SIGUSR1,SIGXCPU,SIGIO");
    ck_assert_int_eq(spec.signal_scope, SCOPE_GROUP);
    ck_assert_ptr_null(spec.notes);
    JOB("ddprun", "--signals-to-handle=,USR1,SIGNONE,SIGKILL,SIGUSR2", "train.py");
    ck_assert_uint_eq(spec.stop_signals, USUAL | BIT(SIGUSR2));
    ck_assert_str_eq(spec.notes, "--signals-to-handle: there is no signal 'USR1': ignored\n"
                                 "--signals-to-handle: there is no signal 'SIGNONE': ignored\n"
                                 "--signals-to-handle: 'SIGKILL' keeps its own meaning: ignored\n");
}
END_TEST

START_TEST(the_end_can_be_timed)
{
    JOB("ddprun", "--timeout", "2h", "train.py");
    ck_assert_uint_eq(spec.timeout_ms, 7200000);
    WITH_ENV("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7");
    JOB("ddprun", "train.py");
    ck_assert_uint_eq(spec.timeout_ms, 0);
    ck_assert_uint_eq(spec.grace_ms, 7000);
    ck_assert_uint_eq(spec.failure_grace_ms, 7000);
    WITH_ENV("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7", "PET_SHUTDOWN_TIMEOUT=8");
    JOB("ddprun", "train.py");
    ck_assert_uint_eq(spec.grace_ms, 8000);
    JOB("ddprun", "--shutdown-timeout=9", "train.py");
    ck_assert_uint_eq(spec.grace_ms, 9000);
    WITH_ENV("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=");
    JOB("ddprun", "train.py");
    ck_assert_uint_eq(spec.grace_ms, 30000);
}
END_TEST

START_TEST(output_goes_where_it_is_sent)
{
    const struct output_spec *o = &spec.output;
    JOB("ddprun", "-n3", "train.py");
    ck_assert(o->redirects[2] == 0 && o->tees[2] == 0 && !o->hidden[2] && o->stdin_rank == 0);
    ck_assert(o->log_dir == NULL && o->label == NULL && o->line_prefix == NULL);
    ck_assert(o->filters[0] == NULL && o->filters[1] == NULL);
    JOB("ddprun", "-n13", "-r", "3", "--tee=0:1,12:2", "--local_ranks_filter", "0,12", "--log-dir",
        "logs", "--stdin", "12", "--label", "--duplicate-stdout-filters", "a,,b,c",
        "--duplicate_stderr_filters=d", "train.py");
    ck_assert(o->redirects[0] == 3 && o->redirects[12] == 3 && o->redirects[13] == 0);
    ck_assert(o->tees[0] == 1 && o->tees[1] == 0 && o->tees[12] == 2);
    ck_assert(!o->hidden[0] && o->hidden[1] && !o->hidden[12]);
    ck_assert_str_eq(o->log_dir, "logs");
    ck_assert_str_eq(o->label, OUTPUT_LABEL_DEFAULT);
    ck_assert_str_eq(o->filters[0][0], "a,b");
    ck_assert_str_eq(o->filters[0][1], "c");
    ck_assert_str_eq(o->filters[1][0], "d");
    ck_assert_int_eq(o->stdin_rank, 12);
    WITH_ENV("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=<${rank}>", "PET_TEE=3");
    JOB("ddprun", "--label=", "--stdin=none", "--log-dir=/dev/null", "train.py");
    ck_assert_str_eq(o->label, "");
    ck_assert_str_eq(o->line_prefix, "<${rank}>");
    ck_assert_int_eq(o->stdin_rank, -1);
    ck_assert_int_eq(o->tees[0], 3);
    ck_assert(o->log_dir_null);
}
END_TEST

START_TEST(what_is_told_of_the_job_has_its_place)
{
    JOB("ddprun", "train.py");
    ck_assert_ptr_null(spec.events);
    ck_assert_ptr_null(spec.report);
    ck_assert(!spec.dry_run);
    JOB("ddprun", "--events", "e.jsonl", "--report=r.json", "--event-log-handler=console",
        "--dry-run", "--logs-specs=default", "train.py");
    ck_assert_str_eq(spec.events, "e.jsonl");
    ck_assert_str_eq(spec.report, "r.json");
    ck_assert(spec.dry_run);
    ck_assert_ptr_null(spec.replay);
    JOB("ddprun", "--replay", "e.jsonl", "--nnodes=1:2", "--rdzv-endpoint=n1", "--rdzv-id=j",
        "--scale-at=checkpoint", "train.py");
    ck_assert_str_eq(spec.replay, "e.jsonl");
    ck_assert_int_eq(spec.world.scale_at, MESSAGE_SCALE_NOW); /* ranks that wait save nothing */
    JOB("ddprun", "--event-log-handler=console", "train.py");
    ck_assert(spec.event_log);
    ck_assert_ptr_null(spec.events);
    JOB("ddprun", "--event-log-handler=null", "train.py");
    ck_assert(!spec.event_log);
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

START_TEST(a_double_dash_behind_torchruns_script_goes)
{
    JOB("torchrun", "train.py", "--", "a", "--");
    ck_assert_str_eq(spec.argv[2], "train.py");
    ck_assert_str_eq(spec.argv[3], "a");
    ck_assert_str_eq(spec.argv[4], "--");
    ck_assert_ptr_null(spec.argv[5]);
    JOB("torchrun", "train.py", "a", "--", "b");
    ck_assert_str_eq(spec.argv[4], "--");
    JOB("ddprun", "train.py", "--", "a");
    ck_assert_str_eq(spec.argv[3], "--");
}
END_TEST

START_TEST(devices_are_enough_for_virtual_local_ranks)
{
    JOB("ddprun", "-n4", "--virtual-local-rank", "train.py");
    ck_assert(spec.virtual_local_rank);
    WITH_ENV("CUDA_VISIBLE_DEVICES=3,4,5,6", "PET_VIRTUAL_LOCAL_RANK=1");
    JOB("ddprun", "-n4", "train.py");
    ck_assert(spec.virtual_local_rank);
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

static void check_wrong(const char *path)
{
    char said[CO_ERROR_TEXT_BYTES + 20];
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
                  "%s:\nexpected %s\nsaid     %s", path, expected[0], said);
    ck_assert_ptr_null(expected[1]);
    free_lines(words);
    free_lines(env);
    free_lines(expected);
}

START_TEST(wrong_command_lines_are_told_what_is_wrong)
{
    ck_assert_int_ge(cases_each("options/bad", check_wrong), 30);
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
    tcase_add_test(c, the_manual_page_has_each_option);
    tcase_add_test(c, every_spelling_of_torchrun_means_here_what_it_means_there);
    tcase_add_test(c, every_option_is_in_the_help_and_has_its_variable);
    tcase_add_test(c, what_does_nothing_on_one_node_is_accepted);
    tcase_add_test(c, the_endpoint_is_this_node);
    tcase_add_test(c, a_nameless_job_of_torchruns_is_called_none);
    tcase_add_test(c, restarts_have_a_number_a_window_and_exceptions);
    tcase_add_test(c, a_failed_rank_is_replaced_unless_something_else_is_asked_for);
    tcase_add_test(c, python_ranks_may_be_forked);
    tcase_add_test(c, progress_makes_restarts_free_if_asked_for);
    tcase_add_test(c, signals_that_end_the_job_can_be_added);
    tcase_add_test(c, the_end_can_be_timed);
    tcase_add_test(c, output_goes_where_it_is_sent);
    tcase_add_test(c, what_is_told_of_the_job_has_its_place);
    tcase_add_test(c, the_local_rank_can_be_an_argument);
    tcase_add_test(c, a_double_dash_behind_torchruns_script_goes);
    tcase_add_test(c, devices_are_enough_for_virtual_local_ranks);
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
