#include "cli.h"

#include "common/error.h"
#include "common/options.h"
#include "common/parse.h"
#include "common/scope.h"
#include "job_spec.h"
#include "program.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

enum { GRACE_MS = 30000, FAILURE_GRACE_MS = 5000, OMP_THREADS_MAX = 4096 };

enum option_id {
    OPTION_NP = 1,
    OPTION_NPROC_PER_NODE,
    OPTION_NNODES,
    OPTION_STANDALONE,
    OPTION_MODULE,
    OPTION_NO_PYTHON,
    OPTION_OMP,
    OPTION_RDZV_ID,
    OPTION_ROLE,
    OPTION_MASTER_ADDR,
    OPTION_MASTER_PORT,
    OPTION_STORE,
    OPTION_SHUTDOWN_TIMEOUT,
    OPTION_LOG_DIR,
    OPTION_REDIRECTS,
    OPTION_TEE,
    OPTION_LOCAL_RANKS_FILTER,
    OPTION_STDOUT_FILTERS,
    OPTION_STDERR_FILTERS,
    OPTION_LABEL,
    OPTION_STDIN,
    OPTION_VERBOSE,
    OPTION_HELP,
    OPTION_VERSION,
    N_OPTIONS
};

static const struct co_option table[] = {
    {OPTION_NP, 'n', "np", "N", .subject = "Ranks",
     .help = "Start N ranks. On one node the same as -p N."},
    {OPTION_NPROC_PER_NODE, 'p', "nproc-per-node", "N|auto|gpu|cpu", "PET_NPROC_PER_NODE",
     "Start N ranks on each node; gpu: one per GPU; cpu: one per CPU that we are allowed; auto: "
     "gpu "
     "if there are any, else cpu. Without -n and -p: one per GPU, or a single one (as torchrun: a "
     "single one)."},
    {OPTION_NNODES, 'N', "nnodes", "N|MIN:MAX", "PET_NNODES",
     "Nodes of the job. This version runs on one: 1 and 1:1 are accepted."},
    {OPTION_STANDALONE, 0, "standalone", NULL, "PET_STANDALONE",
     "A job of this node alone, which it is in any case: contradicts other values of --nnodes."},
    {OPTION_MODULE, 'm', "module", NULL, "PET_MODULE", "PROGRAM is a Python module: python -u -m.",
     .subject = "Program"},
    {OPTION_NO_PYTHON, 0, "no-python", NULL, "PET_NO_PYTHON",
     "Execute PROGRAM itself, whatever its name and content."},
    {OPTION_OMP, 0, "omp", "N",
     .help =
         "Set OMP_NUM_THREADS to N, even if it is set already; 0: leave it alone. Without --omp it "
         "is set where it is not: to the allowed CPUs divided by the ranks (as torchrun: to 1 if "
         "there are several ranks)."},
    {OPTION_RDZV_ID, 0, "rdzv-id", "ID", "PET_RDZV_ID",
     "The job's name, TORCHELASTIC_RUN_ID. Default: a random one.", .subject = "Names, store"},
    {OPTION_ROLE, 0, "role", "NAME", "PET_ROLE", "The ranks' ROLE_NAME. Default: default."},
    {OPTION_MASTER_ADDR, 0, "master-addr", "ADDR", "PET_MASTER_ADDR",
     "The ranks' MASTER_ADDR. This version runs on one node: 127.0.0.1 (default) or localhost."},
    {OPTION_MASTER_PORT, 0, "master-port", "PORT", "PET_MASTER_PORT",
     "The ranks' MASTER_PORT. Default, and 0: any free one."},
    {OPTION_STORE, 0, "store", "auto|agent|worker",
     .help =
         "Who serves the store at MASTER_ADDR:MASTER_PORT: agent: ddprun; worker: the rank 0 of "
         "the script; auto (default): ddprun if there are several ranks."},
    {OPTION_LOG_DIR, 0, "log-dir", "DIR", "PET_LOG_DIR",
     "Keep log files and error files in a new folder of DIR. /dev/null: nowhere, -r and -t mean "
     "nothing.",
     .subject = "Output"},
    {OPTION_REDIRECTS, 'r', "redirects", "SPEC", "PET_REDIRECTS",
     "What goes to log files instead of here: 0 nothing, 1 stdout, 2 stderr, 3 both; or by local "
     "rank: 0:3,1:1."},
    {OPTION_TEE, 't', "tee", "SPEC", "PET_TEE",
     "What goes to log files and here, each line behind [ROLE LOCAL_RANK]:."},
    {OPTION_LOCAL_RANKS_FILTER, 0, "local-ranks-filter", "LIST", "PET_LOCAL_RANKS_FILTER",
     "Show what these local ranks write, and no others: 0,2. Log files are not affected."},
    {OPTION_STDOUT_FILTERS, 0, "duplicate-stdout-filters", "WORDS", "PET_DUPLICATE_STDOUT_FILTERS",
     "Lines of -t that hold one of these words (A,B; two commas are one in a word) go to "
     "filtered_stdout.log, too."},
    {OPTION_STDERR_FILTERS, 0, "duplicate-stderr-filters", "WORDS", "PET_DUPLICATE_STDERR_FILTERS",
     "The same for stderr and filtered_stderr.log."},
    {OPTION_LABEL, 0, "label", "FORMAT",
     .help =
         "Begin each line with FORMAT: text, {host}, {rank}, {local_rank}, {generation}. Empty: "
         "no labels. Default for several ranks on a terminal: '{host}:{rank}: '."},
    {OPTION_STDIN, 0, "stdin", "RANK|none", .help = "Who reads our stdin. Default: 0."},
    {OPTION_SHUTDOWN_TIMEOUT, 0, "shutdown-timeout", "TIME", "PET_SHUTDOWN_TIMEOUT",
     "How long ranks that were told to stop may take before they are killed: 90, 1.5s, 250ms, 10m. "
     "Default: 30s after a signal, 5s after a rank failed.",
     .subject = "Control"},
    {OPTION_VERBOSE, 'v', "verbose", .help = "Tell on stderr what is done."},
    {OPTION_HELP, 'h', "help", .help = "Print this text."},
    {OPTION_VERSION, 'V', "version", .help = "Print the version."},
    {0},
};

