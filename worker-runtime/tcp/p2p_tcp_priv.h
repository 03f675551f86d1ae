/* p2p_tcp_priv.h - what p2p_tcp.c and p2p_tcp_io.c share: what is on the wire, and what
 * is known of each peer. */
#ifndef DDP_WORKER_RUNTIME_TCP_P2P_TCP_PRIV_H
#define DDP_WORKER_RUNTIME_TCP_P2P_TCP_PRIV_H

#include "net.h"

#include <pthread.h>

enum { SHORT_BYTES = 4096, NET_SLOTS = 64 };

enum kind {
    KIND_SHORT = 1,
    KIND_LONG,
    KIND_DATA,
    KIND_PLEASE,
    KIND_TAKEN,
    KIND_LEFT,
    KIND_BROKEN, /* struct net_abort follows */
    KIND_END
};
#define MESSAGE_MAGIC 0x4d504444u /* "DDPM" */

struct head { /* 40 bytes */
    uint32_t magic, kind;
    uint32_t seq;
    int32_t tag;
    uint32_t dtype, padding_;
    uint64_t count, bytes; /* bytes: that follow */
};

struct outgoing { /* to be written */
    struct outgoing *next;
    struct head head;
    size_t n_gone;
    const uint8_t *data;     /* own copy after this, or a message's memory */
    struct message *message; /* done once this is written; NULL */
    uint8_t bytes[];
};

struct arrived { /* not received yet */
    struct arrived *next;
    struct head head;
    uint8_t bytes[];
};

struct peer {
    struct outgoing *first_out, **last_out;
    struct arrived *first_in, **last_in;
    unsigned n_in;             /* of them */
    uint32_t next_seq;         /* of messages to it */
    unsigned n_under_way;      /* sent and not received */
    struct head head;          /* being read */
    size_t n_here;             /* bytes of it, and of what follows */
    uint8_t *into;             /* where those go */
    struct arrived *reading;   /* a short one, owned */
    struct message *receiving; /* a long one */
    bool has_left, is_missed;  /* is_missed: without a reason */
    bool was_informed;         /* why the job broke: nothing more is sent */
    uint64_t gone_ms;          /* since when it takes no connections, or ended one; 0: it does */
};

struct p2p_tcp {
    struct net *net;
    struct net_links *links; /* the group's */
    pthread_mutex_t mutex;   /* guards what follows, and the links */
    struct message *first, **last;
    struct pollfd *poll;
    struct peer peer[]; /* by position */
};

enum stage { STAGE_NEW, STAGE_ANNOUNCED, STAGE_DATA };

static inline size_t p2p_tcp_bytes(const struct message *m)
{
    return m->count * ddp_dtype_size(m->dtype);
}

static inline unsigned p2p_tcp_position(const struct p2p_tcp *ms, const struct message *m)
{
    return ms->net->map.position_of[m->peer];
}

/* --- p2p_tcp_io.c ----------------------------------------------------------------------------- */

/* Have something written: a head, and space for `copied` bytes after it.
 *
 * m         what it is about; NULL
 * returns   NULL: out of memory; else it is the peer's */
struct outgoing *p2p_tcp_io_put(struct peer *to, enum kind kind, const struct message *m,
                                uint32_t seq, size_t copied);
/* Write what is to be written, and can be now. returns 0; -errno of the connection */
int p2p_tcp_io_write(struct p2p_tcp *ms, unsigned p);
/* Read what is there: short messages go to the peer's list, the bytes of long ones to where they
 * are wanted.
 *
 * returns   0 nothing more is there; -EIO it sent something that is not a message; -ENOMEM; -errno
 *           of the connection */
int p2p_tcp_io_read(struct p2p_tcp *ms, unsigned p);
void p2p_tcp_io_free(struct peer *p); /* what it holds */

/* A message is done, and its owner's again. code: 0 or -errno */
void p2p_tcp_io_finish(struct p2p_tcp *ms, struct message *m, int code);

#endif
