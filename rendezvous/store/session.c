/* session.c - requests as bytes in, replies as bytes out.
 *
 * Read session_feed() first. It parses one request (codec_next()), carries it out (request_run(),
 * do_request()) at the store of store.c, and appends the reply to `out`, until the bytes or the
 * session's share of the turn are used up. A request that waits has no reply yet: the store calls
 * session_on_wake() when the last of its keys exists. */
#include "session.h"

#include "common/error.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

void session_init(struct session *s, struct session_host *host)
{
    *s = (struct session){.host = host};
    codec_init(&s->codec, &host->limits);
}

void session_fini(struct session *s)
{
    store_wait_end(s->host->store, &s->waiter);
    co_buf_fini(&s->out);
}

void session_on_wake(struct store_waiter *w, void *arg)
{
    (void)arg;
    struct session *s = (struct session *)((char *)w - offsetof(struct session, waiter));
    if (codec_reply_u8(&s->out, WIRE_STOP_WAITING) < 0)
        s->no_memory = true; /* the client that stored the key is not to blame */
    s->host->on_output(s);
}

/* --- requests: each appends its reply, or returns why the connection must be closed --- */

static int no_memory(int rc, struct co_error *err)
{
    return rc == 0 ? 0 : co_fail(err, rc, "out of memory");
}

static int check_reply_bytes(const struct session *s, uint64_t n_bytes, struct co_error *err)
{
    if (n_bytes <= s->host->max_reply_bytes)
        return 0;
    return co_fail(err, -ENOSPC, "a reply of %" PRIu64 " bytes exceeds the maximum of %" PRIu64,
                   n_bytes, s->host->max_reply_bytes);
}

static int reply_value(struct session *s, struct wire_bytes value, struct co_error *err)
{
    int rc = check_reply_bytes(s, 8 + (uint64_t)value.len, err);
    return rc < 0 ? rc : no_memory(codec_reply_string(&s->out, value), err);
}

static int do_compare_set(struct session *s, const struct codec_request *r, struct co_error *err)
{
    struct wire_bytes value;
    int rc = store_compare_set(s->host->store, r->key, r->value, r->desired, &value, err);
    return rc < 0 ? rc : reply_value(s, value, err);
}

static int do_get(struct session *s, const struct codec_request *r, struct co_error *err)
{
    struct wire_bytes value;
    store_get(s->host->store, r->key, &value); /* a missing key is answered with an empty value */
    return reply_value(s, value, err);
}

static int do_add(struct session *s, const struct codec_request *r, struct co_error *err)
{
    int64_t value;
    int rc = store_add(s->host->store, r->key, r->number, &value, err);
    return rc < 0 ? rc : no_memory(codec_reply_i64(&s->out, value), err);
}

static uint64_t n_missing(const struct session *s, const struct codec_request *r)
{
    uint64_t n = 0;
    const uint8_t *at = r->items;
    for (uint64_t i = 0; i < r->n_items; i++)
        n += !store_has(s->host->store, codec_item_take(&at));
    return n;
}

static int do_check(struct session *s, const struct codec_request *r, struct co_error *err)
{
    uint8_t answer = n_missing(s, r) == 0 ? WIRE_READY : WIRE_NOT_READY;
    return no_memory(codec_reply_u8(&s->out, answer), err);
}

/* Takes the place of an older wait, if one is open. */
static int do_wait(struct session *s, const struct codec_request *r, struct co_error *err)
{
    struct store *store = s->host->store;
    store_wait_end(store, &s->waiter);
    uint64_t n = n_missing(s, r);
    if (n == 0)
        return no_memory(codec_reply_u8(&s->out, WIRE_STOP_WAITING), err);
    int rc = store_wait_begin(store, &s->waiter, (size_t)n, err);
    const uint8_t *at = r->items;
    for (uint64_t i = 0; rc == 0 && i < r->n_items; i++)
        rc = store_wait_add(store, &s->waiter, codec_item_take(&at), err);
    return rc;
}

static int do_delete(struct session *s, const struct codec_request *r, struct co_error *err)
{
    bool was_there = store_delete(s->host->store, r->key);
    return no_memory(codec_reply_i64(&s->out, was_there), err);
}