/* What was given for an option, and by what, for messages. */
struct given {
    const char *value; /* borrowed from argv or the environment; NULL: not given */
    bool from_env;
    char by[CO_OPTION_NAME_MAX + 8]; /* "-n", "--np", "PET_NNODES" */
};

struct draft {
    const struct cli_world *world;
    struct given given[N_OPTIONS]; /* by option; a flag's value is "1" */
    int verbose;
};

static void note(struct draft *d, int id, const char *value, const char *by, bool from_env)
{
    struct given *g = &d->given[id];
    g->value = value;
    g->from_env = from_env;
    snprintf(g->by, sizeof g->by, "%s", by);
}

/* The environment's values, as if they stood in front of the command line. */
static void read_environment(struct draft *d)
{
    for (const struct co_option *o = table; o->id != 0; o++) {
        const char *value = o->env != NULL ? d->world->get_env(d->world->arg, o->env) : NULL;
        if (value != NULL)
            note(d, o->id, value, o->env, true);
    }
}

/* returns   0; *ret_at is the index of the first word behind the options. -EINVAL */
static int read_options(struct draft *d, int argc, char **argv, enum cli_wish *ret_wish,
                        int *ret_at, struct co_error *err)
{
    struct co_option_walk walk;
    struct co_option_found found;
    int rc;
    co_options_start(&walk, table, argc, argv);
    while ((rc = co_options_next(&walk, &found, err)) > 0) {
        int id = found.option->id;
        if (id == OPTION_HELP || id == OPTION_VERSION) {
            *ret_wish = id == OPTION_HELP ? CLI_HELP : CLI_VERSION;
            return 0;
        }
        if (id == OPTION_VERBOSE && d->verbose < 2)
            d->verbose++;
        note(d, id, found.value != NULL ? found.value : "1", found.spelled, false);
    }
    *ret_wish = CLI_RUN;
    *ret_at = walk.at;
    return rc;
}

