/* etcd_plugin.c - an elector and its connection to etcd, as a plug-in of ddprun.
 *
 * Read feed() and on_done() first. feed() gives an input to the elector (rendezvous/election),
 * sends the request that the elector orders, and passes the other orders to ddprun. on_done() gets
 * the answer of etcd_http.c, decodes it, and feeds it. Where etcd has users, request_send() logs in
 * first; an answer that rejects the token leads to one more login. */
#include "etcd_plugin.h"

#include "etcd_http.h"
#include "rendezvous/election/etcd_wire.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A login costs etcd a bcrypt, which takes long where processors are scarce, and a login that timed
 * out costs it just as much: with the short time of other requests none would ever succeed. */
enum { USER_BYTES = 256, LOGIN_MS = 10000 };

struct etcd {
    struct etcd_host host;
    uint64_t request_ms, last_words_ms;
    struct elector *elector;
    struct etcd_http *http;
    struct etcd_wire_keys keys;
    struct elector_request ask; /* that is out, or waits for a token */
    bool is_logging_in;
    bool is_again;                               /* ask, since the token was not good any more */
    char user[USER_BYTES], password[USER_BYTES]; /* empty: none */
    char token[ETCD_WIRE_TOKEN_BYTES];           /* empty: none yet */
};

static void set_alarm(struct etcd *e)
{
    uint64_t elector_ms = elector_deadline_ms(e->elector);
    uint64_t http_ms = etcd_http_deadline_ms(e->http);
    e->host.set_alarm(e->host.arg, elector_ms < http_ms ? elector_ms : http_ms);
}

/* --- Asking --- */

static void feed(struct etcd *e, struct elector_input in);

static void request_fail(struct etcd *e, const char *text)
{
    struct elector_answer answer = {.failed = true};
    snprintf(answer.text, sizeof answer.text, "%s", text);
    feed(e, (struct elector_input){.type = ELECTOR_ANSWER, .answer = &answer});
}

/* returns whether it is out */
static bool post(struct etcd *e, const char *path, const struct co_buf *body)
{
    uint64_t most_ms = e->ask.type == ELECTOR_GIVE_UP ? e->last_words_ms : e->request_ms;
    const char *token = e->is_logging_in ? "" : e->token;
    if (e->is_logging_in && e->ask.type != ELECTOR_GIVE_UP && most_ms < LOGIN_MS)
        most_ms = LOGIN_MS;
    return path != NULL &&
           etcd_http_post(e->http, path, token, co_buf_bytes(body), co_buf_len(body), most_ms) == 0;
}

static void request_send(struct etcd *e)
{
    struct co_buf body = {.has_secrets = true};
    const char *path;
    e->is_logging_in = e->user[0] != '\0' && e->token[0] == '\0';
    path = e->is_logging_in ? etcd_wire_encode_login(e->user, e->password, &body)
                            : etcd_wire_encode(&e->keys, &e->ask, &body);
    bool is_out = post(e, path, &body);
    co_buf_fini(&body);
    if (!is_out)
        request_fail(e, "out of memory");
}

static void feed(struct etcd *e, struct elector_input in)
{
    struct elector_orders orders;
    in.now_ms = co_now_ms();
    elector_step(e->elector, &in, &orders);
    if (orders.request) {
        e->ask = orders.ask;
        e->is_again = false;
        request_send(e);
    }
    e->host.on_orders(e->host.arg, &orders);
    set_alarm(e);
}

/* --- Answers --- */

static void take_login(struct etcd *e, int status, const char *text, size_t len)
{
    struct co_error err;
    if (etcd_wire_decode_login(status, text, len, e->token, &err) < 0)
        request_fail(e, err.text);
    else
        request_send(e);
}

static void find_address(struct etcd *e)
{
    const char *own = etcd_http_own_address(e->http);
    struct elector_address address;
    if (*own != '\0' && e->host.find_address(e->host.arg, own, &address))
        elector_set_address(e->elector, &address);
}

static void take_answer(struct etcd *e, int status, const char *text, size_t len)
{
    struct elector_answer answer;
    if (!e->is_again && e->user[0] != '\0' && etcd_wire_wants_login(status, text, len)) {
        e->is_again = true;
        e->token[0] = '\0';
        request_send(e);
        return;
    }
    etcd_wire_decode(&e->keys, &e->ask, status, text, len, &answer);
    if (e->ask.type == ELECTOR_READ && !answer.failed)
        find_address(e);
    feed(e, (struct elector_input){.type = ELECTOR_ANSWER, .answer = &answer});
}