static int do_multi_get(struct session *s, const struct codec_request *r, struct co_error *err)
{
    uint64_t n_bytes = 0;
    struct wire_bytes value;
    const uint8_t *at = r->items;
    for (uint64_t i = 0; i < r->n_items; i++) {
        store_get(s->host->store, codec_item_take(&at), &value);
        n_bytes += 8 + value.len;
    }
    int rc = check_reply_bytes(s, n_bytes, err);
    if (rc == 0 && n_bytes > 0 && co_buf_room(&s->out, (size_t)n_bytes) == NULL)
        rc = no_memory(-ENOMEM, err);
    at = r->items;
    for (uint64_t i = 0; rc == 0 && i < r->n_items; i++) {
        store_get(s->host->store, codec_item_take(&at), &value);
        rc = no_memory(codec_reply_string(&s->out, value), err);
    }
    return rc;
}

static int do_multi_set(struct session *s, const struct codec_request *r, struct co_error *err)
{
    int rc = 0;
    const uint8_t *at = r->items;
    for (uint64_t i = 0; rc == 0 && i < r->n_items; i++) {
        struct wire_bytes key = codec_item_take(&at);
        rc = store_set(s->host->store, key, codec_item_take(&at), err);
    }
    return rc;
}

static int do_cancel_wait(struct session *s, struct co_error *err)
{
    store_wait_end(s->host->store, &s->waiter);
    return no_memory(codec_reply_u8(&s->out, WIRE_WAIT_CANCELED), err);
}

static int do_queue_pop(struct session *s, const struct codec_request *r, struct co_error *err)
{
    struct store *store = s->host->store;
    struct wire_bytes item;
    if (!store_queue_front(store, r->key, &item))
        return no_memory(codec_reply_i64(&s->out, 0), err);
    int rc = check_reply_bytes(s, 16 + (uint64_t)item.len, err);
    if (rc == 0)
        rc = no_memory(codec_reply_i64(&s->out, (int64_t)store_queue_len(store, r->key)), err);
    if (rc == 0)
        rc = no_memory(codec_reply_string(&s->out, item), err);
    if (rc == 0)
        store_queue_drop(store, r->key);
    return rc;
}

/* The memory is reserved: see do_list_keys(). */
static void list_key(void *arg, struct wire_bytes key)
{
    uint8_t **at = arg;
    wire_put_u64(*at, key.len);
    if (key.len > 0)
        memcpy(*at + 8, key.at, key.len);
    *at += 8 + key.len;
}

static int do_list_keys(struct session *s, struct co_error *err)
{
    const struct store *store = s->host->store;
    uint64_t n_bytes = 8 + 8 * store_n_keys(store) + store_n_key_bytes(store);
    int rc = check_reply_bytes(s, n_bytes, err);
    if (rc < 0)
        return rc;
    uint8_t *at = co_buf_room(&s->out, (size_t)n_bytes);
    if (at == NULL)
        return no_memory(-ENOMEM, err);
    wire_put_u64(at, store_n_keys(store));
    at += 8;
    store_each_key(store, list_key, &at);
    co_buf_added(&s->out, (size_t)n_bytes);
    return 0;
}

static int do_barrier(struct session *s, const struct codec_request *r, struct co_error *err)
{
    int rc = store_barrier(s->host->store, &s->waiter, r->key, r->number, err);
    if (rc < 0 || s->waiter.n_missing > 0)
        return rc;
    return no_memory(codec_reply_u8(&s->out, WIRE_STOP_WAITING), err);
}

