/* The options about restarts and the end of the job. */
#include "cli_draft.h"
#include "launcher/job/job_spec.h"

#include "common/buf.h"
#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Slurm kills what is left 30 s after its SIGTERM, unless KillWait is set differently: we have to
 * be done before. */
enum { SLURM_GRACE_MS = 25000 };
enum {
    GRACE_MS = 30000,
    FAILURE_GRACE_MS = 5000,
    RECOVERY_MS = 60000,
    HANG_MOST_MS = 1800000, /* of --hang-timeout auto */
    SLEEP_MOST_S = 1000000,
    RESTARTS_MAX = 1000000,
    STANDBY_MAX = 64
};

static const char usual_signals[] = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

/* "3" or "3/10m": fills both where it is given, window_ms with 0 where there is no TIME. */
static int parse_times(const struct given *g, int64_t least, int64_t most, int64_t *ret_n,
                       uint64_t *ret_window_ms, struct co_error *err)
{
    char count[24];
    const size_t len = strcspn(g->value, "/");
    uint64_t window_ms = 0;
    snprintf(count, sizeof count, "%.*s", len < sizeof count ? (int)len : 0, g->value);
    int rc = co_parse_int(g->by, count, least, most, ret_n, err);
    if (rc == -EINVAL)
        return co_fail(err, rc, "invalid value '%.200s' for %s: expected N or N/TIME", g->value,
                       g->by);
    if (rc == 0 && g->value[len] == '/')
        rc = co_parse_duration_ms(g->by, g->value + len + 1, &window_ms, err);
    if (rc < 0)
        return rc;
    if (g->value[len] == '/' && window_ms == 0)
        return co_fail(err, -EINVAL, "invalid value '%s' for %s: expected a time greater than 0",
                       g->value, g->by);
    *ret_window_ms = window_ms;
    return 0;
}

/* Which failures are followed by anything is known. */
static int set_exclusion(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_EXCLUDE_NODE_AFTER];
    struct job_world *w = &spec->world;
    int64_t n;
    if (g->value == NULL)
        return 0;
    int rc = parse_times(g, 1, MESSAGE_MAX_STRIKES, &n, &w->exclude_window_ms, err);
    if (rc < 0)
        return rc;
    if (!w->has_others)
        return co_fail(err, -EINVAL, "%s requires a job of several nodes (--nnodes)", g->by);
    if (spec->max_restarts == 0 && !spec->restart_after_progress)
        return co_fail(err, -EINVAL,
                       "%s requires --max-restarts: without it, the first failure ends the job",
                       g->by);
    w->exclude_after = (uint32_t)n;
    return 0;
}

/* Whether its words suit is looked at when they are known. */
static int set_standby(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_STANDBY];
    int64_t n;
    if (g->value == NULL)
        return 0;
    int rc = co_parse_int(g->by, g->value, 0, STANDBY_MAX, &n, err);
    if (rc < 0)
        return rc;
    if (n > 0 && spec->world.has_others)
        return co_fail(err, -EINVAL,
                       "%s is not supported with several nodes; for nodes that wait with imported "
                       "modules, use --spares with --warm",
                       g->by);
    if (n > 0 && (spec->on_failure != FAILURE_REPLACES || !job_spec_recovers(spec)))
        return co_fail(err, -EINVAL, "%s requires --max-restarts and --on-failure replace", g->by);
    if (spec->n_local + n > JOB_RANKS_MAX)
        return co_fail(err, -EINVAL,
                       "%s %d: too many processes with %d ranks: at most %d are allowed", g->by,
                       (int)n, spec->n_local, JOB_RANKS_MAX);
    spec->n_standby = (int)n;
    return 0;
}

static int set_memory_checkpoints(const struct draft *d, struct job_spec *spec,
                                  struct co_error *err)
{
    const struct given *g = &d->given[OPTION_MEMORY_CHECKPOINTS];
    if (g->value == NULL)
        return 0;
    return co_parse_size(g->by, g->value, MEMORY_CHECKPOINT_MIN, MEMORY_CHECKPOINT_MAX,
                         &spec->memory_checkpoint_bytes, err);
}