static void on_done(void *arg, int status, const char *text, size_t len)
{
    struct etcd *e = arg;
    if (status == 0)
        request_fail(e, text);
    else if (e->is_logging_in)
        take_login(e, status, text, len);
    else
        take_answer(e, status, text, len);
    set_alarm(e);
}

/* --- What ddprun calls --- */

static void elector_begin(struct etcd *e)
{
    feed(e, (struct elector_input){.type = ELECTOR_TIME});
}

static void hurry(struct etcd *e, bool hurries)
{
    feed(e, (struct elector_input){.type = ELECTOR_HURRY, .hurries = hurries});
}

static void commit(struct etcd *e, const struct elector_record *record)
{
    feed(e, (struct elector_input){.type = ELECTOR_COMMIT, .record = record});
}

static void stop(struct etcd *e, const struct elector_record *record)
{
    feed(e, (struct elector_input){.type = ELECTOR_STOP, .record = record});
}

static void ready(struct etcd *e, int fd, int events)
{
    etcd_http_ready(e->http, fd, events);
    set_alarm(e);
}

static void on_alarm(struct etcd *e)
{
    etcd_http_alarm(e->http);
    if (co_now_ms() >= elector_deadline_ms(e->elector))
        feed(e, (struct elector_input){.type = ELECTOR_TIME});
    set_alarm(e);
}

static uint32_t ttl_s(const struct etcd *e)
{
    return elector_ttl_s(e->elector);
}

static const char *trouble(const struct etcd *e)
{
    return elector_trouble(e->elector);
}

/* --- Beginning and end --- */

static void close_etcd(struct etcd *e)
{
    if (e == NULL)
        return;
    etcd_http_close(e->http);
    elector_destroy(e->elector);
    explicit_bzero(e->password, sizeof e->password);
    explicit_bzero(e->token, sizeof e->token);
    free(e);
}

/* returns 0, -EINVAL */
static int take_text(char *to, const char *text, const char *what, struct co_error *err)
{
    if (text != NULL && strlen(text) >= USER_BYTES)
        return co_fail(err, -EINVAL, "%s has more than %d bytes: use a shorter one", what,
                       USER_BYTES - 1);
    snprintf(to, USER_BYTES, "%s", text != NULL ? text : "");
    return 0;
}

static int set_up(struct etcd *e, const struct etcd_config *c, struct co_error *err)
{
    const struct etcd_http_callbacks callbacks = {.on_done = on_done, .arg = e};
    int rc = take_text(e->user, c->user, "the etcd user name", err);
    if (rc == 0)
        rc = take_text(e->password, c->password, "the etcd password", err);
    if (rc == 0 && etcd_wire_keys(c->prefix, c->run_id, &e->keys) < 0)
        rc =
            co_fail(err, -EINVAL,
                    "the etcd keys '%.100s/...' exceed %d bytes: use a shorter prefix or --rdzv-id",
                    c->prefix, ETCD_WIRE_KEY_BYTES - 1);
    if (rc == 0 && (e->elector = elector_create(&c->limits)) == NULL)
        rc = co_fail(err, -ENOMEM, "out of memory");
    return rc == 0 ? etcd_http_open(c, &e->host, &callbacks, &e->http, err) : rc;
}

static int open_etcd(const struct etcd_config *config, const struct etcd_host *host,
                     struct etcd **ret, struct co_error *err)
{
    struct etcd *e = calloc(1, sizeof *e);
    if (e == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    e->host = *host;
    e->request_ms = config->request_ms;
    e->last_words_ms = config->last_words_ms;
    int rc = set_up(e, config, err);
    if (rc < 0) {
        close_etcd(e);
        return rc;
    }
    *ret = e;
    return 0;
}

__attribute__((visibility("default"))) extern const struct etcd_plugin ddprun_etcd_plugin;

const struct etcd_plugin ddprun_etcd_plugin = {
    .version = ETCD_PLUGIN_VERSION,
    .open = open_etcd,
    .begin = elector_begin,
    .hurry = hurry,
    .commit = commit,
    .stop = stop,
    .ready = ready,
    .alarm = on_alarm,
    .ttl_s = ttl_s,
    .trouble = trouble,
    .close = close_etcd,
};
