/* client.c - the calls of a store's client: a request, then its reply.
 *
 * Read client_connect() and client_wait() first. stream_connect() (client_stream.c) resolves the
 * name, connects, and proves by a handshake that the other end is a store; send_request() and the
 * receive functions exchange bytes until the deadline. A reply that was read in part leaves the
 * connection unusable (stream_die()). A wait that times out leaves it usable, because the store
 * confirms that the wait is canceled. */
#include "client.h"

#include "client_stream.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "rendezvous/store/wire.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    CANCEL_MS = 5000, /* for the server to confirm that a wait is canceled */
    FIRST_VALUE_BYTES = 64 << 10,
};
#define MAX_VALUE_BYTES ((uint64_t)1 << 30)

/* --- requests --- */

/* An opcode, perhaps a count of 1, a key, perhaps a value. One write, nothing copied. */
static int send_request(struct store_client *c, enum wire_op op, bool counted,
                        struct wire_bytes key, const struct wire_bytes *value, uint64_t deadline_ms,
                        struct co_error *err)
{
    uint8_t head[17] = {(uint8_t)op};
    size_t n_head = 1;
    if (counted) {
        wire_put_u64(head + n_head, 1);
        n_head += 8;
    }
    wire_put_u64(head + n_head, key.len);
    n_head += 8;
    uint8_t value_head[8];
    struct iovec v[4] = {{head, n_head}, {(void *)key.at, key.len}};
    size_t n_v = 2;
    if (value != NULL) {
        wire_put_u64(value_head, value->len);
        v[n_v++] = (struct iovec){value_head, sizeof value_head};
        v[n_v++] = (struct iovec){(void *)value->at, value->len};
    }
    return stream_send(c, v, n_v, deadline_ms, err);
}

static int receive_i64(struct store_client *c, uint64_t deadline_ms, int64_t *ret_value,
                       struct co_error *err)
{
    uint8_t bytes[8];
    int rc = stream_receive(c, bytes, sizeof bytes, deadline_ms, err);
    if (rc == 0)
        *ret_value = (int64_t)wire_get_u64(bytes);
    return rc;
}

/* The length is only a promise: memory grows with what really comes. */
static int receive_value(struct store_client *c, uint64_t deadline_ms, uint8_t **ret_value,
                         size_t *ret_len, struct co_error *err)
{
    int64_t promised = 0;
    int rc = receive_i64(c, deadline_ms, &promised, err);
    if (rc < 0)
        return rc;
    uint64_t len = (uint64_t)promised;
    if (len > MAX_VALUE_BYTES)
        return stream_die(c,
                          co_fail(err, -EPROTO,
                                  "the store sent a value of %llu bytes: at most %llu are accepted",
                                  (unsigned long long)len, (unsigned long long)MAX_VALUE_BYTES));
    co_autofree uint8_t *value = NULL;
    size_t n_here = 0;
    size_t room = FIRST_VALUE_BYTES;
    do {
        room = room < len - n_here ? room : len - n_here;
        uint8_t *larger = realloc(value, n_here + room + 1);
        if (larger == NULL)
            return stream_die(
                c, co_fail(err, -ENOMEM, "out of memory for a value of %zu bytes", (size_t)len));
        value = larger;
        rc = stream_receive(c, value + n_here, room, deadline_ms, err);
        if (rc < 0)
            return rc;
        n_here += room;
        room = n_here; /* twice as much */
    } while (n_here < len);
    value[len] = '\0';
    *ret_len = len;
    *ret_value = co_take(&value);
    return 0;
}

int client_set(struct store_client *c, const void *key, size_t key_len, const void *value,
               size_t value_len, uint64_t deadline_ms, struct co_error *err)
{
    struct wire_bytes k = {key, key_len};
    struct wire_bytes v = {value, value_len};
    return send_request(c, WIRE_SET, false, k, &v, deadline_ms, err);
}

/* The answer may have crossed the cancellation: then it arrives first, and the confirmation after
 * it. The time is up either way. */
static int cancel_wait(struct store_client *c, const void *key, size_t key_len,
                       struct co_error *err)
{
    uint8_t op = WIRE_CANCEL_WAIT;
    uint8_t answer;
    struct iovec v = {&op, 1};
    uint64_t deadline_ms = co_deadline_ms(CANCEL_MS);
    int rc = stream_send(c, &v, 1, deadline_ms, err);
    if (rc == 0)
        rc = stream_receive(c, &answer, 1, deadline_ms, err);
    if (rc == 0 && answer == WIRE_STOP_WAITING)
        rc = stream_receive(c, &answer, 1, deadline_ms, err);
    if (rc != 0)
        return rc;
    if (answer != WIRE_WAIT_CANCELED)
        return stream_die(
            c, co_fail(err, -EPROTO, "invalid answer of the store to a canceled wait: %u", answer));
    return co_fail(err, -ETIMEDOUT, "timed out waiting for the key '%.*s' in the store",
                   (int)(key_len < 200 ? key_len : 200), (const char *)key);
}

int client_wait(struct store_client *c, const void *key, size_t key_len, uint64_t deadline_ms,
                struct co_error *err)
{
    int rc =
        send_request(c, WIRE_WAIT, true, (struct wire_bytes){key, key_len}, NULL, deadline_ms, err);
    if (rc < 0)
        return rc;
    rc = stream_await_reply(c, deadline_ms, err);
    if (rc <= 0)
        return rc < 0 ? rc : cancel_wait(c, key, key_len, err);
    uint8_t answer;
    rc = stream_receive(c, &answer, 1, deadline_ms, err);
    if (rc == 0 && answer != WIRE_STOP_WAITING)
        rc = stream_die(c,
                        co_fail(err, -EPROTO, "invalid answer of the store to a wait: %u", answer));
    return rc;
}