int cli_check_standby(const struct draft *d, const struct job_spec *spec, struct co_error *err)
{
    const char *what = spec->has_templates ? "arguments that are filled in for each rank: "
                                             "$local_rank, or {rank} without --templates no"
                       : spec->local_rank_arg != NULL ? "--local-rank-arg"
                       : spec->wrap != NULL           ? "--wrap for some ranks only"
                       : spec->virtual_local_rank     ? "--virtual-local-rank"
                       : spec->bind != PLACEMENT_NONE ? "--bind-to"
                       : spec->warm != WARM_NEVER     ? "--warm"
                                                      : NULL;
    if (spec->n_standby == 0 || what == NULL)
        return 0;
    return co_fail(err, -EINVAL, "%s cannot be used together with %s", d->given[OPTION_STANDBY].by,
                   what);
}

/* "1,2,130-143" */
static int set_no_restart_on(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_NO_RESTART_ON];
    for (const char *at = g->value; at != NULL;) {
        char one[16], *dash;
        size_t len = strcspn(at, ",");
        int64_t first, last;
        snprintf(one, sizeof one, "%.*s", len < sizeof one ? (int)len : 0, at);
        if ((dash = strchr(one, '-')) != NULL)
            *dash++ = '\0';
        if (co_parse_int(g->by, one, 1, 255, &first, NULL) < 0 ||
            co_parse_int(g->by, dash != NULL ? dash : one, first, 255, &last, NULL) < 0)
            return co_fail(err, -EINVAL,
                           "invalid value '%.200s' for %s: expected exit statuses from 1 to 255 or "
                           "ranges such as 130-143, got '%.*s'",
                           g->value, g->by, len < 60 ? (int)len : 60, at);
        for (int64_t code = first; code <= last; code++)
            spec->no_restart_on[code] = true;
        at = at[len] == ',' ? at + len + 1 : NULL;
    }
    return 0;
}

/* The kernel's names of signals, and a few older ones, in capitals or not, with SIG or without.
 *
 * ret_name   as Python has it, without SIG; lent
 * returns    0: it is none */
