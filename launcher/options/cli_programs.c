/* The programs: what the words after the options execute, and those after a ':'. */
#include "cli.h"
#include "cli_draft.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/program.h"
#include "launcher/job/rank_argv.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static int set_local_rank_arg(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_LOCAL_RANK_ARG];
    const struct given *use_env = &d->given[OPTION_USE_ENV];
    if (g->value == NULL)
        return 0;
    if (use_env->value != NULL)
        return co_fail(err, -EINVAL, "%s and %s cannot be used together", use_env->by, g->by);
    if (g->value[0] != '-' || g->value[1] == '\0' || strchr(g->value, '=') != NULL)
        return co_fail(err, -EINVAL,
                       "invalid value '%.200s' for %s: expected an option name such as "
                       "--local_rank or --local-rank",
                       g->value, g->by);
    return cli_check_name(g, err) ?: cli_copy(g->value, &spec->local_rank_arg, err);
}

static int set_wrap(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_WRAP];
    if (g->value == NULL)
        return 0;
    int rc = wrap_parse(g->by, g->value, &spec->wrap, err);
    if (rc < 0)
        return rc;
    rc = program_find(spec->wrap->words[0], d->world, &spec->wrap->path, err);
    return rc < 0 ? co_fail_in(err, "%s", g->by) : 0;
}

/* Of several nodes it is not known how many there will be. */
int cli_check_wrap(const struct draft *d, const struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_WRAP];
    int last = spec->wrap != NULL && !spec->world.has_others ? wrap_last_rank(spec->wrap) : -1;
    if (last < spec->n_local)
        return 0;
    return co_fail(err, -EINVAL,
                   "invalid value '%.200s' for %s: no rank %d, expected ranks from 0 to %d",
                   g->value, g->by, last, spec->n_local - 1);
}

int cli_set_program(const struct draft *d, char *const *words, struct job_spec *spec,
                    struct co_error *err)
{
    static const char *const methods[] = {"spawn", "fork", "forkserver", NULL};
    static const char *const rules[] = {
        [TEMPLATES_AUTO] = "auto", [TEMPLATES_YES] = "yes", [TEMPLATES_NO] = "no", NULL};
    static const struct cli_field templates = {OPTION_TEMPLATES, CLI_CHOICE,
                                               offsetof(struct job_spec, templates), rules};
    const struct given *g = d->given;
    bool module, no_python, run_path;
    int method;
    int rc = cli_flag(d, OPTION_MODULE, &module, err)
        ?: cli_flag(d, OPTION_NO_PYTHON, &no_python, err)
        ?: cli_flag(d, OPTION_RUN_PATH, &run_path, err)
        ?: cli_choice(&g[OPTION_START_METHOD], methods, &method, err)
        ?: set_local_rank_arg(d, spec, err);
    if (rc < 0)
        return rc;
    if (module + no_python + run_path > 1)
        return co_fail(err, -EINVAL, "%s and %s cannot be used together",
                       g[module ? OPTION_MODULE : OPTION_NO_PYTHON].by,
                       g[module && no_python ? OPTION_NO_PYTHON : OPTION_RUN_PATH].by);
    rc = cli_set_fields(d, &templates, 1, spec, err) ?: set_wrap(d, spec, err);
    if (rc < 0)
        return rc;
    if (words[0] == NULL)
        return co_fail(err, -EINVAL, "no %s given; try --help", module ? "module" : "program");
    enum program_rule rule = module              ? PROGRAM_MODULE
                             : no_python         ? PROGRAM_EXEC
                             : run_path          ? PROGRAM_RUN_PATH
                             : spec->as_torchrun ? PROGRAM_SCRIPT
                                                 : PROGRAM_BY_FILE;
    return program_make(rule, words, d->world, spec, err);
}

/* Options after ':' concern one program. */
static int check_behind_colon(const struct draft *d, struct co_error *err)
{
    static const enum cli_option ours[] = {OPTION_NP,       OPTION_NPROC_PER_NODE,
                                           OPTION_MODULE,   OPTION_NO_PYTHON,
                                           OPTION_RUN_PATH, OPTION_TEMPLATES};
    for (int id = 1; id < N_CLI_OPTIONS; id++) {
        bool is_ours = false;
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
            is_ours = is_ours || id == (int)ours[i];
        if (!is_ours && d->given[id].value != NULL)
            return co_fail(err, -EINVAL,
                           "%s after ':' applies to all programs; give it before the first program",
                           d->given[id].by);
    }
    return 0;
}

struct behind_colon { /* a program's options, and its words */
    struct draft draft;
    int n_ranks;
    char **words;
};

/* words     from a ':' on, which stands where argv[0] does, to the next one or the end */
static int read_behind_colon(const struct host_env *world, char **words, struct behind_colon *ret,
                             struct co_error *err)
{
    const struct given *np = &ret->draft.given[OPTION_NP];
    enum cli_wish wish;
    int64_t n = 1;
    int at;
    *ret = (struct behind_colon){.draft = {.world = world}};
    int rc = cli_read_options(&ret->draft, (int)co_count_words(words), words, &wish, &at, err);
    if (rc == 0 && wish != CLI_RUN)
        rc =
            co_fail(err, -EINVAL, "--help and --version are allowed before the first program only");
    rc = rc ?: check_behind_colon(&ret->draft, err);
    const struct given *g = np->value != NULL ? np : &ret->draft.given[OPTION_NPROC_PER_NODE];
    if (rc == 0 && g->value != NULL)
        rc = co_parse_int(g->by, g->value, 1, JOB_RANKS_MAX, &n, err);
    ret->n_ranks = (int)n;
    ret->words = words + at;
    return rc;
}

int cli_count_programs(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    struct behind_colon b;
    int rc = 0;
    if (d->n_programs > 1 && (spec->world.has_others || spec->remote != NULL))
        return co_fail(err, -EINVAL,
                       "several programs separated by ':' are supported on one node only; use one "
                       "program, or start them as separate jobs");
    for (int i = 1; rc == 0 && i < d->n_programs; i++) {
        rc = read_behind_colon(d->world, d->programs[i], &b, err);
        if (rc == 0 && spec->n_local + b.n_ranks > JOB_RANKS_MAX)
            rc = co_fail(err, -EINVAL, "too many ranks on this node: at most %d are allowed",
                         JOB_RANKS_MAX);
        if (rc == 0)
            spec->n_local += b.n_ranks;
    }
    return rc;
}

int cli_make_programs(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    struct behind_colon b;
    int n_left = spec->n_local;
    int rc = 0;
    for (int i = 1; i < d->n_programs; i++) /* each was read before, and is right */
        if (read_behind_colon(d->world, d->programs[i], &b, err) == 0)
            n_left -= b.n_ranks;
    for (int i = 1; rc == 0 && i < d->n_programs; i++) {
        struct job_spec program = {.called_as = spec->called_as};
        rc = read_behind_colon(d->world, d->programs[i], &b, err)
                 ?: cli_set_program(&b.draft, b.words, &program, err);
        const struct job_program added = job_spec_program(&program, 0);
        if (rc == 0)
            rc = mpmd_add(&spec->more, n_left, &added, err);
        if (rc == 0) {
            program.path = program.shown = NULL;
            program.argv = NULL;
        }
        n_left += b.n_ranks;
        job_spec_fini(&program);
    }
    return rc == 0 && spec->more != NULL ? mpmd_join(spec->more, spec->argv, err) : rc;
}