static int do_request(struct session *s, const struct codec_request *r, struct co_error *err)
{
    struct store *store = s->host->store;
    s->host->n_requests[r->op]++;
    switch (r->op) {
    case WIRE_SET:
        return store_set(store, r->key, r->value, err);
    case WIRE_COMPARE_SET:
        return do_compare_set(s, r, err);
    case WIRE_GET:
        return do_get(s, r, err);
    case WIRE_ADD:
        return do_add(s, r, err);
    case WIRE_CHECK:
        return do_check(s, r, err);
    case WIRE_WAIT:
        return do_wait(s, r, err);
    case WIRE_GETNUMKEYS:
        return no_memory(codec_reply_i64(&s->out, (int64_t)store_n_keys(store)), err);
    case WIRE_DELETE_KEY:
        return do_delete(s, r, err);
    case WIRE_APPEND:
        return store_append(store, r->key, r->value, err);
    case WIRE_MULTI_GET:
        return do_multi_get(s, r, err);
    case WIRE_MULTI_SET:
        return do_multi_set(s, r, err);
    case WIRE_CANCEL_WAIT:
        return do_cancel_wait(s, err);
    case WIRE_PING:
        return no_memory(codec_reply_u32(&s->out, (uint32_t)r->number), err);
    case WIRE_QUEUE_PUSH:
        return store_queue_push(store, r->key, r->value, err);
    case WIRE_QUEUE_POP:
        return do_queue_pop(s, r, err);
    case WIRE_QUEUE_LEN:
        return no_memory(codec_reply_i64(&s->out, (int64_t)store_queue_len(store, r->key)), err);
    case WIRE_LIST_KEYS:
        return do_list_keys(s, err);
    case WIRE_BARRIER:
        return do_barrier(s, r, err);
    case WIRE_VALIDATE:
    case WIRE_N_OPS:
        break;
    }
    return 0; /* VALIDATE: the parser has looked at it */
}

/* --- the conversation --- */

/* Clients of A cannot cancel a wait: after a timeout they just continue, and would take a late
 * STOP_WAITING for the beginning of another reply. Those of B cancel before they send anything
 * else. */
static void forget_abandoned_wait(struct session *s)
{
    if (s->codec.dialect == CODEC_A || s->codec.dialect == CODEC_OLD)
        store_wait_end(s->host->store, &s->waiter);
}

enum { WORK_BYTES = 1024 }; /* are copied in about the time that a key is looked up in */

static uint64_t work_of(const struct session *s, const struct codec_request *r)
{
    if (r->op == WIRE_LIST_KEYS)
        return 1 + store_n_keys(s->host->store);
    return 1 + r->n_items + r->len_bytes / WORK_BYTES;
}

static int request_run(struct session *s, const struct codec_request *r, uint64_t work,
                       struct co_error *err)
{
    size_t out_before = co_buf_len(&s->out);
    s->n_work += work;
    forget_abandoned_wait(s);
    int rc = do_request(s, r, err);
    s->n_work += (co_buf_len(&s->out) - out_before) / WORK_BYTES;
    return rc;
}

static enum session_state be_late(struct session *s)
{
    s->was_late = true;
    return SESSION_LATE;
}

/* The bytes before *ret_used are done. The caller feeds those after it again, with what follows
 * them. A request runs only if the turn has enough work left for it, so that no client holds up the
 * others; a request that costs more than a whole turn would then never run. Therefore the first
 * request after SESSION_LATE runs whatever it costs. Output above the high-water mark stops the
 * session (SESSION_CHOKED) before the next request, not within one. */
int session_feed(struct session *s, const uint8_t *bytes, size_t len, size_t *ret_used,
                 struct co_error *err)
{
    uint64_t max_work = s->was_late ? UINT64_MAX : s->host->max_work; /* the first goes anyway */
    s->was_late = false;
    s->n_work = 0;
    *ret_used = 0;
    for (;; max_work = s->host->max_work) {
        if (s->no_memory)
            return co_fail(err, -ENOMEM, "out of memory");
        if (co_buf_len(&s->out) >= s->host->high_water_bytes)
            return SESSION_CHOKED;
        if (*ret_used == len)
            return SESSION_IDLE;
        if (s->n_work >= max_work)
            return be_late(s);
        struct codec_request request;
        int rc = codec_next(&s->codec, bytes + *ret_used, len - *ret_used, &request, err);
        if (rc == CODEC_MORE)
            return SESSION_MORE;
        if (rc == CODEC_AMBIGUOUS)
            return SESSION_AMBIGUOUS;
        if (rc < 0)
            return rc;
        uint64_t work = work_of(s, &request);
        if (work > max_work - s->n_work)
            return be_late(s); /* it will be parsed again, from its first byte */
        rc = request_run(s, &request, work, err);
        if (rc < 0)
            return rc;
        *ret_used += request.len_bytes;
    }
}

void session_decide_a(struct session *s)
{
    codec_decide_a(&s->codec);
}
