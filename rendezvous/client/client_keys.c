#include "client.h"
#include "client_stream.h"
#include "common/buf.h"
#include "common/error.h"
#include "rendezvous/store/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KEYS         ((uint64_t)1 << 24)
#define MAX_ANSWER_BYTES ((uint64_t)1 << 30)

/* Wait until the u64 at *pos is there, read it, and move *pos past it. */
static int read_u64(struct store_client *c, struct co_buf *in, size_t *pos, uint64_t deadline_ms,
                    uint64_t *ret_value, struct co_error *err)
{
    int rc = stream_fill(c, in, *pos + 8, deadline_ms, err);
    if (rc < 0)
        return rc;
    *ret_value = wire_get_u64(co_buf_bytes(in) + *pos);
    *pos += 8;
    return 0;
}

/* Receive the whole answer: a number, and as many strings. Numbers are promises: memory grows with
 * what really comes. */
static int receive_answer(struct store_client *c, struct co_buf *in, uint64_t deadline_ms,
                          uint64_t *ret_n, struct co_error *err)
{
    size_t pos = 0;
    uint64_t n = 0, len;
    int rc = read_u64(c, in, &pos, deadline_ms, &n, err);
    if (rc == 0 && n > MAX_KEYS)
        return stream_die(c, co_fail(err, -EPROTO,
                                     "the store has %llu keys: at most %llu can be listed",
                                     (unsigned long long)n, (unsigned long long)MAX_KEYS));
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        rc = read_u64(c, in, &pos, deadline_ms, &len, err);
        if (rc == 0 && (pos > MAX_ANSWER_BYTES || len > MAX_ANSWER_BYTES - pos))
            return stream_die(c,
                              co_fail(err, -EPROTO, "the names of the store's keys exceed 1 GiB"));
        if (rc == 0) {
            pos += (size_t)len;
            rc = stream_fill(c, in, pos, deadline_ms, err);
        }
    }
    if (rc == 0)
        *ret_n = n;
    return rc;
}

static int compare_keys(const void *a, const void *b)
{
    const struct client_key *x = a, *y = b;
    size_t len = x->len < y->len ? x->len : y->len;
    int order = len > 0 ? memcmp(x->at, y->at, len) : 0;
    return order != 0 ? order : (x->len > y->len) - (x->len < y->len);
}

int client_list_keys(struct store_client *c, uint64_t deadline_ms, struct client_keys *ret_keys,
                     struct co_error *err)
{
    uint8_t op = WIRE_LIST_KEYS;
    struct iovec v = {&op, 1};
    struct co_buf in = {0};
    struct client_keys k = {0};
    uint64_t n = 0;
    int rc = stream_send(c, &v, 1, deadline_ms, err);
    if (rc == 0)
        rc = receive_answer(c, &in, deadline_ms, &n, err);
    if (rc == 0 && (k.keys = calloc(n > 0 ? n : 1, sizeof *k.keys)) == NULL)
        rc = co_fail(err, -ENOMEM, "out of memory");
    if (rc != 0) {
        co_buf_fini(&in);
        return rc;
    }
    k.bytes = in.data; /* nothing was consumed: the answer begins at its first byte */
    const uint8_t *at = k.bytes + 8;
    for (; k.n < n; k.n++) {
        k.keys[k.n] = (struct client_key){at + 8, (size_t)wire_get_u64(at)};
        at += 8 + k.keys[k.n].len;
    }
    qsort(k.keys, k.n, sizeof *k.keys, compare_keys);
    *ret_keys = k;
    return 0;
}

void client_keys_fini(struct client_keys *k)
{
    free(k->keys);
    free(k->bytes);
    *k = (struct client_keys){0};
}
