/* transport_tcp_priv.h - what the files of an exchange share: transport_tcp.c has the loop, the
 * bytes on one connection, and how a rank leaves; transport_tcp_lanes.c the bytes on several
 * connections; transport_tcp_end.c how an exchange fails. */
#ifndef DDP_WORKER_RUNTIME_TCP_TRANSPORT_TCP_PRIV_H
#define DDP_WORKER_RUNTIME_TCP_TRANSPORT_TCP_PRIV_H

#include "frame.h"
#include "net.h"
#include "straggler.h"

struct direction {
    size_t i; /* the piece that goes, or is waited for */
    struct tcp_piece piece;
    bool has_piece, is_done;
    size_t n_frame; /* bytes of the frame that went */
    size_t n_piece; /* and of the piece */
    struct frame frame;
    uint64_t total; /* bytes of the exchange */
};

struct tcp_lanes; /* transport_tcp_lanes.c */

struct stream { /* to and from a peer */
    uint32_t n_exchanges;
    bool is_blocked; /* its socket takes no more now */
    bool is_striped; /* the open exchange is */
    struct direction out, in;
    struct tcp_lanes *lanes; /* owned; NULL: no exchange was striped yet */
};

struct transport_tcp {
    struct transport_tcp_opts opts;
    const struct tcp_plan *plan;
    struct call call;
    uint32_t number;
    struct straggler late; /* since the last byte from anybody */
    uint64_t spin_ns;      /* how long it seems worth to spin */
    bool has_given_up;     /* and sent the reason */
    bool has_warned;       /* people, which path does not work */
    bool is_out_of_memory; /* the exchange could not be opened */
    uint64_t tell_ms;      /* when it is looked for one next */
    struct pollfd *poll;
    const struct net_member **who; /* n: to list those who are late */
    struct stream stream[];        /* of each rank of the group */
};

/* All of it has gone, or come. */
static inline bool tcp_is_idle(const struct direction *d)
{
    return d->is_done && d->n_frame == sizeof d->frame;
}

/* --- transport_tcp_end.c ---------------------------------------------------------------------- */

int tcp_fail_left(const struct transport_tcp *t, unsigned peer, struct co_error *err);
/* It went without a message. Other ranks may know the cause of it, and are about to report it. */
int tcp_fail_gone(const struct transport_tcp *t, unsigned peer, int code, struct co_error *err);
/* The other side left since the job is broken, and sends the reason.
 *
 * here   what came together with the frame: n_here bytes */
int tcp_fail_broken(const struct transport_tcp *t, unsigned peer, const void *here, size_t n_here,
                    struct co_error *err);
/* What came on a lane, or 0, the first connection, is not what the peer sent. */
int tcp_fail_forged(const struct transport_tcp *t, unsigned peer, unsigned lane,
                    struct co_error *err);
int tcp_fail_invalid(const struct transport_tcp *t, unsigned peer, struct co_error *err);

/* Something short that was sent in one go, of which n_here bytes have arrived.
 * returns whether all came in time */
bool tcp_receive_all(const struct transport_tcp *t, unsigned peer, void *at, size_t bytes,
                     size_t n_here);

/* The frame that opens an exchange has come.
 *
 * after     what came after it: in.n_piece bytes
 * returns   0; -errno */
int tcp_check_frame(const struct transport_tcp *t, unsigned p, const void *after,
                    struct co_error *err);

void tcp_tell_cut(struct transport_tcp *t);
/* Something moved. */
void tcp_end_wait(struct transport_tcp *t);
/* The time is up, or it is time to ask. returns 0, -ETIMEDOUT */
int tcp_late_judge(struct transport_tcp *t, struct co_error *err);

/* --- transport_tcp_lanes.c -------------------------------------------------------------------- */

/* Whether an exchange of so many bytes with a peer is striped: the same on both sides. */
bool tcp_lanes_pay(const struct transport_tcp *t, unsigned peer, uint64_t out, uint64_t in);
/* Open the exchange of t->plan with its p-th peer. returns 0, -ENOMEM */
int tcp_lanes_begin(struct transport_tcp *t, unsigned p);
/* returns   0, -errno; *ret_moved becomes true if bytes went or came */
int tcp_lanes_advance(struct transport_tcp *t, unsigned p, bool *ret_moved, struct co_error *err);
/* In a wait: make lanes, and find those that do not work any more. returns 0, -ENOMEM */
int tcp_lanes_look(struct transport_tcp *t, unsigned p, struct co_error *err);
size_t tcp_lanes_watch(const struct transport_tcp *t, unsigned p, struct pollfd *ret);
/* The peer gave a lane up, and this rank learns it after the exchange. returns whether it may */
bool tcp_lanes_hear_lost(const struct stream *s, const struct frame *f);
/* Whether the first connection is between two frames of a striped exchange. */
bool tcp_lanes_is_between(const struct stream *s);
void tcp_lanes_destroy(struct tcp_lanes *lanes); /* NULL is fine */

#endif
