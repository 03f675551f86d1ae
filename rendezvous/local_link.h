/* local_link.h - what a member and a roster in one process say to each other: a connection without
 * a socket.
 *
 * Messages are lent by who says them, until its next step, and an answer may come before all was
 * heard; so they are kept here as bytes, in order. The caller hands them over until neither side
 * has anything to hear:
 *
 *     put what the member says   TO_ROSTER
 *     while one is there         take it, step who hears it, put what that one says
 *
 * Pure; never fails but for want of memory. */
#ifndef DDP_RENDEZVOUS_LOCAL_LINK_H
#define DDP_RENDEZVOUS_LOCAL_LINK_H

#include "common/buf.h"
#include "control_wire.h"

enum local_link_end { LOCAL_LINK_TO_ROSTER, LOCAL_LINK_TO_MEMBER };

struct local_link { /* zeroed: empty */
    struct co_buf waiting[2];
    uint8_t *taken;                       /* owned; the bytes of the message that was taken last */
    struct control_wire_scratch *scratch; /* owned */
};

void local_link_fini(struct local_link *l);

/* returns   0; -ENOMEM; -EINVAL: the message breaks a bound of message.h */
int local_link_put(struct local_link *l, enum local_link_end to, const struct message *m,
                   struct co_error *err);

/* Take the oldest message to this end.
 *
 * ret       lent until the next take, at either end
 * returns   1: there was one; 0: there was none; -ENOMEM */
int local_link_take(struct local_link *l, enum local_link_end to, struct message *ret,
                    struct co_error *err);

#endif
