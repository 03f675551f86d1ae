/* conn.h - one connection: libuv around a session.
 *
 * Bytes are read into a buffer that all connections share and parsed where they lie; only what is
 * left of an incomplete request is kept. Replies gather until the loop's turn is over and go out in
 * one write. A client whose replies pile up is not read from, nor is one that has had its share of
 * a turn of the loop: those wait in a queue of their own, and all other connections are served
 * first.
 *
 * Where other protocols are served on the same port, the first bytes are looked at, and a
 * connection that is not for the store is handed over; after them, and where there is only the
 * store, that costs nothing. A connection without them is a newcomer (newcomers.h): it keeps no
 * other one out. */
#ifndef DDP_RENDEZVOUS_SERVER_CONN_H
#define DDP_RENDEZVOUS_SERVER_CONN_H

#include "rendezvous/net/newcomers.h"
#include "rendezvous/store/session.h"

#include <sys/types.h>
#include <uv.h>

struct co_error;
struct conn; /* opaque */

/* What a connection speaks. A store's client begins with an opcode, which is a small number; HTTP
 * with the name of a method in capitals; a control connection with PROTOCOL_CONTROL_PREFACE. */
enum protocol {
    PROTOCOL_UNDECIDED, /* more bytes are needed */
    PROTOCOL_STORE,     /* also anything unknown: the store reports what is wrong with it */
    PROTOCOL_HTTP,
    PROTOCOL_CONTROL,
};

#define PROTOCOL_CONTROL_PREFACE "DDP1"

/* Pure.
 *
 * bytes   all that came so far; at most the first four are read */
enum protocol conn_protocol(const uint8_t *bytes, size_t len);

/* Whose a connection is, as far as its addresses and the kernel show. */
struct conn_origin {
    bool is_trusted;    /* a process of our own user or root on this machine, or a listed address */
    bool is_other_user; /* a process of this machine that the store does not serve */
    uid_t uid;          /* is_other_user: its user */
};

enum { CONN_SCRATCH_BYTES = 256 << 10 };

/* What the connections of a server share. Filled by the server, used by conn.c. */
struct conn_host {
    struct session_host sessions; /* on_output = conn_on_output */
    uv_loop_t *loop;
    uint8_t *scratch; /* CONN_SCRATCH_BYTES to read into */
    uint64_t mid_frame_ms;
    uint64_t max_buffer_bytes; /* what all connections together may hold unread and unsent */
    uint64_t n_buffer_bytes;   /* what they do hold */
    uint32_t n_conns;          /* including those in mid-close */
    uint32_t n_closing;        /* which are so many */
    uint32_t n_clients;        /* those that turned out to be for the store, and are open */
    uint32_t max_clients;      /* one more is dropped; 0: this is not a store, and a connection must
                                  send its first bytes within mid_frame_ms */
    uint32_t max_conns;        /* with one more, a newcomer is dropped */
    struct newcomers newcomers;          /* connections whose first bytes have not arrived */
    struct conn *first;                  /* of all that are open */
    struct conn *first_unsent;           /* of those that have something to send */
    struct conn *first_late, *last_late; /* connections that had their share of a turn, oldest
                                            first */

    /* A client was dropped for a reason of its own making. Must not close the server. */
    void (*on_dropped)(struct conn_host *h, const char *text);
    /* A connection is gone, and n_conns smaller. */
    void (*on_gone)(struct conn_host *h);

    /* A connection that is not for the store: takes its descriptor over, which the store's side has
     * let go of. The bytes were read from it already, and are lent. NULL: all are for the store. */
    void (*on_foreign)(struct conn_host *h, enum protocol protocol, int fd,
                       const struct conn_origin *origin, const uint8_t *bytes, size_t len);
};

/* Take the next connection off the listener. It is not read from before conn_start().
 *
 * ret_conn   closes itself when its client goes, or conn_close()
 * returns    0, -ENOMEM, -errno of accept */
int conn_accept(struct conn_host *h, uv_stream_t *listener, struct conn **ret_conn);

/* May drop a connection, this one or another, if there are too many. */
void conn_start(struct conn *c, const struct sockaddr_storage *from,
                const struct conn_origin *origin);

const uv_tcp_t *conn_tcp(const struct conn *c);
uint64_t conn_since_ms(const struct conn *c);       /* as uv_now(): it was accepted */
const struct conn *conn_next(const struct conn *c); /* after host->first; NULL: no more */

/* Report the reason to on_dropped, naming the client, and close. */
__attribute__((format(printf, 2, 3))) void conn_drop(struct conn *c, const char *format, ...);
void conn_drop_other_user(struct conn *c, uid_t uid);
void conn_close(struct conn *c); /* again is fine, until on_gone */

/* Send what has gathered; to be called once each turn of the loop, before it goes to sleep. */
void conn_flush_all(struct conn_host *h);

/* Continue with connections that asked for more than their share of a turn (see session.h), some of
 * them per call, so that those that ask for little need not wait for them. Call it once each turn.
 * While there are any, h->first_late is not NULL, and the loop must not sleep. */
void conn_serve_late(struct conn_host *h);

void conn_on_output(struct session *s); /* for struct session_host */

#endif