/* A flag's variable holds a number, and 0 means no: PET_STANDALONE=0. */
static int is_given(const struct draft *d, int id, bool *ret, struct co_error *err)
{
    const struct given *g = &d->given[id];
    int64_t number = 0;
    if (g->value != NULL) {
        int rc = co_parse_int(g->by, g->value, INT64_MIN, INT64_MAX, &number, err);
        if (rc < 0)
            return rc;
    }
    *ret = number != 0;
    return 0;
}

/* A number, or a word that means one on this node. */
static int count_ranks(const struct draft *d, const struct given *g, bool words, int *ret_n,
                       struct co_error *err)
{
    const struct cli_world *world = d->world;
    bool is_auto = words && strcmp(g->value, "auto") == 0;
    bool is_gpu = words && strcmp(g->value, "gpu") == 0;
    bool is_cpu = words && strcmp(g->value, "cpu") == 0;
    if (!is_auto && !is_gpu && !is_cpu) {
        int64_t n;
        int rc = co_parse_int(g->by, g->value, 1, JOB_RANKS_MAX, &n, err);
        if (rc == -EINVAL && words)
            return co_fail(err, rc, "%s '%.200s' is neither a number nor auto, gpu or cpu", g->by,
                           g->value);
        if (rc == 0)
            *ret_n = (int)n;
        return rc;
    }
    int n = is_cpu ? 0 : world->n_gpus(world->arg);
    if (n == 0 && is_gpu)
        return co_fail(err, -EINVAL, "%s gpu: there is no GPU on this node", g->by);
    if (n == 0)
        n = world->n_allowed_cpus(world->arg);
    if (n > JOB_RANKS_MAX)
        return co_fail(err, -EINVAL,
                       "%s %s means %d ranks here, and %d are the most: give a number", g->by,
                       g->value, n, JOB_RANKS_MAX);
    *ret_n = n;
    return 0;
}

static int set_ranks(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *np = &d->given[OPTION_NP];
    const struct given *per_node = &d->given[OPTION_NPROC_PER_NODE];
    int n = 0, n_per_node = 0;
    int rc = 0;
    if (np->value != NULL)
        rc = count_ranks(d, np, false, &n, err);
    if (rc == 0 && per_node->value != NULL && !(per_node->from_env && n > 0))
        rc = count_ranks(d, per_node, true, &n_per_node, err);
    if (rc < 0)
        return rc;
    if (n > 0 && n_per_node > 0 && n != n_per_node)
        return co_fail(err, -EINVAL, "%s %s and %s %s contradict each other on one node", np->by,
                       np->value, per_node->by, per_node->value);
    if (n == 0)
        n = n_per_node;
    if (n == 0 && !spec->as_torchrun)
        n = d->world->n_gpus(d->world->arg);
    if (n > JOB_RANKS_MAX)
        n = JOB_RANKS_MAX;
    spec->n_local = n > 0 ? n : 1;
    return 0;
}

