#include "check_agent.h"

#include "check_collect.h"
#include "check_net.h"
#include "check_resolve.h"
#include "ctl/check/check_plan.h"
#include "ctl/check/check_wire.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/secret_memory.h"
#include "rendezvous/channel/token.h"
#include "rendezvous/net/address.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 4096, TIMEOUT_MAX_MS = 3600000 };

struct here {
    struct check_wire wire;
    char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN]; /* of the way that led here */
    uint8_t secret[CHECK_SECRET_BYTES];
    struct check_server *server; /* owned; NULL until facts were asked for */
};

bool check_agent_is_asked_for(int argc, char *const *argv)
{
    return argc == 2 && strcmp(argv[1], CHECK_WIRE_ARGUMENT) == 0;
}

/* --- parts of requests --- */

static uint64_t timeout_of(const json_t *request)
{
    json_int_t ms = json_integer_value(json_object_get(request, "timeout_ms"));
    return ms < 0 || ms > TIMEOUT_MAX_MS ? TIMEOUT_MAX_MS : (uint64_t)ms;
}

/* [ADDRESS, PORT]. returns 0, -EINVAL */
static int read_peer(const json_t *peer, struct sockaddr_storage *ret)
{
    const char *text = json_string_value(json_array_get(peer, 0));
    json_int_t port = json_integer_value(json_array_get(peer, 1));
    if (text == NULL || port < 1 || port > UINT16_MAX)
        return -EINVAL;
    return address_parse(text, (uint16_t)port, ret);
}

/* --- answers --- */

static json_t *tell_time(struct here *h, const json_t *request)
{
    (void)h, (void)request;
    return json_pack("{s:I}", "time_ns", (json_int_t)check_collect_clock_ns());
}

static void open_port(struct here *h, struct check_facts *f)
{
    struct co_error err = {0};
    uint16_t port = 0;
    if (h->server == NULL && check_server_open(h->secret, &h->server, &port, &err) < 0)
        snprintf(f->no_port, sizeof f->no_port, "%s", err.text);
    f->port = port;
}

static json_t *tell_facts(struct here *h, const json_t *request)
{
    const char *ddprun = json_string_value(json_object_get(request, "ddprun"));
    const char *secret = json_string_value(json_object_get(request, "secret"));
    uint64_t timeout_ms = timeout_of(request);
    struct check_facts *f = calloc(1, sizeof *f);
    if (f == NULL || ddprun == NULL || h->server != NULL ||
        co_parse_hex(secret, h->secret, sizeof h->secret) < 0) {
        free(f);
        return NULL;
    }
    check_collect_limits(f);
    check_collect_files("", f);
    check_collect_shm("/dev/shm", f);
    check_collect_token(f);
    open_port(h, f);
    check_collect_version(ddprun, timeout_ms, f);
    check_collect_gpus(timeout_ms, f);
    check_resolve_find(h->to, timeout_ms, f);
    json_t *json = check_facts_to_json(f);
    free(f);
    return json;
}

static json_t *tell_reach(struct here *h, const json_t *request)
{
    const json_t *list = json_object_get(request, "peers");
    struct sockaddr_storage peers[CHECK_PEERS_MAX];
    enum check_reach reach[CHECK_PEERS_MAX];
    size_t n = json_array_size(list);
    if (n > CHECK_PEERS_MAX)
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (read_peer(json_array_get(list, i), &peers[i]) < 0)
            return NULL;
    check_net_reach(h->secret, peers, n, timeout_of(request), reach);
    json_t *words = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(words, json_string(check_reach_words[reach[i]]));
    return json_pack("{s:o}", "reach", words);
}

static json_t *tell_measures(struct here *h, const json_t *request)
{
    struct sockaddr_storage peer;
    struct check_pair pair = {.a = 0};
    struct co_error err = {0};
    if (read_peer(json_object_get(request, "peer"), &peer) < 0)
        return NULL;
    if (check_net_measure(h->secret, &peer, timeout_of(request), &pair, &err) < 0)
        return json_pack("{s:s}", "why", err.text);
    return json_pack("{s:I, s:I, s:I, s:I}", "rtt_min_ns", (json_int_t)pair.rtt_min_ns,
                     "rtt_median_ns", (json_int_t)pair.rtt_median_ns, "forth",
                     (json_int_t)pair.forth, "back", (json_int_t)pair.back);
}

