/* frame.h - what ranks send each other on the connections of a group's collectives, besides the
 * bytes of a call. It travels as it is: a hello has shown before that both sides are the same
 * version on machines of one byte order. */
#ifndef DDP_WORKER_RUNTIME_TCP_FRAME_H
#define DDP_WORKER_RUNTIME_TCP_FRAME_H

#include "worker-runtime/core/call.h"

enum frame_kind {
    FRAME_CALL = 1, /* an exchange opens: its bytes follow on this connection */
    FRAME_LEFT,     /* this rank leaves in good order */
    FRAME_BROKEN,   /* the job is broken: struct net_abort follows */
    FRAME_STRIPED,  /* an exchange opens: its bytes go in stripes (stripes.h) */
    FRAME_STRIPE,   /* `bytes` bytes of stripe `number` follow */
    FRAME_ALL,      /* all stripes of the exchange have arrived here */
    FRAME_LOST,     /* this side gives lane `number` up, on which `bytes` stripes have arrived */
};
#define FRAME_MAGIC 0x46504444u /* "DDPF" */

struct frame { /* 56 bytes */
    uint32_t magic, kind;
    uint32_t number;   /* of the call among all calls; or as above */
    uint32_t exchange; /* of the exchange among those with this peer */
    struct call call;  /* of FRAME_CALL and FRAME_STRIPED */
    uint64_t bytes;    /* that follow; or as above */
    uint64_t expects;  /* bytes from the other side */
};
_Static_assert(sizeof(struct frame) == 56, "as agreed");

#endif
