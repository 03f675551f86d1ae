#include "cli_conf.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    VALUE_BYTES = ETCD_SETTING_BYTES,
    WHAT_BYTES = 128,
    ATTEMPTS_MIN = 2, /* one heartbeat that is late must not cost a node */
    ATTEMPTS_MAX = 1000,
};
#define INTERVAL_MIN_MS 100
#define INTERVAL_MAX_MS 1000000000

struct setting {
    const char *what; /* "--rdzv-conf join_timeout" */
    const char *value;
    struct cli_conf *conf;
};

static int set_time(const struct setting *s, uint64_t *ret_ms, struct co_error *err)
{
    uint64_t ms;
    int rc = co_parse_duration_ms(s->what, s->value, &ms, err);
    if (rc == 0 && ms == 0)
        return co_fail(err, -EINVAL, "%s=%s: nobody can be in time", s->what, s->value);
    if (rc == 0)
        *ret_ms = ms;
    return rc;
}

static int set_join_timeout(const struct setting *s, struct co_error *err)
{
    return set_time(s, &s->conf->join_timeout_ms, err);
}

static int set_timeout(const struct setting *s, struct co_error *err)
{
    return set_time(s, &s->conf->timeout_ms, err);
}

static int set_last_call_timeout(const struct setting *s, struct co_error *err)
{
    s->conf->has_last_call_timeout = true;
    return co_parse_duration_ms(s->what, s->value, &s->conf->last_call_timeout_ms, err);
}

static int set_keep_alive_interval(const struct setting *s, struct co_error *err)
{
    uint64_t ms;
    int rc = co_parse_duration_ms(s->what, s->value, &ms, err);
    if (rc == 0 && (ms < INTERVAL_MIN_MS || ms > INTERVAL_MAX_MS))
        return co_fail(err, -ERANGE, "%s=%s is out of bounds: %dms to %d s", s->what, s->value,
                       INTERVAL_MIN_MS, INTERVAL_MAX_MS / 1000);
    if (rc == 0)
        s->conf->keep_alive_interval_ms = ms;
    return rc;
}

static int set_keep_alive_max_attempt(const struct setting *s, struct co_error *err)
{
    int64_t n;
    int rc = co_parse_int(s->what, s->value, ATTEMPTS_MIN, ATTEMPTS_MAX, &n, err);
    if (rc == 0)
        s->conf->keep_alive_max_attempt = (uint32_t)n;
    return rc;
}

/* torchrun's words for it. */
static int set_is_host(const struct setting *s, struct co_error *err)
{
    static const char *const words[] = {"1", "true", "t", "yes", "y", "0", "false", "f", "no", "n"};
    enum { N_YES = 5, N_WORDS = sizeof words / sizeof *words };
    for (int i = 0; i < N_WORDS; i++)
        if (strcasecmp(s->value, words[i]) == 0) {
            s->conf->is_host = i < N_YES ? CLI_CONF_HOST_YES : CLI_CONF_HOST_NO;
            return 0;
        }
    return co_fail(err, -EINVAL, "%s=%.60s is neither true nor false", s->what, s->value);
}

/* --- of etcd --- */

static int set_protocol(const struct setting *s, struct co_error *err)
{
    s->conf->etcd.is_https = strcmp(s->value, "https") == 0;
    if (!s->conf->etcd.is_https && strcmp(s->value, "http") != 0)
        return co_fail(err, -EINVAL, "%s=%.60s is neither http nor https", s->what, s->value);
    return 0;
}

static int copy(const struct setting *s, char to[ETCD_SETTING_BYTES])
{
    snprintf(to, ETCD_SETTING_BYTES, "%s", s->value); /* VALUE_BYTES are no more */
    return 0;
}

static int set_ca_cert(const struct setting *s, struct co_error *err)
{
    (void)err;
    return copy(s, s->conf->etcd.ca_cert);
}

static int set_cert(const struct setting *s, struct co_error *err)
{
    (void)err;
    return copy(s, s->conf->etcd.cert);
}

static int set_key(const struct setting *s, struct co_error *err)
{
    (void)err;
    return copy(s, s->conf->etcd.key);
}

static int set_user(const struct setting *s, struct co_error *err)
{
    (void)err;
    return copy(s, s->conf->etcd.user);
}

static int set_password(const struct setting *s, struct co_error *err)
{
    (void)err;
    return copy(s, s->conf->etcd.password);
}

static int set_password_file(const struct setting *s, struct co_error *err)
{
    (void)err;
    return copy(s, s->conf->etcd.password_file);
}

static int set_etcd_prefix(const struct setting *s, struct co_error *err)
{
    (void)err;
    copy(s, s->conf->etcd.prefix);
    for (size_t n = strlen(s->conf->etcd.prefix); n > 0 && s->conf->etcd.prefix[n - 1] == '/'; n--)
        s->conf->etcd.prefix[n - 1] = '\0';
    return 0;
}

/* How torchrun's own store is reached, and what a launcher that waits need not know. */
static int ignore(const struct setting *s, struct co_error *err)
{
    (void)s, (void)err;
    return 0;
}

static const struct {
    const char *key;
    int (*set)(const struct setting *s, struct co_error *err);
} settings[] = {
    {"join_timeout", set_join_timeout},
    {"timeout", set_timeout},
    {"last_call_timeout", set_last_call_timeout},
    {"keep_alive_interval", set_keep_alive_interval},
    {"keep_alive_max_attempt", set_keep_alive_max_attempt},
    {"is_host", set_is_host},
    {"heartbeat_timeout", ignore},
    {"close_timeout", ignore},
    {"read_timeout", ignore},
    {"store_type", ignore},
    {"rank", ignore}, /* --node-rank wins */
    {"protocol", set_protocol},
    {"ssl_cert", set_cert}, /* by its name for etcd-v2, and by that for etcd */
    {"cert", set_cert},
    {"ssl_cert_key", set_key},
    {"key", set_key},
    {"ca_cert", set_ca_cert},
    {"cacert", set_ca_cert},
    {"etcd_prefix", set_etcd_prefix},
    {"user", set_user}, /* these three are our own */
    {"password", set_password},
    {"password_file", set_password_file},
};

static int set(const char *what, const char *key, const char *value, struct cli_conf *conf,
               struct co_error *err)
{
    char named[WHAT_BYTES];
    snprintf(named, sizeof named, "%.50s %s", what, key);
    const struct setting s = {.what = named, .value = value, .conf = conf};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (strcmp(key, settings[i].key) == 0)
            return settings[i].set(&s, err);
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
            return co_fail(err, -EINVAL, "%s '%.200s': '%.*s' is no KEY=VALUE", what, text,
                           len < 60 ? (int)len : 60, at);
        int rc = set(what, key, value, &conf, err);
        if (rc < 0)
            return rc;
        at += len;
        if (*at == '\0')
            break;
    }
    *ret = conf;
    return 0;
}
