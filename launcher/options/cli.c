#include "cli.h"

#include "cli_draft.h"
#include "common/error.h"
#include "common/options.h"
#include "common/parse.h"
#include "common/scope.h"
#include "launcher/job/job_spec.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

enum { OMP_THREADS_MAX = 4096 };

static void note(struct draft *d, int id, const char *value, const char *by, bool from_env)
{
    struct given *g = &d->given[id];
    g->value = value;
    g->from_env = from_env;
    snprintf(g->by, sizeof g->by, "%s", by);
}

/* A variable of another name than PET_'s, which comes before it. */
static void read_variable(struct draft *d, int id, const char *name)
{
    const char *value = host_env_get(d->world, name);
    if (value != NULL)
        note(d, id, value, name, true);
}

/* The environment's values, as if they stood in front of the command line. */
static void read_environment(struct draft *d)
{
    read_variable(d, OPTION_SHUTDOWN_TIMEOUT, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    read_variable(d, OPTION_SSH_COMMAND, "DDPRUN_SSH");
    for (const struct co_option *o = cli_table; o->id != 0; o++) {
        const char *value = o->env != NULL ? d->world->get_env(d->world->arg, o->env) : NULL;
        if (value != NULL)
            note(d, o->id, value, o->env, true);
    }
}

/* What an option means that was given without a value. */
static const char *value_of_none(int id)
{
    switch (id) {
    case OPTION_LABEL:
        return OUTPUT_LABEL_DEFAULT;
    case OPTION_FOLD:
        return "100ms";
    case OPTION_RESTART_AFTER_PROGRESS:
        return "1m";
    case OPTION_WARM:
        return "restarts";
    default: /* a flag */
        return "1";
    }
}

int cli_read_options(struct draft *d, int argc, char **argv, enum cli_wish *ret_wish, int *ret_at,
                     struct co_error *err)
{
    struct co_option_walk walk;
    struct co_option_found found;
    int rc;
    co_options_start(&walk, cli_table, argc, argv);
    while ((rc = co_options_next(&walk, &found, err)) > 0) {
        int id = found.option->id;
        if (id == OPTION_HELP || id == OPTION_VERSION) {
            *ret_wish = id == OPTION_HELP ? CLI_HELP : CLI_VERSION;
            return 0;
        }
        if (id == OPTION_EXPORT && d->n_exports < CLI_EXPORTS_MAX)
            d->exports[d->n_exports++] = found.value;
        if (id == OPTION_VERBOSE && d->verbose < 2)
            d->verbose++;
        note(d, id, found.value != NULL ? found.value : value_of_none(id), found.spelled, false);
    }
    *ret_wish = CLI_RUN;
    *ret_at = walk.at;
    return rc;
}

int cli_flag(const struct draft *d, enum cli_option id, bool *ret, struct co_error *err)
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

int cli_check_name(const struct given *g, struct co_error *err)
{
    if (strnlen(g->value, CLI_NAME_MAX + 1) > CLI_NAME_MAX)
        return co_fail(err, -EINVAL, "%s is longer than %d bytes", g->by, CLI_NAME_MAX);
    for (const char *c = g->value; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            return co_fail(err, -EINVAL, "%s holds a control character", g->by);
    return 0;
}

int cli_choice(const struct given *g, const char *const *words, int *ret_at, struct co_error *err)
{
    if (g->value == NULL)
        return 0;
    char list[200];
    size_t len = 0;
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(g->value, words[i]) == 0) {
            *ret_at = i;
            return 0;
        }
        len += (size_t)snprintf(list + len, sizeof list - len, "%s%s",
                                i == 0                 ? ""
                                : words[i + 1] != NULL ? ", "
                                                       : " and ",
                                words[i]);
    }
    return co_fail(err, -EINVAL, "%s '%.200s' is none of %s", g->by, g->value, list);
}

