/* session.h - one client's conversation with the store.
 *
 * Pure: bytes come in, replies gather in `out`, and the caller carries them (conn.c, or the fuzz
 * target). Requests run only when they are complete, each once, in order. */
#ifndef DDP_RENDEZVOUS_STORE_SESSION_H
#define DDP_RENDEZVOUS_STORE_SESSION_H

#include "codec.h"
#include "common/buf.h"
#include "store.h"

struct session;

/* What the sessions of a server share. */
struct session_host {
    struct store *store; /* borrowed; made with on_wake = session_on_wake */
    struct codec_limits limits;
    size_t high_water_bytes;         /* no further request runs while this much waits to be sent */
    uint64_t max_reply_bytes;        /* a longer reply costs the connection */
    uint64_t max_work;               /* of one session_feed(), see below; >= 1 */
    uint64_t n_requests[WIRE_N_OPS]; /* done so far; the sessions count */

    /* A reply was put into s->out by another session's request. Must not call the session. */
    void (*on_output)(struct session *s);
};

struct session {
    struct session_host *host; /* borrowed */
    struct codec codec;
    struct store_waiter waiter;
    struct co_buf out; /* replies; the caller consumes them */
    bool no_memory;    /* a reply was lost: the connection must go */
    bool was_late;     /* the last answer was SESSION_LATE */
    uint64_t n_work;   /* what the last session_feed() did, about */
};

enum session_state {
    SESSION_IDLE = 0,      /* all that came was done */
    SESSION_MORE = 1,      /* in the middle of a request */
    SESSION_AMBIGUOUS = 2, /* see codec.h: session_decide_a() when nothing comes for a while */
    SESSION_CHOKED = 3,    /* `out` is too full: try again when it was sent */
    SESSION_LATE = 4,      /* max_work is done, or the next request takes more than is left of it:
                              try again when others had their turn */
};

void session_init(struct session *s, struct session_host *host);

/* Forget the client: it waits for nothing any more. What it stored stays. */
void session_fini(struct session *s);

/* Run the complete requests among these bytes, but not for long: work is counted in units of very
 * roughly 0.1 microseconds, a request and each of its keys being one. A request that alone takes
 * more than max_work, as a list of very many keys, is run after one SESSION_LATE, and then nothing
 * else in that call.
 *
 * bytes      what the last call did not take, and perhaps more
 * ret_used   how many were taken; always written
 * returns    an enum session_state, or what the connection must be closed for: -EPROTO bad bytes,
 *            -ENOSPC, -ENOMEM, -EINVAL and -ERANGE (an ADD to something else than a number) */
int session_feed(struct session *s, const uint8_t *bytes, size_t len, size_t *ret_used,
                 struct co_error *err);

void session_decide_a(struct session *s); /* then feed the same bytes again */

/* For store_create(). */
void session_on_wake(struct store_waiter *w, void *arg);

#endif