static int signal_by_name(const char *name, size_t len, const char **ret_name)
{
    static const struct {
        const char *name;
        int number;
    } others[] = {{"CLD", SIGCHLD}, {"IOT", SIGABRT}, {"IO", SIGIO}, {"POLL", SIGIO}};
    if (len > 3 && strncasecmp(name, "SIG", 3) == 0) {
        name += 3;
        len -= 3;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (len == strlen(others[i].name) && strncasecmp(name, others[i].name, len) == 0) {
            *ret_name = others[i].name;
            return others[i].number;
        }
    for (int n = 1; n < SIGRTMIN; n++) {
        const char *known = sigabbrev_np(n);
        if (known != NULL && len == strlen(known) && strncasecmp(name, known, len) == 0) {
            *ret_name = known;
            return n;
        }
    }
    return 0;
}

/* Signals that a process causes itself, that cannot be caught, or that have another meaning. */
static bool cannot_stop(int sig)
{
    static const int kept[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS,  SIGILL,  SIGFPE,
                               SIGTRAP, SIGABRT, SIGSYS,  SIGCHLD, SIGCONT, SIGWINCH,
                               SIGTSTP, SIGTTIN, SIGTTOU, SIGPIPE};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (sig == kept[i])
            return true;
    return false;
}

/* One that cannot be handled: wrong usage; to torchrun it is worth a warning. */
static int refuse_signal(const struct given *g, const char *name, size_t len, bool is_known,
                         struct job_spec *spec, struct co_error *err)
{
    const int shown = len < 60 ? (int)len : 60;
    if (!spec->as_torchrun)
        return co_fail(err, -EINVAL, "invalid value '%.*s' for %s: expected %s", shown, name, g->by,
                       is_known ? "a signal that a process can handle, such as SIGUSR1"
                                : "the name of a signal, such as SIGUSR1 or USR1");
    return is_known ? cli_note(spec, err, "%s: signal '%.*s' cannot be handled; ignored", g->by,
                               shown, name)
                    : cli_note(spec, err, "%s: unknown signal '%.*s' ignored", g->by, shown, name);
}

/* The ranks' environment gets the names as Python has them; those that are ignored as they are. */
static int set_signals(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_SIGNALS_TO_HANDLE];
    const char *list = g->value != NULL ? g->value : usual_signals;
    struct co_buf names = {0};
    int rc = g->value != NULL ? cli_check_name(g, err) : 0;
    spec->stop_signals = UINT64_C(1) << SIGTERM | UINT64_C(1) << SIGINT | UINT64_C(1) << SIGHUP |
                         UINT64_C(1) << SIGQUIT;
    for (const char *at = list; rc == 0 && at != NULL;) {
        const size_t len = strcspn(at, ",");
        const char *name = NULL;
        const int sig = signal_by_name(at, len, &name);
        const bool is_handled = sig != 0 && !cannot_stop(sig);
        if (is_handled)
            spec->stop_signals |= UINT64_C(1) << sig;
        else if (len > 0)
            rc = refuse_signal(g, at, len, sig != 0, spec, err);
        if (rc == 0 && (at != list && co_buf_append(&names, ",", 1) < 0))
            rc = -ENOMEM;
        if (rc == 0 && (is_handled ? co_buf_append(&names, "SIG", 3) < 0 ||
                                         co_buf_append(&names, name, strlen(name)) < 0
                                   : co_buf_append(&names, at, len) < 0))
            rc = -ENOMEM;
        at = at[len] == ',' ? at + len + 1 : NULL;
    }
    if (rc == -ENOMEM || (rc == 0 && co_buf_append(&names, "", 1) < 0))
        rc = co_fail(err, -ENOMEM, "out of memory");
    if (rc == 0)
        rc = cli_copy((const char *)co_buf_bytes(&names), &spec->signals_to_handle, err);
    co_buf_fini(&names);
    return rc;
}

static int set_grace(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_SHUTDOWN_TIMEOUT];
    spec->under_slurm = d->world->get_env(d->world->arg, "SLURM_JOB_ID") != NULL;
    spec->grace_ms = spec->under_slurm && !spec->as_torchrun ? SLURM_GRACE_MS : GRACE_MS;
    spec->failure_grace_ms = FAILURE_GRACE_MS;
    if (g->value == NULL)
        return 0;
    int rc = co_parse_duration_ms(g->by, g->value, &spec->grace_ms, err);
    spec->failure_grace_ms = spec->grace_ms;
    return rc;
}

/* Nothing is polled here, but a value that is not a number is an error. */
static int check_monitor_interval(const struct draft *d, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_MONITOR_INTERVAL];
    char *end;
    if (g->value == NULL)
        return 0;
    double seconds = strtod(g->value, &end);
    if (end == g->value || *end != '\0' || !isfinite(seconds) || seconds < 0)
        return co_fail(err, -EINVAL, "invalid value '%.200s' for %s: expected a number of seconds",
                       g->value, g->by);
    return 0;
}

static int set_failures(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *restarts = &d->given[OPTION_MAX_RESTARTS];
    const struct given *progress = &d->given[OPTION_RESTART_AFTER_PROGRESS];
    const struct given *timeout = &d->given[OPTION_TIMEOUT];
    int64_t n = 0;
    int rc = 0;
    if (restarts->value != NULL)
        rc = parse_times(restarts, 0, RESTARTS_MAX, &n, &spec->restart_window_ms, err);
    if (rc == 0 && progress->value != NULL)
        rc = co_parse_duration_ms(progress->by, progress->value, &spec->output_after_ms, err);
    if (rc == 0 && timeout->value != NULL)
        rc = co_parse_duration_ms(timeout->by, timeout->value, &spec->timeout_ms, err);
    if (rc == 0 && timeout->value != NULL && spec->timeout_ms == 0)
        rc = co_fail(err, -EINVAL, "invalid value '0' for %s: expected a duration greater than 0",
                     timeout->by);
    if (spec->on_failure == FAILURE_ABORTS)
        return rc;
    spec->max_restarts = (int)n;
    spec->restart_after_progress = progress->value != NULL;
    return rc;
}

