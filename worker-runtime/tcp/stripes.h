/* stripes.h - one large exchange with one peer over several connections, its lanes. Pure: no
 * socket, no clock.
 *
 * The pieces of the plan (net.h) are cut into stripes, which both sides number alike: so a stripe
 * is known by its number. The sender puts the next stripe on whichever lane has space; the receiver
 * stores each where it belongs, and reports pieces in their order, whatever the order of arrival.
 * Lanes 1, 2, ... carry stripes. Lane 0, the first connection, carries only what the two sides
 * report to each other, so that no stripe can delay it, and stripes once no other lane is left.
 *
 * Both sides close a lane that fails, for good: each sends LOST with the number of stripes
 * that arrived on it, and the other sends those after that again, on other lanes. For that the
 * memory of a stripe has to stay as it is until the receiver has reported that it has ALL. The
 * exchange is over when both sides have sent and received ALL.
 *
 * The memory of a stripe may still be in use (TCP_LATER). Its lane then waits. That blocks nothing,
 * as stripes follow each other on a lane in the order of their numbers, and that of the lowest one
 * is always free. Only stripes that are sent again break this order: from the first loss in an
 * exchange on, the receiver keeps a stripe that comes too early in memory of its own.
 *
 * docs/design/lanes.md has the states and the limits. */
#ifndef DDP_WORKER_RUNTIME_TCP_STRIPES_H
#define DDP_WORKER_RUNTIME_TCP_STRIPES_H

#include "frame.h"
#include "net.h"

#define STRIPES_LANES_MOST NET_LANES_MOST /* besides lane 0 */

struct stripes; /* opaque: of one peer */

/* n_lanes   1 .. STRIPES_LANES_MOST
 * returns   NULL: out of memory */
struct stripes *stripes_create(unsigned n_lanes);
void stripes_destroy(struct stripes *s); /* NULL is fine */

/* Open an exchange; the one before is over.
 *
 * plan          lent until the exchange is over, with its p-th peer
 * exchange      its number
 * stripe_bytes  the longest stripe
 * bytes         that come in */
void stripes_open(struct stripes *s, const struct tcp_plan *plan, unsigned p, uint32_t exchange,
                  size_t stripe_bytes, uint64_t bytes);

/* What to send next on a lane: a frame, and the bytes of *ret after it. It has to be sent as a
 * whole, unless the lane is lost.
 *
 * returns   TCP_READY; TCP_LATER nothing now; -ENOMEM */
int stripes_say(struct stripes *s, unsigned lane, struct frame *ret_frame, struct tcp_piece *ret);

/* A frame has arrived on a lane.
 *
 * returns   TCP_READY handled: ret->bytes bytes follow, which go to ret->at, and after them
 *           stripes_heard() has to be called; if that is 0, no bytes follow
 *           TCP_LATER ask again later, with the same frame, and do not read this lane until then
 *           -EPROTO not a frame that this side may send now; -ENOMEM */
int stripes_hear(struct stripes *s, unsigned lane, const struct frame *f, struct tcp_piece *ret);
/* returns   0; -EPROTO, -ENOMEM */
int stripes_heard(struct stripes *s, unsigned lane);

/* Also between exchanges: LOST may arrive late. returns as stripes_hear() */
int stripes_hear_lost(struct stripes *s, const struct frame *f);

/* This side gives the lane up: nothing more is sent or read on it. */
void stripes_lose(struct stripes *s, unsigned lane);
bool stripes_is_lost(const struct stripes *s, unsigned lane);

/* Whether something that belongs to this exchange may still arrive on a lane. What comes after that
 * belongs to the next one, or is the end of the lane: a peer that has all may leave. */
bool stripes_expects(const struct stripes *s, unsigned lane);

/* Whether both sides have all: the exchange is over once its last frame has been sent. A lane that
 * was lost in the meantime is reported in the next one. */
bool stripes_is_over(const struct stripes *s);

#endif
