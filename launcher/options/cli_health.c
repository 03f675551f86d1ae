/* The options about the health of nodes. */
#include "cli_draft.h"
#include "launcher/job/job_spec.h"

#include "common/error.h"

#include <errno.h>
#include <string.h>

enum { TIMEOUT_MS = 60000, COMMAND_MAX = 65536 };

static int set_command(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_HEALTH_CHECK];
    if (g->value == NULL)
        return 0;
    const size_t n = strnlen(g->value, COMMAND_MAX);
    if (n == 0 || n == COMMAND_MAX)
        return co_fail(err, -EINVAL,
                       "invalid value for %s: expected a shell command of 1 to %d bytes", g->by,
                       COMMAND_MAX - 1);
    return cli_copy(g->value, &spec->health.command, err);
}

/* With a command, what is checked besides by default; without one, nothing. */
static int set_builtin(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_HEALTH_BUILTIN];
    const char *list = g->value != NULL               ? g->value
                       : spec->health.command != NULL ? "default"
                                                      : "none";
    return health_checks_parse(g->value != NULL ? g->by : "--health-builtin", list,
                               &spec->health.builtin, err);
}

int cli_set_health(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    spec->health.timeout_ms = TIMEOUT_MS;
    return set_command(d, spec, err)
        ?: set_builtin(d, spec, err)
        ?: cli_time(d, OPTION_HEALTH_TIMEOUT, false, &spec->health.timeout_ms, err);
}