static int check_nodes(const struct draft *d, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_NNODES];
    int64_t min, max;
    char first[24];
    bool standalone;
    int rc = is_given(d, OPTION_STANDALONE, &standalone, err);
    if (rc < 0 || g->value == NULL)
        return rc;
    size_t n = strcspn(g->value, ":");
    snprintf(first, sizeof first, "%.*s", n < sizeof first ? (int)n : 0, g->value);
    const char *second = g->value[n] == ':' ? g->value + n + 1 : first;
    if (co_parse_int(g->by, first, 1, INT32_MAX, &min, NULL) < 0 ||
        co_parse_int(g->by, second, 1, INT32_MAX, &max, NULL) < 0)
        return co_fail(err, -EINVAL, "%s '%.200s' is neither a number from 1 on nor MIN:MAX", g->by,
                       g->value);
    if (min > max)
        return co_fail(err, -EINVAL, "%s '%s': the minimum is above the maximum", g->by, g->value);
    if (max > 1 && standalone)
        return co_fail(err, -EINVAL,
                       "%s %s and %s contradict each other: a standalone job has one "
                       "node",
                       g->by, g->value, d->given[OPTION_STANDALONE].by);
    if (max > 1)
        return co_fail(err, -EINVAL, "%s '%s': this version of ddprun runs on one node only", g->by,
                       g->value);
    return 0;
}

/* Names go into the workers' environment, into messages and into the names of files. */
static int check_name(const struct given *g, struct co_error *err)
{
    if (strnlen(g->value, CLI_NAME_MAX + 1) > CLI_NAME_MAX)
        return co_fail(err, -EINVAL, "%s is longer than %d bytes", g->by, CLI_NAME_MAX);
    for (const char *c = g->value; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            return co_fail(err, -EINVAL, "%s holds a control character", g->by);
    return 0;
}

/* A random UUID (version 4), as torchrun makes them. */
static int make_run_id(const struct cli_world *world, char **ret_id, struct co_error *err)
{
    unsigned char b[16];
    int rc = world->fill_random(world->arg, b, sizeof b);
    if (rc < 0)
        return co_fail(err, -EIO, "cannot get random bytes for a run id: %s", strerror(-rc));
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    char id[37];
    char *to = id;
    for (int i = 0; i < 16; i++)
        to += snprintf(to, 4, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", b[i]);
    *ret_id = strdup(id);
    return *ret_id != NULL ? 0 : co_fail(err, -ENOMEM, "no memory for a run id");
}

static int set_names(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *id = &d->given[OPTION_RDZV_ID];
    const struct given *role = &d->given[OPTION_ROLE];
    int rc = id->value != NULL ? check_name(id, err) : 0;
    if (rc == 0 && role->value != NULL)
        rc = check_name(role, err);
    if (rc < 0)
        return rc;
    if (id->value != NULL && *id->value == '\0')
        return co_fail(err, -EINVAL, "%s is empty: give the job a name, or leave it out", id->by);
    spec->role = strdup(role->value != NULL ? role->value : "default");
    if (spec->role == NULL)
        return co_fail(err, -ENOMEM, "no memory for the role's name");
    if (id->value == NULL)
        return make_run_id(d->world, &spec->run_id, err);
    spec->run_id = strdup(id->value);
    return spec->run_id != NULL ? 0 : co_fail(err, -ENOMEM, "no memory for the run id");
}

static int set_store(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    static const char *const choices[] = {
        [STORE_AUTO] = "auto", [STORE_AGENT] = "agent", [STORE_WORKER] = "worker"};
    const struct given *addr = &d->given[OPTION_MASTER_ADDR];
    const struct given *port = &d->given[OPTION_MASTER_PORT];
    const struct given *store = &d->given[OPTION_STORE];

    const char *name = addr->value != NULL ? addr->value : "127.0.0.1";
    if (strcmp(name, "127.0.0.1") != 0 && strcmp(name, "localhost") != 0)
        return co_fail(err, -EINVAL,
                       "%s '%.200s': this version of ddprun runs on one node only: 127.0.0.1 or "
                       "localhost, or leave it out",
                       addr->by, name);
    spec->master_addr = strdup(name);
    if (spec->master_addr == NULL)
        return co_fail(err, -ENOMEM, "no memory for the master's address");

    int64_t number = 0;
    int rc =
        port->value != NULL ? co_parse_int(port->by, port->value, 0, UINT16_MAX, &number, err) : 0;
    if (rc < 0)
        return rc;
    spec->master_port = (uint16_t)number;

    spec->store = STORE_AUTO;
    if (store->value == NULL)
        return 0;
    for (int i = STORE_AUTO; i <= STORE_WORKER; i++)
        if (strcmp(store->value, choices[i]) == 0) {
            spec->store = (enum store_choice)i;
            return 0;
        }
    return co_fail(err, -EINVAL, "%s '%.200s' is none of auto, agent and worker", store->by,
                   store->value);
}

static int set_grace(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_SHUTDOWN_TIMEOUT];
    spec->grace_ms = GRACE_MS;
    spec->failure_grace_ms = FAILURE_GRACE_MS;
    if (g->value == NULL)
        return 0;
    int rc = co_parse_duration_ms(g->by, g->value, &spec->grace_ms, err);
    spec->failure_grace_ms = spec->grace_ms;
    return rc;
}

static int set_omp(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_OMP];
    if (g->value != NULL) {
        int64_t n;
        int rc = co_parse_int(g->by, g->value, 0, OMP_THREADS_MAX, &n, err);
        if (rc < 0)
            return rc;
        spec->omp_threads = (int)n;
        spec->omp_asked = n > 0;
    } else if (spec->as_torchrun) {
        spec->omp_threads = spec->n_local > 1 ? 1 : 0;
    } else {
        int share = d->world->n_allowed_cpus(d->world->arg) / spec->n_local;
        spec->omp_threads = share > 0 ? share : 1;
    }
    return 0;
}

