/* --rdzv-conf, and the options about how long nodes wait for each other, and by what they know each
 * other. */
#include "cli_draft.h"
#include "launcher/hosts/host_list.h"

#include "common/error.h"
#include "common/parse.h"
#include "rendezvous/membership/lease.h"
#include "rendezvous/net/address.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    VALUE_BYTES = ETCD_SETTING_BYTES,
    WHAT_BYTES = 128,
    ATTEMPTS_MIN = 2, /* one keep-alive that is late must not cost a node */
    ATTEMPTS_MAX = 1000,
};
#define INTERVAL_MIN_MS      100
#define INTERVAL_MAX_MS      1000000000
#define HOST_TIMEOUT_MIN_MS  300 /* a lost packet is sent again after 200 */
#define HOST_TIMEOUT_MAX_MS  1000
#define START_TIMEOUT_MS     600000
#define POD_SEEK_MS          30000
#define FAILOVER_TIMEOUT_MS  60000
#define WINDOW_MS            3000
#define TORCHRUN_WINDOW_MS   30000
#define LEASE_IN_KEEP_ALIVES (LEASE_MS / LEASE_KEEP_ALIVE_MS)

enum kind {
    TIME,
    LAST_CALL,
    INTERVAL,
    ATTEMPTS,
    IS_HOST,
    FAILOVER,
    ENDPOINT,
    HOST_TIMEOUT,
    PROTOCOL,
    TEXT,
    PREFIX,
    IGNORED
};

/* IGNORED: how torchrun's own store is reached, and what a launcher that waits need not know. */
static const struct setting {
    const char *key;
    enum kind kind;
    size_t at; /* of TIME and TEXT: in struct cli_conf */
} settings[] = {
    {"join_timeout", TIME, offsetof(struct cli_conf, join_timeout_ms)},
    {"timeout", TIME, offsetof(struct cli_conf, timeout_ms)},
    {"last_call_timeout", LAST_CALL},
    {"keep_alive_interval", INTERVAL},
    {"keep_alive_max_attempt", ATTEMPTS},
    {"is_host", IS_HOST},
    {"failover", FAILOVER}, /* these three are our own */
    {"endpoint", ENDPOINT},
    {"host_timeout", HOST_TIMEOUT},
    {"heartbeat_timeout", IGNORED},
    {"close_timeout", IGNORED},
    {"read_timeout", IGNORED},
    {"store_type", IGNORED},
    {"cas_backoff_max_seconds", IGNORED},
    {"rank", IGNORED}, /* --node-rank wins */
    {"protocol", PROTOCOL},
    {"ssl_cert", TEXT, offsetof(struct cli_conf, etcd.cert)}, /* for etcd-v2; for etcd: */
    {"cert", TEXT, offsetof(struct cli_conf, etcd.cert)},
    {"ssl_cert_key", TEXT, offsetof(struct cli_conf, etcd.key)},
    {"key", TEXT, offsetof(struct cli_conf, etcd.key)},
    {"ca_cert", TEXT, offsetof(struct cli_conf, etcd.ca_cert)},
    {"cacert", TEXT, offsetof(struct cli_conf, etcd.ca_cert)},
    {"etcd_prefix", PREFIX, offsetof(struct cli_conf, etcd.prefix)},
    {"user", TEXT, offsetof(struct cli_conf, etcd.user)}, /* these three are our own */
    {"password", TEXT, offsetof(struct cli_conf, etcd.password)},
    {"password_file", TEXT, offsetof(struct cli_conf, etcd.password_file)},
};

/* torchrun's words for it. */
static int set_is_host(const char *what, const char *value, enum cli_conf_host *ret,
                       struct co_error *err)
{
    static const char *const words[] = {"1", "true", "t", "yes", "y", "0", "false", "f", "no", "n"};
    enum { N_YES = 5, N_WORDS = sizeof words / sizeof *words };
    for (int i = 0; i < N_WORDS; i++)
        if (strcasecmp(value, words[i]) == 0) {
            *ret = i < N_YES ? CLI_CONF_HOST_YES : CLI_CONF_HOST_NO;
            return 0;
        }
    return co_fail(err, -EINVAL, "invalid value '%.60s' for %s: expected true or false", value,
                   what);
}

static int set_word(const char *what, const char *value, const char *yes, const char *no,
                    enum cli_conf_word *ret, struct co_error *err)
{
    const bool is_yes = strcmp(value, yes) == 0;
    *ret = is_yes ? CLI_CONF_WORD_YES : CLI_CONF_WORD_NO;
    return is_yes || strcmp(value, no) == 0
               ? 0
               : co_fail(err, -EINVAL, "invalid value '%.60s' for %s: expected %s or %s", value,
                         what, yes, no);
}