int cli_note(struct job_spec *spec, struct co_error *err, const char *format, ...)
{
    char line[CO_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    char *notes = NULL;
    if (asprintf(&notes, "%s%s\n", spec->notes != NULL ? spec->notes : "", line) < 0)
        return co_fail(err, -ENOMEM, "no memory for a note");
    free(spec->notes);
    spec->notes = notes;
    return 0;
}

/* A number, or a word that means one on this node. */
static int count_ranks(const struct draft *d, const struct given *g, int *ret_n,
                       struct co_error *err)
{
    const struct host_env *world = d->world;
    bool is_auto = strcmp(g->value, "auto") == 0;
    bool is_gpu = strcmp(g->value, "gpu") == 0;
    bool is_cpu = strcmp(g->value, "cpu") == 0;
    if (!is_auto && !is_gpu && !is_cpu) {
        int64_t n;
        int rc = co_parse_int(g->by, g->value, 1, JOB_RANKS_MAX, &n, err);
        if (rc == -EINVAL)
            return co_fail(err, rc, "%s '%.200s' is neither a number nor auto, gpu or cpu", g->by,
                           g->value);
        if (rc == 0)
            *ret_n = (int)n;
        return rc;
    }
    int n = 0;
    int rc = is_cpu ? 0 : cli_count_gpus(d, &n, err);
    if (rc < 0)
        return rc;
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

/* -n counts the ranks of all nodes, which then have equal shares. */
static int count_all_ranks(const struct draft *d, const struct job_world *w, int *ret_n,
                           struct co_error *err)
{
    const struct given *np = &d->given[OPTION_NP];
    const struct given *nodes = &d->given[OPTION_NNODES];
    int64_t n, n_nodes = w->max_nodes;
    int rc = co_parse_int(np->by, np->value, 1, JOB_RANKS_MAX * n_nodes, &n, err);
    if (rc < 0)
        return rc;
    if (w->min_nodes != w->max_nodes || n % n_nodes != 0)
        return co_fail(err, -EINVAL,
                       "%s %s ranks cannot be shared out evenly among %s nodes: -p says how many "
                       "this one has",
                       np->by, np->value, nodes->value);
    *ret_n = (int)(n / n_nodes);
    return 0;
}

static int set_ranks(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *np = &d->given[OPTION_NP];
    const struct given *per_node = &d->given[OPTION_NPROC_PER_NODE];
    int n = 0, n_per_node = 0;
    int rc = 0;
    if (np->value != NULL)
        rc = count_all_ranks(d, &spec->world, &n, err);
    if (rc == 0 && per_node->value != NULL && !(per_node->from_env && n > 0))
        rc = count_ranks(d, per_node, &n_per_node, err);
    if (rc < 0)
        return rc;
    if (n > 0 && n_per_node > 0 && n != n_per_node)
        return co_fail(err, -EINVAL, "%s %s and %s %s contradict each other on %s", np->by,
                       np->value, per_node->by, per_node->value,
                       spec->world.guided ? "so many nodes" : "one node");
    if (n == 0)
        n = n_per_node;
    if (n == 0 && (!spec->as_torchrun || d->given[OPTION_GPUS].value != NULL))
        rc = cli_count_gpus(d, &n, err);
    if (rc < 0)
        return rc;
    if (n > JOB_RANKS_MAX)
        n = JOB_RANKS_MAX;
    spec->n_local = n > 0 ? n : 1;
    return 0;
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
        /* the quota can only lower it: where there is one each anyway it need not be read */
        int share = d->world->n_cpus(d->world->arg) / spec->n_local;
        if (share > 1)
            share = d->world->n_allowed_cpus(d->world->arg) / spec->n_local;
        spec->omp_threads = share > 0 ? share : 1;
    }
    return 0;
}

static int set_warm(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    static const char *const words[] = {"restarts", "start", NULL};
    const struct given *g = &d->given[OPTION_WARM];
    int at;
    int rc = cli_choice(g, words, &at, err);
    if (rc == 0 && g->value != NULL)
        spec->warm = at == 0 ? WARM_RESTARTS : WARM_START;
    return rc;
}

static int enter(const struct draft *d, const struct job_spec *spec, struct co_error *err)
{
    int rc = spec->wdir != NULL ? d->world->enter(d->world->arg, spec->wdir) : 0;
    if (rc == 0)
        return 0;
    co_fail(err, -EINVAL, "%s '%.300s': %s", d->given[OPTION_WDIR].by, spec->wdir, strerror(-rc));
    return -EINVAL;
}

/* What concerns the ranks of this node. */
static int set_own_ranks(const struct draft *d, char *const *words, struct job_spec *spec,
                         struct co_error *err)
{
    if (spec->task != NULL)
        spec->n_local = (int)spec->task->local_world_size;
    int rc = set_omp(d, spec, err);
    if (rc == 0)
        rc = cli_set_devices(d, spec, err);
    if (rc == 0)
        rc = set_warm(d, spec, err);
    if (rc == 0)
        rc = enter(d, spec, err);
    if (rc == 0)
        rc = cli_set_program(d, words, spec, err);
    if (rc == 0)
        rc = cli_make_programs(d, spec, err);
    return rc == 0 ? cli_set_mpi(d, spec, err) : rc;
}

static int make_spec(const struct draft *d, char *const *argv, char *const *words,
                     struct job_spec *spec, struct co_error *err)
{
    bool dry_run, starts_others = cli_has_hosts(d);
    int rc = starts_others ? cli_set_hosts(d, argv, spec, err) : 0;
    if (rc == 0)
        rc = cli_set_nodes(d, spec, err);
    if (rc == 0 && d->assignment != NULL)
        rc = cli_keep_assignment(d, spec, err);
    if (rc == 0 && !starts_others)
        rc = set_ranks(d, spec, err);
    if (rc == 0)
        rc = cli_count_programs(d, spec, err);
    if (rc == 0)
        rc = cli_set_meeting(d, spec, err);
    if (rc == 0)
        rc = cli_set_end(d, spec, err);
    if (rc == 0)
        rc = cli_set_output(d, spec, err);
    if (rc == 0)
        rc = cli_flag(d, OPTION_DRY_RUN, &dry_run, err);
    if (rc == 0)
        rc = cli_set_exports(d, spec, err);
    if (rc == 0)
        rc = cli_set_wdir(d, spec, err);
    if (rc == 0 && !starts_others)
        rc = set_own_ranks(d, words, spec, err);
    else if (rc == 0 && words[0] == NULL)
        rc = co_fail(err, -EINVAL, "no program to run is given: try --help");
    if (rc == 0)
        rc = cli_check_wrap(d, spec, err);
    if (rc == 0)
        rc = cli_check_standby(d, spec, err);
    if (rc == 0)
        spec->dry_run = dry_run;
    spec->verbose = d->verbose;
    return rc;
}

bool cli_is_torchrun(const char *name)
{
    const char *slash = name != NULL ? strrchr(name, '/') : NULL;
    return name != NULL && strcmp(slash != NULL ? slash + 1 : name, "torchrun") == 0;
}

int cli_parse(int argc, char **argv, const struct host_env *world, enum cli_wish *ret_wish,
              struct job_spec *ret_spec, struct co_error *err)
{
    struct draft draft = {.world = world};
    const char *name = argc > 0 ? argv[0] : NULL;
    struct job_spec spec = {.as_torchrun = cli_is_torchrun(name), .called_as = name};
    enum cli_wish wish;
    int at = 0;
    read_environment(&draft);
    int rc = cli_read_options(&draft, argc, argv, &wish, &at, err);
    struct cli_schedulers managers = {0};
    if (world->assignment != NULL)
        cli_take_assignment(&draft, world->assignment);
    if (rc == 0 && wish == CLI_RUN)
        rc = cli_ask_managers(&draft, &managers, &spec, err);
    if (rc == 0 && wish == CLI_RUN) {
        co_autofree char **copy = NULL;
        rc = cli_cut_programs(&draft, argv + at, at < argc ? argc - at : 0, spec.as_torchrun, &copy,
                              err);
        if (rc == 0)
            rc = make_spec(&draft, argv, draft.programs[0], &spec, err);
    }
    cli_managers_fini(&managers);
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
    fputs("Usage: ddprun [OPTION]... PROGRAM [ARGUMENT]... [: PROGRAM [ARGUMENT]...]...\n"
          "Start PROGRAM as the ranks of a distributed data-parallel job, with the environment\n"
          "that torchrun gives. NAME.py and text files that are not executable are run by\n"
          "Python, others executed.\n"
          "\n",
          out);
    co_options_print_help(cli_table, out);
    fputs("\n"
          "Names in brackets are variables that may hold the option's value; the command line\n"
          "wins. Exit status: 0 if all ranks ended with 0, else that of the first that failed;\n"
          "2 wrong usage, 126 and 127 no such program. More in ddprun(1).\n",
          out);
}
