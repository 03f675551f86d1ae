/* relay_store.c - sessions, their places and windows, and the frames for the node end.
 *
 * Read relay_store_take() and client_feed() first. The bytes of a DATA go to the client's session,
 * which runs the complete requests. follow_state() does what rendezvous/server/conn.c does for a
 * connection of its own, with credit in place of reading: a client that has had its share (late) or
 * whose replies pile up (choked) gets none. Replies stay in the session until relay_store_put().
 *
 * A client ends in client_end(): replies that credit covers are kept, the rest is dropped, and the
 * session is gone. Its place is free when both ends have sent CLOSE.
 *
 * Invariant: what a client has unread here is at most a request in progress and its window. */
#include "relay_store.h"

#include "common/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    QUANTUM_BYTES = 8192, /* of one client, before others have their turn */
    FIRST_PLACES = 16,
    LATE_WORK = 16384, /* of a call of relay_host_run_late(): some milliseconds */
    NOT_MID_REQUEST = 0,
};

enum state {
    STATE_OPEN,
    STATE_LEAVING, /* the node's CLOSE has come; requests that came before it still run */
    STATE_ENDING,  /* ended by this end: the last replies and CLOSE are to be sent */
    STATE_ENDED,   /* they are sent; the node's CLOSE has not come */
    STATE_LEFT,    /* the node's CLOSE has come; the last replies and ours are to be sent */
};

struct relay_session {
    struct session session; /* until client_end() */
    struct relay_store *link;
    uint32_t id;
    enum state state;
    uint32_t credit;    /* how much may be sent to the client */
    uint32_t allowed;   /* how much the node may still send */
    struct co_buf in;   /* of an incomplete request, and what could not run yet */
    struct co_buf last; /* replies that outlive the session */
    char *text;         /* why it was ended; NULL: "" */
    uint64_t mid_ms;    /* when its request must be complete; NOT_MID_REQUEST */
    uint64_t n_counted; /* of the host's n_buffer_bytes */
    bool grants, asks;  /* CREDIT, ASK are to be sent */
    bool is_ambiguous;  /* the session waits for session_decide_a() */
    bool is_cut;        /* replies were dropped: none may follow */
    bool is_choked, is_late, is_mid, is_unsent;
    TAILQ_ENTRY(relay_session) all, late, mid, unsent;
};

struct relay_store {
    struct relay_host *host; /* borrowed */
    void *user;
    struct relay_session **clients; /* by number; NULL: free */
    uint32_t max_places, n_places;
    struct relay_sessions all, unsent;
    bool is_ready; /* in the host's list */
    TAILQ_ENTRY(relay_store) links, ready;
};

static struct relay_session *client_of(struct session *s)
{
    return (struct relay_session *)((char *)s - offsetof(struct relay_session, session));
}

static bool has_session(const struct relay_session *c)
{
    return c->state <= STATE_LEAVING;
}

/* --- lists --- */

static void set_ready(struct relay_store *r, bool is_ready)
{
    if (r->is_ready == is_ready)
        return;
    r->is_ready = is_ready;
    if (is_ready)
        TAILQ_INSERT_TAIL(&r->host->ready, r, ready);
    else
        TAILQ_REMOVE(&r->host->ready, r, ready);
}

static void mark_unsent(struct relay_session *c)
{
    if (c->is_unsent)
        return;
    c->is_unsent = true;
    TAILQ_INSERT_TAIL(&c->link->unsent, c, unsent);
    set_ready(c->link, true);
}

static void unmark_unsent(struct relay_session *c)
{
    if (c->is_unsent)
        TAILQ_REMOVE(&c->link->unsent, c, unsent);
    c->is_unsent = false;
}

static void set_late(struct relay_session *c, bool is_late)
{
    if (c->is_late)
        TAILQ_REMOVE(&c->link->host->late, c, late);
    c->is_late = is_late;
    if (is_late)
        TAILQ_INSERT_TAIL(&c->link->host->late, c, late);
}

/* All have the same time, so that the list is in the order of their ends. */
static void set_mid_request(struct relay_session *c, uint64_t until_ms)
{
    if (c->is_mid)
        TAILQ_REMOVE(&c->link->host->mid, c, mid);
    c->is_mid = until_ms != NOT_MID_REQUEST;
    c->mid_ms = until_ms;
    if (c->is_mid)
        TAILQ_INSERT_TAIL(&c->link->host->mid, c, mid);
}