static int set_failover(const char *what, const char *value, enum cli_conf_failover *ret,
                        struct co_error *err)
{
    static const char *const words[] = {[CLI_CONF_FAILOVER_OFF] = "off",
                                        [CLI_CONF_FAILOVER_MAJORITY] = "majority",
                                        [CLI_CONF_FAILOVER_ALONE] = "alone"};
    for (int i = CLI_CONF_FAILOVER_OFF; i <= CLI_CONF_FAILOVER_ALONE; i++)
        if (strcmp(value, words[i]) == 0) {
            *ret = (enum cli_conf_failover)i;
            return 0;
        }
    return co_fail(err, -EINVAL, "invalid value '%.60s' for %s: expected majority, alone or off",
                   value, what);
}

static int set_one(const struct setting *s, const char *what, const char *value,
                   struct cli_conf *conf, struct co_error *err)
{
    char *at = (char *)conf + s->at;
    uint64_t ms = 0;
    int64_t n = 0;
    int rc = 0;
    if (s->kind == TIME || s->kind == LAST_CALL || s->kind == INTERVAL || s->kind == HOST_TIMEOUT)
        rc = co_parse_duration_ms(what, value, &ms, err);
    if (s->kind == ATTEMPTS)
        rc = co_parse_int(what, value, ATTEMPTS_MIN, ATTEMPTS_MAX, &n, err);
    if (rc < 0)
        return rc;
    switch (s->kind) {
    case TIME:
        if (ms == 0)
            return co_fail(err, -EINVAL,
                           "invalid value '%s' for %s: expected a duration greater than 0", value,
                           what);
        memcpy(at, &ms, sizeof ms);
        return 0;
    case LAST_CALL:
        conf->has_last_call_timeout = true;
        conf->last_call_timeout_ms = ms;
        return 0;
    case INTERVAL:
        if (ms < INTERVAL_MIN_MS || ms > INTERVAL_MAX_MS)
            return co_fail(err, -ERANGE,
                           "invalid value '%s' for %s: expected a duration from %d ms to %d s",
                           value, what, INTERVAL_MIN_MS, INTERVAL_MAX_MS / 1000);
        conf->keep_alive_interval_ms = ms;
        return 0;
    case ATTEMPTS:
        conf->keep_alive_max_attempt = (uint32_t)n;
        return 0;
    case IS_HOST:
        return set_is_host(what, value, &conf->is_host, err);
    case FAILOVER:
        return set_failover(what, value, &conf->failover, err);
    case HOST_TIMEOUT:
        if (ms != 0 && (ms < HOST_TIMEOUT_MIN_MS || ms > HOST_TIMEOUT_MAX_MS))
            return co_fail(err, -ERANGE,
                           "invalid value '%s' for %s: expected 0 or a duration from %d to %d ms",
                           value, what, HOST_TIMEOUT_MIN_MS, HOST_TIMEOUT_MAX_MS);
        conf->host_timeout_ms = ms;
        return 0;
    case ENDPOINT:
        return set_word(what, value, "once", "again", &conf->endpoint_once, err);
    case PROTOCOL:
        conf->etcd.is_https = strcmp(value, "https") == 0;
        return conf->etcd.is_https || strcmp(value, "http") == 0
                   ? 0
                   : co_fail(err, -EINVAL, "invalid value '%.60s' for %s: expected http or https",
                             value, what);
    case TEXT:
    case PREFIX:
        strcpy(at, value); /* VALUE_BYTES are no more */
        for (size_t len = strlen(at); s->kind == PREFIX && len > 0 && at[len - 1] == '/'; len--)
            at[len - 1] = '\0';
        return 0;
    case IGNORED:
        return 0;
    }
    return 0;
}

static int set_named(const char *what, const char *key, const char *value, struct cli_conf *conf,
                     struct co_error *err)
{
    char named[WHAT_BYTES]; /* "--rdzv-conf join_timeout" */
    snprintf(named, sizeof named, "%.50s %s", what, key);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (strcmp(key, settings[i].key) == 0)
            return set_one(&settings[i], named, value, conf, err);
    if (conf->unknown[0] == '\0')
        snprintf(conf->unknown, sizeof conf->unknown, "%s", key);
    return 0;
}