static int set_hang_timeout(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const char *value = d->given[OPTION_HANG_TIMEOUT].value;
    spec->hang_learns = value != NULL && strcmp(value, "auto") == 0;
    if (!spec->hang_learns)
        return cli_time(d, OPTION_HANG_TIMEOUT, false, &spec->hang_timeout_ms, err);
    spec->hang_timeout_ms = HANG_MOST_MS;
    return 0;
}

/* A number of seconds, as torchrun reads it: 0 and less are none. */
static int set_uninterruptible(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    static const char name[] = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT";
    const char *value = host_env_get(d->world, name);
    char *end;
    if (value == NULL)
        return 0;
    const double s = strtod(value, &end);
    if (end == value || *end != '\0' || !isfinite(s) || s > SLEEP_MOST_S)
        return co_fail(err, -EINVAL, "invalid value '%.100s' for %s: expected seconds, at most %d",
                       value, name, SLEEP_MOST_S);
    spec->uninterruptible_ms = s > 0 ? (uint64_t)ceil(s * 1000) : 0;
    return 0;
}

static int set_timer_file(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const char *is_on = host_env_get(d->world, "TORCHELASTIC_ENABLE_FILE_TIMER");
    const char *path = host_env_get(d->world, "TORCHELASTIC_TIMER_FILE");
    if (is_on == NULL || strcmp(is_on, "1") != 0)
        return 0;
    return cli_copy(path != NULL ? path : "", &spec->timer_file, err);
}

/* A job that may fail once only ends at its first failure anyway. */
static int set_no_progress(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_NO_PROGRESS];
    int64_t n;
    if (g->value == NULL)
        return 0;
    int rc = co_parse_int(g->by, g->value, 1, RESTARTS_MAX, &n, err);
    if (rc < 0)
        return rc;
    if (n > spec->max_restarts)
        return co_fail(err, -EINVAL,
                       "%s %lld requires --max-restarts %lld or more: otherwise the restarts are "
                       "used up first",
                       g->by, (long long)n, (long long)n);
    spec->no_progress = (uint32_t)n;
    return 0;
}

int cli_set_end(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    static const char *const actions[] = {[FAILURE_REPLACES] = "replace",
                                          [FAILURE_SHRINKS] = "shrink",
                                          [FAILURE_RESTARTS] = "restart",
                                          [FAILURE_ABORTS] = "abort",
                                          NULL};
    static const char *const scopes[] = {
        [SCOPE_PROCESS] = "process", [SCOPE_GROUP] = "group", NULL};
    static const struct cli_field fields[] = {
        {OPTION_ON_FAILURE, CLI_CHOICE, offsetof(struct job_spec, on_failure), actions},
        {OPTION_RECOVERY_TIMEOUT, CLI_TIME, offsetof(struct job_spec, recovery_ms)},
        {OPTION_ON_TERM, CLI_TIME, offsetof(struct job_spec, on_term_ms)},
        {OPTION_SIGNAL_SCOPE, CLI_CHOICE, offsetof(struct job_spec, signal_scope), scopes},
    };
    spec->on_failure = spec->as_torchrun ? FAILURE_RESTARTS : FAILURE_REPLACES;
    spec->recovery_ms = RECOVERY_MS;
    return cli_set_fields(d, fields, CLI_N(fields), spec, err)
        ?: set_failures(d, spec, err)
        ?: set_no_progress(d, spec, err)
        ?: set_hang_timeout(d, spec, err)
        ?: set_uninterruptible(d, spec, err)
        ?: set_timer_file(d, spec, err)
        ?: set_standby(d, spec, err)
        ?: set_memory_checkpoints(d, spec, err)
        ?: set_exclusion(d, spec, err)
        ?: set_no_restart_on(d, spec, err)
        ?: check_monitor_interval(d, err)
        ?: set_grace(d, spec, err)
        ?: set_signals(d, spec, err);
}
