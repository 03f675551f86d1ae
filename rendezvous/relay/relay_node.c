/* relay_node.c - clients, their places and windows, and the frames for the store end.
 *
 * Read relay_node_take() and relay_node_put() first. A client's number is its place in r->clients.
 * The place is free again when both ends have sent CLOSE: until then a record of the old client may
 * be on its way, which must not reach the next one. put_next() writes what a client has to send;
 * its order is the order of the conversation.
 *
 * Invariant: c->credit and the bytes that were pushed and are not covered by a CREDIT yet are the
 * window together; the same holds for c->allowed and the other direction. Neither end can make the
 * other hold more. */
#include "relay_node.h"

#include "common/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

enum {
    QUANTUM_BYTES = 8192, /* of one client, before others have their turn */
    FIRST_PLACES = 16,
};

enum state {
    STATE_OPEN,
    STATE_LEAVING, /* sends nothing more; what it has sent is to be passed on, then CLOSE */
    STATE_LEFT,    /* CLOSE is sent, that of the store has not come */
    STATE_ENDED,   /* CLOSE of the store has come, ours is to be sent */
    STATE_GONE,    /* both: the place is free, and the caller has not released it yet */
};

struct relay_client {
    struct relay_node *node; /* borrowed */
    void *user;
    uint32_t id;
    enum state state;
    uint32_t credit;  /* how much it may still push */
    uint32_t allowed; /* how much the store may still send to it */
    uint32_t taken;   /* by the client, and not reported by CREDIT yet */
    bool is_introduced;
    bool is_ended; /* as relay_client_is_ended() */
    bool is_released;
    bool is_asked, is_quiet;
    bool is_due, is_unsent;      /* in these lists */
    struct co_buf in, out;       /* from the client, and for it */
    char text[RELAY_TEXT_BYTES]; /* cut by one byte at most */
    TAILQ_ENTRY(relay_client) all, due, unsent;
};

TAILQ_HEAD(client_list, relay_client);

struct relay_node {
    struct relay_node_limits limits;
    struct relay_client **clients; /* by number; NULL: free */
    uint32_t *free;                /* places below n_places that are free, the last one is next */
    uint32_t max_places, n_places, n_free;
    uint64_t n_in_bytes, n_out_bytes; /* of all clients */
    struct client_list all, due, unsent;
};