/* The first len bytes of text without blanks around them. returns whether they are 1 to size - 1 */
static bool trim(const char *text, size_t len, char *to, size_t size)
{
    static const char blanks[] = " \t\n\v\f\r";
    size_t skipped = strspn(text, blanks);
    size_t begin = skipped < len ? skipped : len;
    while (len > begin && strchr(blanks, text[len - 1]) != NULL)
        len--;
    if (len == begin || len - begin >= size)
        return false;
    memcpy(to, text + begin, len - begin);
    to[len - begin] = '\0';
    return true;
}

int cli_conf_parse(const char *what, const char *text, struct cli_conf *ret, struct co_error *err)
{
    struct cli_conf conf = {0};
    char key[CLI_CONF_KEY_BYTES], value[VALUE_BYTES];
    if (text[strspn(text, " \t\n\v\f\r")] == '\0') {
        *ret = conf;
        return 0;
    }
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        size_t equals = strcspn(at, "=,");
        bool has_value =
            at[equals] == '=' && trim(at + equals + 1, len - equals - 1, value, sizeof value);
        if (!has_value || !trim(at, equals, key, sizeof key))
            return co_fail(err, -EINVAL,
                           "invalid value '%.200s' for %s: expected KEY=VALUE[,...], got '%.*s'",
                           text, what, len < 60 ? (int)len : 60, at);
        int rc = set_named(what, key, value, &conf, err);
        if (rc < 0)
            return rc;
        at += len;
        if (*at == '\0')
            break;
    }
    *ret = conf;
    return 0;
}

int cli_read_conf(const struct draft *d, struct cli_conf *ret, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_RDZV_CONF];
    *ret = (struct cli_conf){0};
    return g->value != NULL ? cli_conf_parse(g->by, g->value, ret, err) : 0;
}

/* --- the options --- */

/* The options win over torchrun's settings, which win over the defaults. */
static int set_times(const struct draft *d, const struct cli_conf *conf, bool is_static,
                     struct job_spec *spec, struct co_error *err)
{
    static const char *const moments[] = {
        [MESSAGE_ADMIT_NOW] = "now", [MESSAGE_ADMIT_AT_CHECKPOINT] = "checkpoint", NULL};
    static const struct cli_field fields[] = {
        {OPTION_JOIN_WINDOW, CLI_TIME_OR_0, offsetof(struct job_spec, world.window_ms)},
        {OPTION_REJOIN_TIMEOUT, CLI_TIME_OR_0, offsetof(struct job_spec, world.rejoin_timeout_ms)},
        {OPTION_FAILOVER_TIMEOUT, CLI_TIME_OR_0,
         offsetof(struct job_spec, world.failover_timeout_ms)},
        {OPTION_ADMIT_AT, CLI_CHOICE, offsetof(struct job_spec, world.admit_at), moments},
        {OPTION_ADMIT_TIMEOUT, CLI_TIME, offsetof(struct job_spec, world.admit_timeout_ms)},
        {OPTION_TOKEN_FILE, CLI_FILE, offsetof(struct job_spec, world.token_file)},
        {OPTION_REQUIRE_TOKEN, CLI_FLAG, offsetof(struct job_spec, world.require_token)},
    };
    struct job_world *w = &spec->world;
    uint64_t join_ms = is_static && conf->timeout_ms > 0 ? conf->timeout_ms : conf->join_timeout_ms;
    w->start_timeout_ms = join_ms > 0 ? join_ms : START_TIMEOUT_MS;
    w->window_ms = conf->has_last_call_timeout ? conf->last_call_timeout_ms
                   : spec->as_torchrun         ? TORCHRUN_WINDOW_MS
                                               : WINDOW_MS;
    w->failover_timeout_ms = FAILOVER_TIMEOUT_MS;
    int rc = cli_time(d, OPTION_START_TIMEOUT, false, &w->start_timeout_ms, err);
    w->rejoin_timeout_ms = w->start_timeout_ms;
    return rc ?: cli_set_fields(d, fields, CLI_N(fields), spec, err);
}

static void set_lease(const struct cli_conf *conf, struct job_world *w)
{
    uint64_t interval_ms = conf->keep_alive_interval_ms;
    uint32_t n_attempts = conf->keep_alive_max_attempt;
    if (interval_ms == 0 && n_attempts == 0)
        return;
    w->keep_alive_ms = interval_ms > 0 ? interval_ms : LEASE_KEEP_ALIVE_MS;
    w->lease_ms = w->keep_alive_ms * (n_attempts > 0 ? n_attempts : LEASE_IN_KEEP_ALIVES);
}

