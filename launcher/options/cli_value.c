/* What is given for each option, and where the programs are (cli_read_options(),
 * cli_cut_programs()); then what the value of one option means. */
#include "cli_draft.h"
#include "launcher/job/job_spec.h"

#include "common/error.h"
#include "common/options.h"
#include "common/parse.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the words of a command line --- */

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

/* torchrun's way to have the worker with rank 0 serve the store. */
static void read_own_store(struct draft *d)
{
    static const char name[] = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE";
    const char *value = host_env_get(d->world, name);
    if (value != NULL && strcmp(value, "1") == 0)
        given_set(d, OPTION_STORE, "worker", name, true);
}

void cli_read_environment(struct draft *d)
{
    read_own_store(d);
    read_variable(d, OPTION_SHUTDOWN_TIMEOUT, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    read_variable(d, OPTION_SSH_COMMAND, "DDPRUN_SSH");
    read_variable(d, OPTION_HTTP, "TORCHELASTIC_HEALTH_CHECK_PORT");
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

bool cli_is_torchrun(const char *name)
{
    const char *slash = name != NULL ? strrchr(name, '/') : NULL;
    return name != NULL && strcmp(slash != NULL ? slash + 1 : name, "torchrun") == 0;
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
        if (id == OPTION_HELP || id == OPTION_VERSION || id == OPTION_PRINT_COMPLETION) {
            *ret_wish = id == OPTION_HELP      ? CLI_HELP
                        : id == OPTION_VERSION ? CLI_VERSION
                                               : CLI_COMPLETION;
            if (found.spelled[1] == '-') /* a topic; of -hv, the v is another option */
                given_set(d, id, found.value, found.spelled, false);
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
        return co_fail(err, -ENOMEM, "out of memory");
    *ret_copy = copy;
    d->programs[d->n_programs++] = copy;
    for (int i = 0; i < n; i++) {
        if (!as_torchrun && strcmp(words[i], ":") == 0) {
            if (d->n_programs == JOB_PROGRAMS_MAX)
                return co_fail(err, -EINVAL, "too many programs: at most %d are allowed",
                               JOB_PROGRAMS_MAX);
            copy++;
            d->programs[d->n_programs++] = copy;
        }
        *copy++ = words[i];
    }
    return 0;
}

/* --- the value of one option --- */

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
        return co_fail(err, -EINVAL, "%s is too long: expected at most %d bytes", g->by,
                       CLI_NAME_MAX);
    for (const char *c = g->value; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            return co_fail(err, -EINVAL, "%s contains a control character; remove it", g->by);
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
        len +=
            (size_t)snprintf(list + len, sizeof list - len, "%s%s", i == 0 ? "" : ", ", words[i]);
    }
    return co_fail(err, -EINVAL, "invalid value '%.200s' for %s: expected one of %s", g->value,
                   g->by, list);
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
        return co_fail(err, -ENOMEM, "out of memory");
    free(spec->notes);
    spec->notes = notes;
    return 0;
}

int cli_time(const struct draft *d, enum cli_option id, bool allow_zero, uint64_t *ret_ms,
             struct co_error *err)
{
    const struct given *g = &d->given[id];
    uint64_t ms;
    if (g->value == NULL)
        return 0;
    int rc = co_parse_duration_ms(g->by, g->value, &ms, err);
    if (rc < 0)
        return rc;
    if (ms == 0 && !allow_zero)
        return co_fail(err, -EINVAL,
                       "invalid value '%s' for %s: expected a duration greater than 0", g->value,
                       g->by);
    *ret_ms = ms;
    return 0;
}

int cli_copy(const char *text, char **to, struct co_error *err)
{
    free(*to);
    *to = strdup(text);
    return *to != NULL ? 0 : co_fail(err, -ENOMEM, "out of memory");
}

static int set_field(const struct draft *d, const struct cli_field *f, void *to,
                     struct co_error *err)
{
    const struct given *g = &d->given[f->id];
    if (g->value == NULL)
        return 0;
    switch (f->kind) {
    case CLI_FLAG:
        return cli_flag(d, f->id, to, err);
    case CLI_TIME:
    case CLI_TIME_OR_0:
        return cli_time(d, f->id, f->kind == CLI_TIME_OR_0, to, err);
    case CLI_CHOICE:
        return cli_choice(g, f->words, to, err);
    case CLI_FILE:
        return *g->value == '\0' ? co_fail(err, -EINVAL, "%s requires the name of a file", g->by)
                                 : cli_copy(g->value, to, err);
    }
    return 0;
}

int cli_set_fields(const struct draft *d, const struct cli_field *fields, size_t n,
                   struct job_spec *spec, struct co_error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = set_field(d, &fields[i], (char *)spec + fields[i].at, err);
    return rc;
}