static const struct {
    const char *word;
    json_t *(*answer)(struct here *h, const json_t *request); /* NULL: a part is wrong */
} answers[] = {
    {"time", tell_time}, {"facts", tell_facts}, {"reach", tell_reach}, {"measure", tell_measures}};

static json_t *answer(struct here *h, const json_t *request)
{
    const char *word = json_string_value(json_object_get(request, "do"));
    for (size_t i = 0; word != NULL && i < sizeof answers / sizeof *answers; i++)
        if (strcmp(word, answers[i].word) == 0)
            return answers[i].answer(h, request);
    return NULL;
}

/* --- both directions --- */

/* returns 0, -ENOMEM, -errno: the reader is gone */
static int line_send(json_t *json)
{
    char *line = check_wire_print(json);
    int rc = line != NULL ? 0 : -ENOMEM;
    for (size_t len = rc == 0 ? strlen(line) : 0, at = 0; rc == 0 && at < len;) {
        ssize_t n = write(STDOUT_FILENO, line + at, len - at);
        if (n < 0 && errno != EINTR)
            rc = -errno;
        at += n > 0 ? (size_t)n : 0;
    }
    free(line);
    return rc;
}

/* "CLIENT PORT SERVER PORT", as sshd has it. */
static void find_way(struct here *h)
{
    const char *ssh = getenv("SSH_CONNECTION");
    char from[64], to[64];
    struct sockaddr_storage ignored;
    if (ssh == NULL || sscanf(ssh, "%63s %*s %63s", from, to) != 2)
        return;
    if (address_parse(from, 0, &ignored) == 0)
        snprintf(h->from, sizeof h->from, "%.*s", (int)strcspn(from, "%"), from);
    if (address_parse(to, 0, &ignored) == 0)
        snprintf(h->to, sizeof h->to, "%.*s", (int)strcspn(to, "%"), to);
}

/* returns   1 there was more; 0 the end; -errno */
static int read_some(struct here *h)
{
    uint8_t *room = co_buf_room(&h->wire.in, READ_BYTES);
    ssize_t n = room != NULL ? read(STDIN_FILENO, room, READ_BYTES) : -1;
    if (n < 0)
        return room == NULL ? -ENOMEM : errno == EINTR ? 1 : -errno;
    co_buf_added(&h->wire.in, (size_t)n);
    return n > 0;
}

static int obey_all(struct here *h, struct co_error *err)
{
    json_t *request;
    int rc;
    while ((rc = check_wire_take(&h->wire, &request, err)) > 0) {
        json_t *json = answer(h, request);
        json_decref(request);
        if (json == NULL)
            return co_fail(err, -EPROTO,
                           "invalid request; use the same ddpctl version on all nodes");
        rc = line_send(json);
        if (rc < 0)
            return co_fail(err, rc, "cannot send the reply: %s", strerror(-rc));
    }
    return rc;
}

enum ctl_exit check_agent(void)
{
    struct here h = {.wire = {.n_ignored = 0}};
    struct co_error err = {0};
    int rc = co_secret_env_take(TOKEN_VARIABLE);
    find_way(&h);
    if (rc == 0)
        rc = line_send(
            json_pack("{s:i, s:s, s:s}", "v", CHECK_PROTOCOL, "from", h.from, "to", h.to));
    if (rc < 0)
        co_fail(&err, rc, "cannot send the greeting: %s", strerror(-rc));
    while (rc >= 0 && (rc = read_some(&h)) > 0)
        rc = obey_all(&h, &err);
    if (rc < 0 && err.text[0] == '\0')
        co_fail(&err, rc, "cannot read requests: %s", strerror(-rc));
    check_server_close(h.server);
    check_wire_fini(&h.wire);
    return rc < 0 ? ctl_fail(CTL_EXIT_IO, &err) : CTL_EXIT_OK;
}
