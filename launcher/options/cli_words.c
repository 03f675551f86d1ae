/* The words of a command line: what is given for each option, and where the programs are. */
#include "cli_draft.h"

#include "common/error.h"
#include "common/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void given_set(struct draft *d, int id, const char *value, const char *by, bool from_env)
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
        given_set(d, id, value, name, true);
}

void cli_read_environment(struct draft *d)
{
    read_variable(d, OPTION_SHUTDOWN_TIMEOUT, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    read_variable(d, OPTION_SSH_COMMAND, "DDPRUN_SSH");
    for (const struct co_option *o = cli_table; o->id != 0; o++) {
        const char *value = o->env != NULL ? d->world->get_env(d->world->arg, o->env) : NULL;
        if (value != NULL)
            given_set(d, o->id, value, o->env, true);
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
        given_set(d, id, found.value != NULL ? found.value : value_of_none(id), found.spelled,
                  false);
    }
    *ret_wish = CLI_RUN;
    *ret_at = walk.at;
    return rc;
}

int cli_cut_programs(struct draft *d, char *const *words, int n, bool as_torchrun, char ***ret_copy,
                     struct co_error *err)
{
    char **copy = calloc(2 * (size_t)n + 1, sizeof *copy);
    if (copy == NULL)
        return co_fail(err, -ENOMEM, "no memory for %d words", n);
    *ret_copy = copy;
    d->programs[d->n_programs++] = copy;
    for (int i = 0; i < n; i++) {
        if (!as_torchrun && strcmp(words[i], ":") == 0) {
            if (d->n_programs == JOB_PROGRAMS_MAX)
                return co_fail(err, -EINVAL, "more than %d programs", JOB_PROGRAMS_MAX);
            copy++;
            d->programs[d->n_programs++] = copy;
        }
        *copy++ = words[i];
    }
    return 0;
}