static int set_etcd(const struct etcd_settings *s, const struct given *g, struct job_spec *spec,
                    struct co_error *err)
{
    struct job_world *w = &spec->world;
    const bool has_password = s->password[0] != '\0' || s->password_file[0] != '\0';
    *w->etcd = *s;
    if (s->prefix[0] == '\0')
        strcpy(w->etcd->prefix, "/ddprun");
    if (!has_password || s->is_https || address_host_is_loopback(w->endpoint_host))
        return 0;
    return cli_note(spec, err,
                    "%s: the password for etcd is sent to %s without encryption; use "
                    "protocol=https",
                    g->by, w->endpoint_host);
}

int cli_set_terms(const struct draft *d, const struct cli_conf *conf, bool is_static,
                  struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_RDZV_CONF];
    struct job_world *w = &spec->world;
    int rc = 0;
    if (w->has_others && conf->unknown[0] != '\0')
        rc = cli_note(spec, err, "%s: unknown setting '%s' ignored; see --rdzv-conf in ddprun(1)",
                      g->by, conf->unknown);
    rc = rc ?: set_times(d, conf, is_static, spec, err);
    if (rc < 0)
        return rc;
    if (w->etcd != NULL && (rc = set_etcd(&conf->etcd, g, spec, err)) < 0)
        return rc;
    set_lease(conf, w);
    w->failover = !is_static && w->etcd == NULL && spec->remote == NULL && w->has_others &&
                  w->max_nodes > 1 &&
                  (d->assignment == NULL || d->assignment->may_move); /* cli_set_failover() */
    bool is_settled = spec->remote != NULL || d->assignment != NULL;
    if (!is_static && !is_settled && conf->is_host != CLI_CONF_HOST_UNSAID)
        w->host = conf->is_host == CLI_CONF_HOST_YES ? JOB_HOST_HERE : JOB_HOST_ELSEWHERE;
    return 0;
}

/* --- failover, of back ends where it is possible --- */

static bool may_lose_a_node(const struct job_spec *spec)
{
    return spec->world.min_nodes < spec->world.max_nodes || spec->max_restarts > 0 ||
           spec->restart_after_progress;
}

/* Kubernetes starts a pod again, with its name. */
static bool is_started_again(const struct draft *d)
{
    return host_env_get(d->world, "KUBERNETES_SERVICE_HOST") != NULL;
}

/* Kubernetes starts a pod again that ends, and the job with it. */
static uint64_t find_seek_ms(const struct job_world *w)
{
    return w->comes_again && w->rejoin_timeout_ms > POD_SEEK_MS ? POD_SEEK_MS
                                                                : w->rejoin_timeout_ms;
}

/* A scheduler's list is as long as it may be. */
static void drop_unused_endpoints(struct job_world *w)
{
    const uint32_t n_others = w->max_nodes + w->spares - 1;
    if (!w->failover)
        w->n_also = 0;
    else if (w->n_also > n_others)
        w->n_also = n_others;
}

int cli_set_failover(const struct draft *d, const struct cli_conf *conf, struct job_spec *spec,
                     struct co_error *err)
{
    const struct given *g = &d->given[OPTION_RDZV_CONF];
    struct job_world *w = &spec->world;
    int rc = 0;
    w->failover = w->failover && (conf->failover == CLI_CONF_FAILOVER_UNSAID
                                      ? may_lose_a_node(spec)
                                      : conf->failover != CLI_CONF_FAILOVER_OFF);
    w->failover_alone = w->failover && conf->failover == CLI_CONF_FAILOVER_ALONE;
    w->comes_again = is_started_again(d);
    w->endpoint_once = conf->endpoint_once == CLI_CONF_WORD_UNSAID
                           ? !w->comes_again
                           : conf->endpoint_once == CLI_CONF_WORD_YES;
    w->endpoint_guessed = conf->endpoint_once == CLI_CONF_WORD_UNSAID;
    w->seek_ms = w->failover ? find_seek_ms(w) : 0;
    if (w->failover && d->assignment != NULL && w->host == JOB_HOST_HERE)
        w->host = JOB_HOST_FOUND_OUT; /* others may have replaced it, and its address is needed */
    if (d->assignment != NULL)
        drop_unused_endpoints(w);
    w->host_timeout_ms = w->failover ? conf->host_timeout_ms : 0;
    if (conf->host_timeout_ms > 0 && !w->failover && w->has_others)
        rc =
            cli_note(spec, err,
                     "%s: host_timeout has no effect without --rdzv-conf failover=majority", g->by);
    if (rc < 0)
        return rc;
    if (w->failover || w->n_also == 0)
        return 0;
    w->n_also = 0;
    return cli_note(spec, err,
                    "%s: only the first endpoint is used: the others are asked with --rdzv-conf "
                    "failover=majority",
                    d->given[OPTION_RDZV_ENDPOINT].by);
}
