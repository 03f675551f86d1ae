/* The command line to a job_spec: cli_value.c finds out which options are given and parses each
 * value; make_spec() sets the parts of the job_spec one after the other. Read cli_parse() first,
 * then make_spec(). */
#include "cli.h"

#include "cli_draft.h"
#include "common/error.h"
#include "common/options.h"
#include "common/parse.h"
#include "common/scope.h"
#include "launcher/job/job_spec.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

enum { OMP_THREADS_MAX = 4096 };

/* A number, or a word that means one on this node. */
static int count_ranks(const struct draft *d, const struct given *g, int *ret_n,
                       struct co_error *err)
{
    const struct host_env *world = d->world;
    bool is_auto = strcmp(g->value, "auto") == 0;
    bool is_gpu = strcmp(g->value, "gpu") == 0 || strcmp(g->value, "xpu") == 0;
    bool is_cpu = strcmp(g->value, "cpu") == 0;
    if (!is_auto && !is_gpu && !is_cpu) {
        int64_t n;
        int rc = co_parse_int(g->by, g->value, 1, JOB_RANKS_MAX, &n, err);
        if (rc == -EINVAL)
            return co_fail(
                err, rc, "invalid value '%.200s' for %s: expected a number, auto, gpu, xpu or cpu",
                g->value, g->by);
        if (rc == 0)
            *ret_n = (int)n;
        return rc;
    }
    int n = 0;
    int rc = is_cpu ? 0 : cli_count_gpus(d, &n, err);
    if (rc < 0)
        return rc;
    if (n == 0 && is_gpu)
        return co_fail(err, -EINVAL,
                       "%s %s: no GPU found on this node; check nvidia-smi or rocm-smi, or use %s "
                       "N",
                       g->by, g->value, g->by);
    if (n == 0)
        n = world->n_allowed_cpus(world->arg);
    if (n > JOB_RANKS_MAX)
        return co_fail(
            err, -EINVAL,
            "%s %s means %d ranks on this node, but at most %d are allowed; give a number", g->by,
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
    if (w->min_nodes != w->max_nodes)
        return co_fail(
            err, -EINVAL,
            "%s %s cannot be used with --nnodes %s, a range; use --nproc-per-node N on each node",
            np->by, np->value, nodes->value);
    if (n % n_nodes != 0)
        return co_fail(
            err, -EINVAL,
            "%s %s is not divisible among --nnodes %s; use --nproc-per-node N on each node", np->by,
            np->value, nodes->value);
    *ret_n = (int)(n / n_nodes);
    return 0;
}

/* n   what `np` is for this node */
static int fail_counts(const struct draft *d, const struct job_world *w, int n,
                       struct co_error *err)
{
    const struct given *np = &d->given[OPTION_NP];
    const struct given *per_node = &d->given[OPTION_NPROC_PER_NODE];
    if (w->has_others)
        return co_fail(
            err, -EINVAL,
            "%s %s and %s %s disagree: %s ranks on %u nodes are %d per node; give one of the two",
            np->by, np->value, per_node->by, per_node->value, np->value, w->max_nodes, n);
    return co_fail(err, -EINVAL, "%s %s and %s %s disagree on one node; give one of the two",
                   np->by, np->value, per_node->by, per_node->value);
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
        return fail_counts(d, &spec->world, n, err);
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

/* Paths are relative to --wdir from here on. */
static int enter_wdir(const struct draft *d, const struct job_spec *spec, struct co_error *err)
{
    int rc = spec->wdir != NULL ? d->world->enter(d->world->arg, spec->wdir) : 0;
    return rc == 0 ? 0
                   : co_fail(err, -EINVAL, "%s '%.300s': %s", d->given[OPTION_WDIR].by, spec->wdir,
                             strerror(-rc));
}

/* What concerns the ranks of this node. */
static int set_own_ranks(const struct draft *d, char *const *words, struct job_spec *spec,
                         struct co_error *err)
{
    if (spec->task != NULL)
        spec->n_local = (int)spec->task->local_world_size;
    return set_omp(d, spec, err)
        ?: cli_set_devices(d, spec, err)
        ?: set_warm(d, spec, err)
        ?: enter_wdir(d, spec, err)
        ?: cli_set_program(d, words, spec, err)
        ?: cli_make_programs(d, spec, err)
        ?: cli_set_mpi(d, spec, err);
}

/* Each step reads what those before it have set: how many nodes there are, how many ranks this one
 * has, the rendezvous endpoint, and the program last, when its directory is known. */
static int make_spec(const struct draft *d, char *const *argv, char *const *words,
                     struct job_spec *spec, struct co_error *err)
{
    const bool starts_others = cli_has_hosts(d);
    struct cli_conf conf = {0};
    spec->verbose = d->verbose;
    int rc = starts_others ? cli_set_hosts(d, argv, spec, err) : 0;
    rc = rc ?: cli_set_nodes(d, spec, err);
    if (rc == 0 && d->assignment != NULL)
        rc = cli_keep_assignment(d, spec, err);
    if (rc == 0 && !starts_others)
        rc = set_ranks(d, spec, err);
    rc = rc
        ?: cli_count_programs(d, spec, err)
        ?: cli_read_conf(d, &conf, err)
        ?: cli_set_meeting(d, &conf, spec, err)
        ?: cli_set_end(d, spec, err)
        ?: cli_set_failover(d, &conf, spec, err)
        ?: cli_set_health(d, spec, err)
        ?: cli_set_output(d, spec, err)
        ?: cli_flag(d, OPTION_DRY_RUN, &spec->dry_run, err)
        ?: cli_set_exports(d, spec, err)
        ?: cli_set_wdir(d, spec, err);
    if (rc == 0 && !starts_others)
        rc = set_own_ranks(d, words, spec, err);
    else if (rc == 0 && words[0] == NULL)
        rc = co_fail(
            err, -EINVAL,
            "no program given; usage: ddprun [OPTION]... PROGRAM [ARGUMENT]..., or try --help");
    return rc ?: cli_check_wrap(d, spec, err) ?: cli_check_standby(d, spec, err);
}

static int check_shell(const struct draft *d, struct co_error *err)
{
    static const char *const shells[] = {"bash", "zsh", "fish", "tcsh", NULL};
    int shell = 0;
    return cli_choice(&d->given[OPTION_PRINT_COMPLETION], shells, &shell, err);
}

int cli_parse(int argc, char **argv, const struct host_env *world, enum cli_wish *ret_wish,
              struct job_spec *ret_spec, struct co_error *err)
{
    struct draft draft = {.world = world};
    const char *name = argc > 0 ? argv[0] : NULL;
    struct job_spec spec = {.as_torchrun = cli_is_torchrun(name), .called_as = name};
    enum cli_wish wish;
    int at = 0;
    cli_read_environment(&draft);
    int rc = cli_read_options(&draft, argc, argv, &wish, &at, err);
    struct cli_schedulers managers = {0};
    co_autofree char **copy = NULL;
    if (world->assignment != NULL)
        cli_take_assignment(&draft, world->assignment);
    if (rc == 0 && wish == CLI_HELP && !spec.as_torchrun)
        rc = cli_check_topic(draft.given[OPTION_HELP].value, err);
    if (rc == 0 && wish == CLI_COMPLETION)
        rc = check_shell(&draft, err);
    if (rc == 0 && wish == CLI_RUN)
        rc = cli_ask_managers(&draft, &managers, &spec, err)
            ?: cli_flag(&draft, OPTION_STANDALONE, &draft.standalone, err)
            ?: cli_cut_programs(&draft, argv + at, at < argc ? argc - at : 0, spec.as_torchrun,
                                &copy, err)
            ?: make_spec(&draft, argv, draft.programs[0], &spec, err);
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
