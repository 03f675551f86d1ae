/* The options about how long nodes wait for each other, and by what they know each other. */
#include "cli_conf.h"
#include "cli_draft.h"
#include "launcher/job/job_spec.h"

#include "common/error.h"
#include "common/parse.h"
#include "rendezvous/membership/lease.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define START_TIMEOUT_MS    600000
#define FAILOVER_TIMEOUT_MS 60000
#define WINDOW_MS           3000
#define TORCHRUN_WINDOW_MS  30000
#define LEASE_IN_HEARTBEATS (LEASE_MS / LEASE_HEARTBEAT_MS)

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
        return co_fail(err, -EINVAL, "%s %s: nobody can be in time", g->by, g->value);
    *ret_ms = ms;
    return 0;
}

/* The options win over torchrun's settings, which win over the defaults. */
static int set_times(const struct draft *d, const struct cli_conf *conf, bool is_static,
                     struct job_spec *spec, struct co_error *err)
{
    struct job_world *w = &spec->world;
    uint64_t join_ms = is_static && conf->timeout_ms > 0 ? conf->timeout_ms : conf->join_timeout_ms;
    w->start_timeout_ms = join_ms > 0 ? join_ms : START_TIMEOUT_MS;
    w->window_ms = conf->has_last_call_timeout ? conf->last_call_timeout_ms
                   : spec->as_torchrun         ? TORCHRUN_WINDOW_MS
                                               : WINDOW_MS;
    w->failover_timeout_ms = FAILOVER_TIMEOUT_MS;
    int rc = cli_time(d, OPTION_START_TIMEOUT, false, &w->start_timeout_ms, err);
    w->rejoin_timeout_ms = w->start_timeout_ms;
    if (rc == 0)
        rc = cli_time(d, OPTION_JOIN_WINDOW, true, &w->window_ms, err);
    if (rc == 0)
        rc = cli_time(d, OPTION_REJOIN_TIMEOUT, true, &w->rejoin_timeout_ms, err);
    if (rc == 0)
        rc = cli_time(d, OPTION_FAILOVER_TIMEOUT, true, &w->failover_timeout_ms, err);
    return rc;
}

static void set_lease(const struct cli_conf *conf, struct job_world *w)
{
    uint64_t interval_ms = conf->keep_alive_interval_ms;
    uint32_t n_attempts = conf->keep_alive_max_attempt;
    if (interval_ms == 0 && n_attempts == 0)
        return;
    w->heartbeat_ms = interval_ms > 0 ? interval_ms : LEASE_HEARTBEAT_MS;
    w->lease_ms = w->heartbeat_ms * (n_attempts > 0 ? n_attempts : LEASE_IN_HEARTBEATS);
}

static int set_token(const struct draft *d, struct job_world *w, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_TOKEN_FILE];
    if (g->value != NULL && *g->value == '\0')
        return co_fail(err, -EINVAL, "%s needs the name of a file", g->by);
    if (g->value != NULL && (w->token_file = strdup(g->value)) == NULL)
        return co_fail(err, -ENOMEM, "no memory for %s", g->by);
    return cli_flag(d, OPTION_REQUIRE_TOKEN, &w->require_token, err);
}

int cli_set_terms(const struct draft *d, bool is_static, struct job_spec *spec,
                  struct co_error *err)
{
    static const char *const moments[] = {
        [MESSAGE_ADMIT_NOW] = "now", [MESSAGE_ADMIT_AT_CHECKPOINT] = "checkpoint", NULL};
    const struct given *g = &d->given[OPTION_RDZV_CONF];
    struct job_world *w = &spec->world;
    struct cli_conf conf = {0};
    int moment = MESSAGE_ADMIT_NOW;
    int rc = g->value != NULL ? cli_conf_parse(g->by, g->value, &conf, err) : 0;
    if (rc == 0 && w->guided && conf.unknown[0] != '\0')
        rc = cli_note(spec, err, "%s: there is no setting '%s': ignored", g->by, conf.unknown);
    if (rc == 0)
        rc = set_times(d, &conf, is_static, spec, err);
    if (rc == 0)
        rc = cli_choice(&d->given[OPTION_ADMIT_AT], moments, &moment, err);
    if (rc == 0)
        rc = cli_time(d, OPTION_ADMIT_TIMEOUT, false, &w->admit_timeout_ms, err);
    if (rc == 0)
        rc = set_token(d, w, err);
    if (rc < 0)
        return rc;
    if (w->etcd != NULL) {
        *w->etcd = conf.etcd;
        if (w->etcd->prefix[0] == '\0')
            snprintf(w->etcd->prefix, sizeof w->etcd->prefix, "/ddprun");
    }
    w->admit_at = (enum message_admit_at)moment;
    set_lease(&conf, w);
    bool is_settled = spec->remote != NULL || d->assignment != NULL;
    if (!is_static && !is_settled && conf.is_host != CLI_CONF_HOST_UNSAID)
        w->host = conf.is_host == CLI_CONF_HOST_YES ? JOB_HOST_HERE : JOB_HOST_ELSEWHERE;
    return 0;
}