int relay_node_create(const struct relay_node_limits *limits, struct relay_node **ret,
                      struct co_error *err)
{
    if (limits->max_clients < 1 || limits->max_clients > RELAY_MAX_CLIENTS ||
        limits->window_bytes < 2 || limits->window_bytes > INT32_MAX || limits->max_bytes < 1)
        return co_fail(err, -EINVAL, "invalid limits of a relay");
    struct relay_node *r = calloc(1, sizeof *r);
    if (r == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    r->limits = *limits;
    TAILQ_INIT(&r->all);
    TAILQ_INIT(&r->due);
    TAILQ_INIT(&r->unsent);
    *ret = r;
    return 0;
}

uint32_t relay_node_n_clients(const struct relay_node *r)
{
    return r->n_places - r->n_free;
}

uint64_t relay_node_n_bytes(const struct relay_node *r)
{
    return r->n_in_bytes + r->n_out_bytes;
}

/* --- lists --- */

static void mark_due(struct relay_client *c)
{
    if (c->is_due || c->is_released)
        return;
    c->is_due = true;
    TAILQ_INSERT_TAIL(&c->node->due, c, due);
}

static void mark_unsent(struct relay_client *c)
{
    if (c->is_unsent)
        return;
    c->is_unsent = true;
    TAILQ_INSERT_TAIL(&c->node->unsent, c, unsent);
}

static void unlist(struct relay_client *c)
{
    if (c->is_due)
        TAILQ_REMOVE(&c->node->due, c, due);
    if (c->is_unsent)
        TAILQ_REMOVE(&c->node->unsent, c, unsent);
    c->is_due = c->is_unsent = false;
}

struct relay_client *relay_node_next_due(struct relay_node *r)
{
    struct relay_client *c = TAILQ_FIRST(&r->due);
    if (c == NULL)
        return NULL;
    TAILQ_REMOVE(&r->due, c, due);
    c->is_due = false;
    return c;
}

/* --- bytes --- */

/* Where all clients together were at the bound, those with space may be read from again. */
static void in_consume(struct relay_client *c, size_t n)
{
    struct relay_node *r = c->node;
    const bool was_full = r->n_in_bytes >= r->limits.max_bytes;
    co_buf_consume(&c->in, n);
    r->n_in_bytes -= n;
    if (!was_full || r->n_in_bytes >= r->limits.max_bytes)
        return;
    struct relay_client *other;
    TAILQ_FOREACH(other, &r->all, all)
    mark_due(other);
}

static void in_discard(struct relay_client *c)
{
    in_consume(c, co_buf_len(&c->in));
    co_buf_fini(&c->in);
}

/* The store needs credit only as long as it is to send. */
static bool owes_credit(const struct relay_client *c)
{
    return c->state <= STATE_LEAVING && c->taken >= c->node->limits.window_bytes / 2;
}

static void count_taken(struct relay_client *c, size_t n)
{
    c->taken += (uint32_t)n;
    if (owes_credit(c))
        mark_unsent(c);
}

static void out_discard(struct relay_client *c)
{
    const size_t n = co_buf_len(&c->out);
    c->node->n_out_bytes -= n;
    co_buf_fini(&c->out);
    count_taken(c, n);
}

/* --- the end of a client --- */

static void client_free(struct relay_client *c)
{
    in_discard(c);
    out_discard(c);
    unlist(c); /* last: discarding may list it */
    TAILQ_REMOVE(&c->node->all, c, all);
    free(c);
}

void relay_node_destroy(struct relay_node *r)
{
    if (r == NULL)
        return;
    struct relay_client *c;
    while ((c = TAILQ_FIRST(&r->all)) != NULL)
        client_free(c);
    free(r->clients);
    free(r->free);
    free(r);
}

/* Both ends have sent CLOSE. */
static void free_place(struct relay_client *c)
{
    struct relay_node *r = c->node;
    c->state = STATE_GONE;
    r->clients[c->id] = NULL;
    r->free[r->n_free++] = c->id;
    if (c->is_released)
        client_free(c);
}

static void client_end(struct relay_client *c, const char *text, size_t len)
{
    if (c->is_ended)
        return;
    c->is_ended = true;
    if (len >= sizeof c->text)
        len = sizeof c->text - 1;
    memcpy(c->text, text, len);
    mark_due(c);
}

/* End a client for a reason of this end. */
static void client_drop(struct relay_client *c, const char *text)
{
    client_end(c, text, strlen(text));
    in_discard(c);
    out_discard(c);
    relay_client_leave(c);
}

/* A client that does not read its replies must not cost the others theirs. */
static void drop_largest(struct relay_node *r)
{
    struct relay_client *c, *largest = TAILQ_FIRST(&r->all);
    TAILQ_FOREACH(c, &r->all, all)
    if (co_buf_len(&c->out) > co_buf_len(&largest->out))
        largest = c;
    char text[160];
    snprintf(text, sizeof text,
             "dropped with %zu bytes of replies unread: the clients of this node have %" PRIu64
             " (at most %" PRIu64 ")",
             co_buf_len(&largest->out), r->n_out_bytes, r->limits.max_bytes);
    client_drop(largest, text);
}

/* --- what the caller does with a client --- */

static int grow_places(struct relay_node *r)
{
    const uint32_t max = r->max_places == 0 ? FIRST_PLACES : 2 * r->max_places;
    struct relay_client **clients = reallocarray(r->clients, max, sizeof(struct relay_client *));
    if (clients == NULL)
        return -ENOMEM;
    r->clients = clients;
    uint32_t *free_places = reallocarray(r->free, max, sizeof *free_places);
    if (free_places == NULL)
        return -ENOMEM;
    r->free = free_places;
    r->max_places = max;
    return 0;
}

int relay_node_open(struct relay_node *r, void *user, struct relay_client **ret,
                    struct co_error *err)
{
    if (relay_node_n_clients(r) >= r->limits.max_clients)
        return co_fail(err, -EUSERS, "refused: %" PRIu32 " clients are connected, the maximum",
                       r->limits.max_clients);
    if (r->n_free == 0 && r->n_places == r->max_places && grow_places(r) < 0)
        return co_fail(err, -ENOMEM, "out of memory");
    struct relay_client *c = calloc(1, sizeof *c);
    if (c == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    c->node = r;
    c->user = user;
    c->id = r->n_free > 0 ? r->free[--r->n_free] : r->n_places++;
    c->credit = c->allowed = r->limits.window_bytes;
    r->clients[c->id] = c;
    TAILQ_INSERT_TAIL(&r->all, c, all);
    mark_unsent(c);
    *ret = c;
    return 0;
}

void *relay_client_user(const struct relay_client *c)
{
    return c->user;
}

size_t relay_client_space(const struct relay_client *c)
{
    const struct relay_node *r = c->node;
    if (c->state != STATE_OPEN || r->n_in_bytes >= r->limits.max_bytes)
        return 0;
    const uint64_t n_left = r->limits.max_bytes - r->n_in_bytes;
    return c->credit < n_left ? c->credit : (size_t)n_left;
}

int relay_client_push(struct relay_client *c, const uint8_t *bytes, size_t len)
{
    if (len > relay_client_space(c))
        return -EINVAL;
    if (co_buf_append(&c->in, bytes, len) < 0)
        return -ENOMEM;
    c->node->n_in_bytes += len;
    c->credit -= (uint32_t)len;
    c->is_asked = c->is_quiet = false;
    mark_unsent(c);
    return 0;
}

const struct co_buf *relay_client_replies(const struct relay_client *c)
{
    return &c->out;
}

void relay_client_sent(struct relay_client *c, size_t n)
{
    co_buf_consume(&c->out, n);
    c->node->n_out_bytes -= n;
    if (co_buf_len(&c->out) == 0)
        co_buf_fini(&c->out); /* most clients are silent most of the time */
    count_taken(c, n);
}

bool relay_client_is_asked(const struct relay_client *c)
{
    return c->is_asked;
}

void relay_client_quiet(struct relay_client *c)
{
    if (!c->is_asked)
        return;
    c->is_asked = false;
    c->is_quiet = true;
    mark_unsent(c);
}

bool relay_client_is_ended(const struct relay_client *c, const char **ret_text)
{
    *ret_text = c->text;
    return c->is_ended;
}

void relay_client_leave(struct relay_client *c)
{
    if (c->state != STATE_OPEN)
        return;
    c->state = STATE_LEAVING;
    c->is_asked = c->is_quiet = false;
    mark_unsent(c);
}

void relay_client_release(struct relay_client *c)
{
    relay_client_leave(c);
    out_discard(c);
    if (c->is_due)
        TAILQ_REMOVE(&c->node->due, c, due);
    c->is_due = false;
    c->is_released = true;
    if (c->state == STATE_GONE)
        client_free(c);
}

/* --- frames from the store --- */

static int take_data(struct relay_client *c, const struct relay_record *m, struct co_error *err)
{
    struct relay_node *r = c->node;
    if (m->number > c->allowed)
        return co_fail(err, -EPROTO,
                       "a relay frame has %" PRIu32 " bytes for a client: its credit is %" PRIu32,
                       m->number, c->allowed);
    c->allowed -= m->number;
    if (c->is_released || c->is_ended) {
        count_taken(c, m->number);
        return 0;
    }
    if (co_buf_append(&c->out, m->bytes, m->number) < 0) {
        count_taken(c, m->number);
        client_drop(c, "out of memory");
        return 0;
    }
    r->n_out_bytes += m->number;
    mark_due(c);
    while (r->n_out_bytes > r->limits.max_bytes)
        drop_largest(r);
    return 0;
}

static int take_credit(struct relay_client *c, uint32_t number, struct co_error *err)
{
    if (number > c->node->limits.window_bytes - c->credit)
        return co_fail(err, -EPROTO, "a relay frame gives a client credit beyond its window");
    c->credit += number;
    mark_due(c);
    return 0;
}

static void take_close(struct relay_client *c, const struct relay_record *m)
{
    client_end(c, (const char *)m->bytes, m->number);
    if (c->state == STATE_LEFT) {
        free_place(c);
        return;
    }
    c->state = STATE_ENDED;
    c->is_asked = c->is_quiet = false;
    in_discard(c);
    mark_unsent(c);
}

static int take_record(struct relay_node *r, const struct relay_record *m, struct co_error *err)
{
    struct relay_client *c = m->client < r->n_places ? r->clients[m->client] : NULL;
    if (c == NULL || c->state == STATE_ENDED)
        return co_fail(err, -EPROTO, "a relay frame names client %" PRIu32 ", which is not open",
                       m->client);
    if (m->kind == RELAY_DATA)
        return take_data(c, m, err);
    if (m->kind == RELAY_CREDIT)
        return take_credit(c, m->number, err);
    if (m->kind == RELAY_CLOSE)
        take_close(c, m);
    else if (c->state == STATE_OPEN && co_buf_len(&c->in) == 0) {
        c->is_asked = true; /* with bytes on their way, it asks again, if need be */
        mark_due(c);
    }
    return 0;
}

int relay_node_take(struct relay_node *r, const uint8_t *frame, size_t len, struct co_error *err)
{
    const uint8_t *at = frame, *end = frame + len;
    struct relay_record m;
    int rc;
    while ((rc = relay_wire_next(RELAY_STORE, &at, end, &m, err)) > 0) {
        rc = take_record(r, &m, err);
        if (rc < 0)
            return rc;
    }
    return rc;
}

/* --- frames for the store --- */

static void put(struct relay_frame *f, const struct relay_client *c, enum relay_kind kind,
                uint32_t number, const uint8_t *bytes)
{
    const struct relay_record m = {kind, c->id, number, bytes};
    relay_wire_put(f, &m);
}

static uint32_t smallest(size_t a, size_t b, size_t c)
{
    const size_t ab = a < b ? a : b;
    return (uint32_t)(ab < c ? ab : c);
}

/* One record, if the client has one to send. The order: nothing precedes OPEN, nothing follows
 * CLOSE, QUIET follows the bytes that came before the silence.
 *
 * returns   whether there may be another; false too after CLOSE, when c may be freed */
static bool put_next(struct relay_client *c, struct relay_frame *f)
{
    const uint32_t n = smallest(co_buf_len(&c->in), (size_t)relay_wire_space(f), QUANTUM_BYTES);
    if (!c->is_introduced) {
        put(f, c, RELAY_OPEN, 0, NULL);
        c->is_introduced = true;
    } else if (owes_credit(c)) {
        put(f, c, RELAY_CREDIT, c->taken, NULL);
        c->allowed += c->taken;
        c->taken = 0;
    } else if (n > 0) {
        put(f, c, RELAY_DATA, n, co_buf_bytes(&c->in));
        in_consume(c, n);
        if (co_buf_len(&c->in) == 0)
            co_buf_fini(&c->in);
    } else if (c->is_quiet) {
        put(f, c, RELAY_QUIET, 0, NULL);
        c->is_quiet = false;
    } else if (c->state == STATE_LEAVING) {
        put(f, c, RELAY_CLOSE, 0, NULL);
        c->state = STATE_LEFT;
        return false;
    } else if (c->state == STATE_ENDED) {
        put(f, c, RELAY_CLOSE, 0, NULL);
        free_place(c);
        return false;
    } else {
        return false;
    }
    return true;
}

void relay_node_put(struct relay_node *r, struct relay_frame *ret)
{
    struct relay_client *c;
    ret->len = 0;
    while (relay_wire_space(ret) > 0 && (c = TAILQ_FIRST(&r->unsent)) != NULL) {
        TAILQ_REMOVE(&r->unsent, c, unsent);
        c->is_unsent = false;
        if (c->state != STATE_LEFT && c->state != STATE_GONE && put_next(c, ret))
            mark_unsent(c);
    }
}