/* The texts that are kept as they are. */
static int set_output_texts(const struct draft *d, struct output_spec *s, struct co_error *err)
{
    const struct given *dir = &d->given[OPTION_LOG_DIR];
    const struct given *label = &d->given[OPTION_LABEL];
    const char *line_prefix =
        d->world->get_env(d->world->arg, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    bool failed = false;
    if (label->value != NULL) {
        int rc = output_spec_check_label(label->by, label->value, err);
        if (rc < 0)
            return rc;
        failed = (s->label = strdup(label->value)) == NULL;
    }
    if (dir->value != NULL && *dir->value != '\0') {
        s->log_dir_null = strcmp(dir->value, "/dev/null") == 0;
        failed = failed || (s->log_dir = strdup(dir->value)) == NULL;
    }
    if (line_prefix != NULL && *line_prefix != '\0')
        failed = failed || (s->line_prefix = strdup(line_prefix)) == NULL;
    for (int i = 0; i < 2; i++) {
        const struct given *words = &d->given[OPTION_STDOUT_FILTERS + i];
        if (words->value != NULL && *words->value != '\0')
            failed = failed || (s->filters[i] = output_spec_split(words->value)) == NULL;
    }
    return failed ? co_fail(err, -ENOMEM, "no memory for the output's options") : 0;
}

static int set_output(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *redirects = &d->given[OPTION_REDIRECTS];
    const struct given *tees = &d->given[OPTION_TEE];
    const struct given *shown = &d->given[OPTION_LOCAL_RANKS_FILTER];
    const struct given *in = &d->given[OPTION_STDIN];
    struct output_spec *s = &spec->output;
    int64_t stdin_rank = 0;
    int rc = set_output_texts(d, s, err);
    if (rc == 0 && redirects->value != NULL)
        rc = output_spec_parse_streams(redirects->by, redirects->value, spec->n_local, s->redirects,
                                       err);
    if (rc == 0 && tees->value != NULL)
        rc = output_spec_parse_streams(tees->by, tees->value, spec->n_local, s->tees, err);
    if (rc == 0 && shown->value != NULL)
        rc = output_spec_parse_ranks(shown->by, shown->value, spec->n_local, s->hidden, err);
    if (rc == 0 && in->value != NULL && strcmp(in->value, "all") == 0)
        return co_fail(err, -EINVAL, "%s all: one input cannot be read by several; name a rank",
                       in->by);
    if (rc == 0 && in->value != NULL && strcmp(in->value, "none") == 0)
        stdin_rank = -1;
    else if (rc == 0 && in->value != NULL)
        rc = co_parse_int(in->by, in->value, 0, spec->n_local - 1, &stdin_rank, err);
    s->stdin_rank = (int)stdin_rank;
    return rc;
}

static int set_program(const struct draft *d, char *const *words, struct job_spec *spec,
                       struct co_error *err)
{
    bool module, no_python;
    int rc = is_given(d, OPTION_MODULE, &module, err);
    if (rc == 0)
        rc = is_given(d, OPTION_NO_PYTHON, &no_python, err);
    if (rc < 0)
        return rc;
    if (module && no_python)
        return co_fail(err, -EINVAL, "%s and %s contradict each other", d->given[OPTION_MODULE].by,
                       d->given[OPTION_NO_PYTHON].by);
    if (words[0] == NULL)
        return co_fail(err, -EINVAL, "no %s to run is given: try --help",
                       module ? "module" : "program");
    enum program_rule rule = module              ? PROGRAM_MODULE
                             : no_python         ? PROGRAM_EXEC
                             : spec->as_torchrun ? PROGRAM_SCRIPT
                                                 : PROGRAM_BY_FILE;
    return program_make(rule, words, d->world, spec, err);
}

static int make_spec(const struct draft *d, char *const *words, struct job_spec *spec,
                     struct co_error *err)
{
    int rc = check_nodes(d, err);
    if (rc == 0)
        rc = set_ranks(d, spec, err);
    if (rc == 0)
        rc = set_names(d, spec, err);
    if (rc == 0)
        rc = set_store(d, spec, err);
    if (rc == 0)
        rc = set_grace(d, spec, err);
    if (rc == 0)
        rc = set_omp(d, spec, err);
    if (rc == 0)
        rc = set_output(d, spec, err);
    if (rc == 0)
        rc = set_program(d, words, spec, err);
    spec->verbose = d->verbose;
    return rc;
}

bool cli_is_torchrun(const char *name)
{
    const char *slash = name != NULL ? strrchr(name, '/') : NULL;
    return name != NULL && strcmp(slash != NULL ? slash + 1 : name, "torchrun") == 0;
}

int cli_parse(int argc, char **argv, const struct cli_world *world, enum cli_wish *ret_wish,
              struct job_spec *ret_spec, struct co_error *err)
{
    struct draft draft = {.world = world};
    struct job_spec spec = {.as_torchrun = cli_is_torchrun(argc > 0 ? argv[0] : NULL)};
    enum cli_wish wish;
    int at = 0;
    read_environment(&draft);
    int rc = read_options(&draft, argc, argv, &wish, &at, err);
    if (rc == 0 && wish == CLI_RUN) {
        char *const nothing = NULL;
        rc = make_spec(&draft, at < argc ? argv + at : &nothing, &spec, err);
    }
    if (rc < 0) {
        job_spec_fini(&spec);
        if (rc != -ERANGE)
            return rc;
        if (err != NULL)
            err->code = -EINVAL; /* a number out of bounds is wrong usage like any other */
        return -EINVAL;
    }
    *ret_wish = wish;
    if (wish == CLI_RUN)
        *ret_spec = spec;
    return 0;
}

void cli_print_help(FILE *out)
{
    fputs("Usage: ddprun [OPTION]... PROGRAM [ARGUMENT]...\n"
          "Start PROGRAM as the ranks of a distributed data-parallel job, with the environment\n"
          "that torchrun gives. NAME.py and text files that are not executable are run by\n"
          "Python, others executed.\n"
          "\n",
          out);
    co_options_print_help(table, out);
    fputs("\n"
          "Names in brackets are variables that may hold the option's value; the command line\n"
          "wins. Exit status: 0 if all ranks ended with 0, else that of the first that failed;\n"
          "2 wrong usage, 126 and 127 no such program. More in ddprun(1).\n",
          out);
}