int client_check(struct store_client *c, const void *key, size_t key_len, uint64_t deadline_ms,
                 bool *ret_there, struct co_error *err)
{
    uint8_t answer = 0;
    int rc = send_request(c, WIRE_CHECK, true, (struct wire_bytes){key, key_len}, NULL, deadline_ms,
                          err);
    if (rc == 0)
        rc = stream_receive(c, &answer, 1, deadline_ms, err);
    if (rc == 0 && answer != WIRE_READY && answer != WIRE_NOT_READY)
        rc = stream_die(
            c, co_fail(err, -EPROTO, "invalid answer of the store to a check: %u", answer));
    if (rc == 0)
        *ret_there = answer == WIRE_READY;
    return rc;
}

int client_get_now(struct store_client *c, const void *key, size_t key_len, uint64_t deadline_ms,
                   uint8_t **ret_value, size_t *ret_len, struct co_error *err)
{
    bool is_there = false;
    int rc = client_check(c, key, key_len, deadline_ms, &is_there, err);
    if (rc == 0 && !is_there)
        return co_fail(err, -ENOENT, "no such key in the store: '%.*s'",
                       (int)(key_len < 200 ? key_len : 200), (const char *)key);
    if (rc == 0)
        rc = send_request(c, WIRE_GET, false, (struct wire_bytes){key, key_len}, NULL, deadline_ms,
                          err);
    return rc < 0 ? rc : receive_value(c, deadline_ms, ret_value, ret_len, err);
}

int client_get(struct store_client *c, const void *key, size_t key_len, uint64_t deadline_ms,
               uint8_t **ret_value, size_t *ret_len, struct co_error *err)
{
    int rc = client_wait(c, key, key_len, deadline_ms, err);
    if (rc == 0)
        rc = send_request(c, WIRE_GET, false, (struct wire_bytes){key, key_len}, NULL, deadline_ms,
                          err);
    return rc < 0 ? rc : receive_value(c, deadline_ms, ret_value, ret_len, err);
}

int client_add(struct store_client *c, const void *key, size_t key_len, int64_t delta,
               uint64_t deadline_ms, int64_t *ret_value, struct co_error *err)
{
    uint8_t head[9] = {WIRE_ADD};
    uint8_t tail[8];
    wire_put_u64(head + 1, key_len);
    wire_put_u64(tail, (uint64_t)delta);
    struct iovec v[] = {{head, sizeof head}, {(void *)key, key_len}, {tail, sizeof tail}};
    int rc = stream_send(c, v, sizeof v / sizeof *v, deadline_ms, err);
    return rc < 0 ? rc : receive_i64(c, deadline_ms, ret_value, err);
}

int client_delete(struct store_client *c, const void *key, size_t key_len, uint64_t deadline_ms,
                  int64_t *ret_deleted, struct co_error *err)
{
    struct wire_bytes k = {key, key_len};
    int rc = send_request(c, WIRE_DELETE_KEY, false, k, NULL, deadline_ms, err);
    return rc < 0 ? rc : receive_i64(c, deadline_ms, ret_deleted, err);
}

/* --- connecting --- */

static int connect_to(const char *host, uint16_t port, struct wire_bytes word, uint64_t deadline_ms,
                      bool retry, struct store_client **ret_client, struct co_error *err)
{
    struct co_error reason = {0};
    struct store_client *c = malloc(sizeof *c);
    int rc = c == NULL ? co_fail(&reason, -ENOMEM, "out of memory")
                       : stream_connect(host, port, word, deadline_ms, retry, c, &reason);
    if (rc < 0) {
        free(c);
        return co_fail(err, rc, "cannot reach the store at %.200s port %u: %s", host,
                       (unsigned)port, reason.text);
    }
    *ret_client = c;
    return 0;
}

int client_connect(const char *host, uint16_t port, uint64_t deadline_ms,
                   struct store_client **ret_client, struct co_error *err)
{
    return connect_to(host, port, (struct wire_bytes){NULL, 0}, deadline_ms, true, ret_client, err);
}

int client_connect_once(const char *host, uint16_t port, uint64_t deadline_ms,
                        struct store_client **ret_client, struct co_error *err)
{
    return connect_to(host, port, (struct wire_bytes){NULL, 0}, deadline_ms, false, ret_client,
                      err);
}

int client_connect_by_word(const char *host, uint16_t port, const void *word, size_t word_len,
                           uint64_t deadline_ms, struct store_client **ret_client,
                           struct co_error *err)
{
    return connect_to(host, port, (struct wire_bytes){word, word_len}, deadline_ms, false,
                      ret_client, err);
}

void client_addresses(const struct store_client *c, struct sockaddr_storage *ret_local,
                      struct sockaddr_storage *ret_peer)
{
    socklen_t length = sizeof *ret_local;
    memset(ret_local, 0, sizeof *ret_local);
    memset(ret_peer, 0, sizeof *ret_peer);
    if (getsockname(c->fd, (struct sockaddr *)ret_local, &length) != 0)
        ret_local->ss_family = 0;
    length = sizeof *ret_peer;
    if (getpeername(c->fd, (struct sockaddr *)ret_peer, &length) != 0)
        ret_peer->ss_family = 0;
}

void client_close(struct store_client *c)
{
    if (c == NULL)
        return;
    co_close_at(&c->fd);
    free(c);
}