static void on_output(struct session *s)
{
    mark_unsent(client_of(s));
}

/* --- the end of a client --- */

static void client_free(struct relay_session *c)
{
    struct relay_store *r = c->link;
    if (has_session(c))
        session_fini(&c->session);
    unmark_unsent(c);
    set_late(c, false);
    set_mid_request(c, NOT_MID_REQUEST);
    r->host->n_buffer_bytes -= c->n_counted;
    r->host->n_clients--;
    r->clients[c->id] = NULL;
    TAILQ_REMOVE(&r->all, c, all);
    co_buf_fini(&c->in);
    co_buf_fini(&c->last);
    free(c->text);
    free(c);
}

/* Replies that credit covers outlive the session. After the first one that is cut, none is kept:
 * the client would take what follows for the rest of it. */
static void keep_last_replies(struct relay_session *c)
{
    struct co_buf *out = &c->session.out;
    const size_t n_left = c->is_cut ? 0 : c->credit - co_buf_len(&c->last);
    size_t n = co_buf_len(out);
    if (n > n_left) {
        n = n_left;
        c->is_cut = true;
    }
    if (co_buf_append(&c->last, co_buf_bytes(out), n) < 0)
        c->is_cut = true;
    co_buf_consume(out, co_buf_len(out));
}

/* A reason in printable characters, as relay_wire_next() wants it; without memory it is empty. */
static char *copy_text(const char *text)
{
    char *copy = strndup(text, RELAY_TEXT_BYTES);
    for (char *at = copy; at != NULL && *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
    return copy;
}

static void count_bytes(struct relay_session *c);

/* text   why this end ends it; NULL: the client has left */
static void client_end(struct relay_session *c, const char *text)
{
    if (!has_session(c))
        return;
    keep_last_replies(c);
    session_fini(&c->session);
    set_late(c, false);
    set_mid_request(c, NOT_MID_REQUEST);
    co_buf_fini(&c->in);
    c->text = text != NULL ? copy_text(text) : NULL;
    c->state = c->state == STATE_LEAVING ? STATE_LEFT : STATE_ENDING;
    c->grants = c->asks = c->is_choked = false;
    mark_unsent(c);
    count_bytes(c);
}

/* --- memory --- */

/* Most clients are silent most of the time, and there may be a million. */
static void trim(struct co_buf *b)
{
    if (co_buf_len(b) == 0)
        co_buf_fini(b);
}

static void count_bytes(struct relay_session *c)
{
    struct relay_host *h = c->link->host;
    trim(&c->in);
    trim(&c->last);
    if (has_session(c))
        trim(&c->session.out);
    const uint64_t n_out = has_session(c) ? c->session.out.cap : 0;
    const uint64_t n_bytes = c->in.cap + n_out + c->last.cap;
    h->n_buffer_bytes += n_bytes - c->n_counted; /* wraps, when it is less */
    c->n_counted = n_bytes;
}

/* One that is ended has no more than its window. */
static struct relay_session *find_largest(const struct relay_host *h)
{
    struct relay_session *largest = NULL, *c;
    struct relay_store *r;
    TAILQ_FOREACH(r, &h->links, links)
    TAILQ_FOREACH(c, &r->all, all)
    if (has_session(c) && (largest == NULL || c->n_counted > largest->n_counted))
        largest = c;
    return largest;
}

/* A client whose bytes pile up must not cost the others theirs. */
static void account(struct relay_session *c)
{
    struct relay_host *h = c->link->host;
    struct relay_session *largest;
    count_bytes(c);
    while (h->n_buffer_bytes > h->max_buffer_bytes && (largest = find_largest(h)) != NULL) {
        char text[256];
        snprintf(text, sizeof text,
                 "dropped with %" PRIu64 " bytes unsent or incomplete: all clients use %" PRIu64
                 " (at most %" PRIu64 "); raise --max-memory",
                 largest->n_counted, h->n_buffer_bytes, h->max_buffer_bytes);
        client_end(largest, text);
    }
}

/* --- requests --- */

/* As long as requests run, the node may fill the window again. Small grants would be a record for
 * each request. */
static void grant(struct relay_session *c)
{
    c->grants = c->link->host->window_bytes - c->allowed >= c->link->host->window_bytes / 2;
    if (c->grants)
        mark_unsent(c);
}

/* A request's time runs from its first byte, but not while the node gets no credit. */
static void follow_state(struct relay_session *c, enum session_state state, bool is_new_request,
                         uint64_t now_ms)
{
    c->is_choked = state == SESSION_CHOKED;
    set_late(c, state == SESSION_LATE);
    if (state != SESSION_MORE)
        set_mid_request(c, NOT_MID_REQUEST);
    else if (is_new_request || !c->is_mid)
        set_mid_request(c, now_ms + c->link->host->mid_request_ms);
    c->grants = false;
    if (!c->is_choked && !c->is_late)
        grant(c);
    c->is_ambiguous = c->asks = state == SESSION_AMBIGUOUS;
    if (c->asks)
        mark_unsent(c);
}

/* The node has sent CLOSE: what has run is all that can, unless the session has more
 * to do. The node returns no credit any more, so that replies beyond it are cut. */
static void follow_leaving(struct relay_session *c, enum session_state state)
{
    if (state == SESSION_CHOKED)
        keep_last_replies(c);
    if (state == SESSION_CHOKED || state == SESSION_LATE)
        set_late(c, true);
    else
        client_end(c, NULL);
}

/* returns   how many bytes were taken; the session may be gone afterwards */
static size_t client_feed(struct relay_session *c, const uint8_t *bytes, size_t len,
                          uint64_t now_ms)
{
    struct co_error err = {0};
    size_t n_used;
    const int state = session_feed(&c->session, bytes, len, &n_used, &err);
    if (co_buf_len(&c->session.out) > 0)
        mark_unsent(c);
    if (state < 0)
        client_end(c, err.text);
    else if (c->state == STATE_LEAVING)
        follow_leaving(c, (enum session_state)state);
    else
        follow_state(c, (enum session_state)state, n_used > 0, now_ms);
    return n_used;
}

static void feed_kept(struct relay_session *c, uint64_t now_ms)
{
    const size_t n_used = client_feed(c, co_buf_bytes(&c->in), co_buf_len(&c->in), now_ms);
    if (has_session(c))
        co_buf_consume(&c->in, n_used);
    account(c);
}

static void feed_more(struct relay_session *c, const uint8_t *bytes, size_t len, uint64_t now_ms)
{
    const bool runs = !c->is_choked && !c->is_late;
    const bool has_kept = co_buf_len(&c->in) > 0;
    const size_t n_used = runs && !has_kept ? client_feed(c, bytes, len, now_ms) : 0;
    if (has_session(c) && co_buf_append(&c->in, bytes + n_used, len - n_used) < 0)
        client_end(c, "out of memory");
    if (has_session(c) && runs && has_kept)
        feed_kept(c, now_ms);
    account(c);
}

/* --- the host --- */

void relay_host_init(struct relay_host *h)
{
    h->sessions.on_output = on_output;
    h->n_clients = 0;
    h->n_buffer_bytes = 0;
    TAILQ_INIT(&h->links);
    TAILQ_INIT(&h->ready);
    TAILQ_INIT(&h->late);
    TAILQ_INIT(&h->mid);
}

bool relay_host_run_late(struct relay_host *h, uint64_t now_ms)
{
    struct relay_session *c;
    for (uint64_t n_work = 0; n_work < LATE_WORK && (c = TAILQ_FIRST(&h->late)) != NULL;) {
        set_late(c, false);
        feed_kept(c, now_ms); /* puts it at the end of the line again, if there is more to do */
        n_work += has_session(c) ? c->session.n_work + 1 : 1;
    }
    return !TAILQ_EMPTY(&h->late);
}

uint64_t relay_host_deadline(const struct relay_host *h)
{
    const struct relay_session *c = TAILQ_FIRST(&h->mid);
    return c != NULL ? c->mid_ms : UINT64_MAX;
}

void relay_host_expire(struct relay_host *h, uint64_t now_ms)
{
    struct relay_session *c;
    while ((c = TAILQ_FIRST(&h->mid)) != NULL && c->mid_ms <= now_ms) {
        char text[160];
        snprintf(text, sizeof text,
                 "timed out after %" PRIu64
                 " ms waiting for the rest of a request: received %zu bytes",
                 h->mid_request_ms, co_buf_len(&c->in));
        client_end(c, text);
    }
}

/* --- links --- */

struct relay_store *relay_host_next_ready(struct relay_host *h)
{
    struct relay_store *r = TAILQ_FIRST(&h->ready);
    if (r != NULL)
        set_ready(r, false);
    return r;
}

void *relay_store_user(const struct relay_store *r)
{
    return r->user;
}

int relay_store_create(struct relay_host *h, void *user, struct relay_store **ret,
                       struct co_error *err)
{
    struct relay_store *r = calloc(1, sizeof *r);
    if (r == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    r->host = h;
    r->user = user;
    TAILQ_INIT(&r->all);
    TAILQ_INIT(&r->unsent);
    TAILQ_INSERT_TAIL(&h->links, r, links);
    *ret = r;
    return 0;
}

void relay_store_destroy(struct relay_store *r)
{
    if (r == NULL)
        return;
    struct relay_session *c;
    while ((c = TAILQ_FIRST(&r->all)) != NULL)
        client_free(c);
    set_ready(r, false);
    TAILQ_REMOVE(&r->host->links, r, links);
    free(r->clients);
    free(r);
}

/* --- frames from the node --- */

/* The number is that of a free place or of the next new one, so that a node cannot make the table
 * larger than its clients are many. */
static int make_place(struct relay_store *r, uint32_t id, struct co_error *err)
{
    if (id > r->n_places || (id < r->n_places && r->clients[id] != NULL))
        return co_fail(err, -EPROTO, "a relay frame opens client %" PRIu32 ", whose place is %s",
                       id, id < r->n_places ? "taken" : "beyond the next one");
    if (id < r->n_places)
        return 0;
    if (r->n_places == r->max_places) {
        const uint32_t max = r->max_places == 0 ? FIRST_PLACES : 2 * r->max_places;
        struct relay_session **clients =
            reallocarray(r->clients, max, sizeof(struct relay_session *));
        if (clients == NULL)
            return co_fail(err, -ENOMEM, "out of memory");
        r->clients = clients;
        r->max_places = max;
    }
    r->clients[r->n_places++] = NULL;
    return 0;
}

static int take_open(struct relay_store *r, uint32_t id, struct co_error *err)
{
    struct relay_host *h = r->host;
    int rc = make_place(r, id, err);
    if (rc < 0)
        return rc;
    struct relay_session *c = calloc(1, sizeof *c);
    if (c == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    c->link = r;
    c->id = id;
    c->credit = c->allowed = h->window_bytes;
    session_init(&c->session, &h->sessions);
    r->clients[id] = c;
    TAILQ_INSERT_TAIL(&r->all, c, all);
    h->n_clients++;
    if (h->n_clients > h->max_clients) {
        char text[80];
        snprintf(text, sizeof text, "refused: %" PRIu32 " clients are connected, the maximum",
                 h->max_clients);
        client_end(c, text);
    }
    return 0;
}

static int take_data(struct relay_session *c, const struct relay_record *m, uint64_t now_ms,
                     struct co_error *err)
{
    if (m->number > c->allowed)
        return co_fail(err, -EPROTO,
                       "a relay frame has %" PRIu32 " bytes from a client: its credit is %" PRIu32,
                       m->number, c->allowed);
    c->allowed -= m->number;
    if (c->state == STATE_OPEN) /* else it was ended when the node sent them */
        feed_more(c, m->bytes, m->number, now_ms);
    return 0;
}

static int take_credit(struct relay_session *c, uint32_t number, struct co_error *err)
{
    if (number > c->link->host->window_bytes - c->credit)
        return co_fail(err, -EPROTO, "a relay frame gives a client credit beyond its window");
    c->credit += number;
    mark_unsent(c);
    return 0;
}

static void take_quiet(struct relay_session *c, uint64_t now_ms)
{
    if (c->state != STATE_OPEN || !c->is_ambiguous) /* bytes were on their way */
        return;
    c->is_ambiguous = c->asks = false;
    session_decide_a(&c->session);
    feed_kept(c, now_ms);
}

static void take_close(struct relay_session *c)
{
    if (c->state == STATE_ENDED) {
        client_free(c);
    } else if (c->state == STATE_ENDING) {
        c->state = STATE_LEFT;
    } else {
        c->state = STATE_LEAVING;
        c->grants = c->asks = false;
        if (c->is_choked)
            set_late(c, true); /* it need not wait for credit any more */
        c->is_choked = false;
        if (!c->is_late)
            client_end(c, NULL);
    }
}

static int take_record(struct relay_store *r, const struct relay_record *m, uint64_t now_ms,
                       struct co_error *err)
{
    if (m->kind == RELAY_OPEN)
        return take_open(r, m->client, err);
    struct relay_session *c = m->client < r->n_places ? r->clients[m->client] : NULL;
    if (c == NULL || c->state == STATE_LEAVING || c->state == STATE_LEFT)
        return co_fail(err, -EPROTO, "a relay frame names client %" PRIu32 ", which is not open",
                       m->client);
    if (m->kind == RELAY_DATA)
        return take_data(c, m, now_ms, err);
    if (m->kind == RELAY_CREDIT)
        return take_credit(c, m->number, err);
    if (m->kind == RELAY_QUIET)
        take_quiet(c, now_ms);
    else
        take_close(c);
    return 0;
}

int relay_store_take(struct relay_store *r, const uint8_t *frame, size_t len, uint64_t now_ms,
                     struct co_error *err)
{
    const uint8_t *at = frame, *end = frame + len;
    struct relay_record m;
    int rc;
    while ((rc = relay_wire_next(RELAY_NODE, &at, end, &m, err)) > 0) {
        rc = take_record(r, &m, now_ms, err);
        if (rc < 0)
            return rc;
    }
    return rc;
}

/* --- frames for the node --- */

bool relay_store_has_output(const struct relay_store *r)
{
    return !TAILQ_EMPTY(&r->unsent);
}

static void put(struct relay_frame *f, const struct relay_session *c, enum relay_kind kind,
                uint32_t number, const void *bytes)
{
    const struct relay_record m = {kind, c->id, number, bytes};
    relay_wire_put(f, &m);
}

/* Those of a client that leaves are sent when all of its requests have run. */
static struct co_buf *replies_of(struct relay_session *c)
{
    return c->state == STATE_OPEN ? &c->session.out : &c->last;
}

static void put_replies(struct relay_session *c, uint32_t n, struct relay_frame *f)
{
    put(f, c, RELAY_DATA, n, co_buf_bytes(replies_of(c)));
    co_buf_consume(replies_of(c), n);
    c->credit -= n;
    if (c->is_choked && co_buf_len(&c->session.out) == 0) {
        c->is_choked = false;
        set_late(c, true); /* relay_host_run_late() continues with what was kept */
    }
    count_bytes(c);
}

static void put_close(struct relay_session *c, struct relay_frame *f)
{
    const char *text = c->text != NULL ? c->text : "";
    put(f, c, RELAY_CLOSE, (uint32_t)strlen(text), text);
    if (c->state == STATE_LEFT)
        client_free(c);
    else
        c->state = STATE_ENDED;
}

/* One record, if the client has one to send.
 *
 * returns   whether there may be another; false too after CLOSE, when c may be freed */
static bool put_next(struct relay_session *c, struct relay_frame *f)
{
    if (has_session(c) && c->session.no_memory)
        client_end(c, "out of memory");
    if (c->state == STATE_LEAVING || c->state == STATE_ENDED)
        return false;
    size_t n = co_buf_len(replies_of(c));
    n = n < c->credit ? n : c->credit;
    n = n < QUANTUM_BYTES ? n : QUANTUM_BYTES;
    n = n < (size_t)relay_wire_space(f) ? n : (size_t)relay_wire_space(f);
    if (c->grants) {
        const uint32_t number = c->link->host->window_bytes - c->allowed;
        put(f, c, RELAY_CREDIT, number, NULL);
        c->allowed += number;
        c->grants = false;
    } else if (n > 0) {
        put_replies(c, (uint32_t)n, f);
    } else if (c->asks) {
        put(f, c, RELAY_ASK, 0, NULL);
        c->asks = false;
    } else if (c->state != STATE_OPEN) {
        put_close(c, f);
        return false;
    } else {
        return false;
    }
    return true;
}

void relay_store_put(struct relay_store *r, struct relay_frame *ret)
{
    struct relay_session *c;
    ret->len = 0;
    while (relay_wire_space(ret) >= RELAY_TEXT_BYTES && (c = TAILQ_FIRST(&r->unsent)) != NULL) {
        unmark_unsent(c);
        if (put_next(c, ret))
            mark_unsent(c);
    }
}
