/* lease.h - how long a node may believe that it belongs to its generation. Pure arithmetic.
 *
 * No comparison involves two clocks. The node counts from when it *sent* the keep-alive that was
 * answered, the roster from when it received it, which is later. The roster declares a silent node
 * lost LEASE_MARGIN_MS after the node itself must have stopped its ranks:
 *
 *     node     send ---------- lease_ms ----------> killed by its spawner
 *     roster        hear ------- lease_ms + LEASE_MARGIN_MS ------> lost, the next one is sealed
 *
 * The margin is for clocks that run at different speeds and for the kill itself. */
#ifndef DDP_RENDEZVOUS_MEMBERSHIP_LEASE_H
#define DDP_RENDEZVOUS_MEMBERSHIP_LEASE_H

#include <stdint.h>

struct co_error;

#define LEASE_KEEP_ALIVE_MS 1000
#define LEASE_MS            3000
#define LEASE_MARGIN_MS     500
#define LEASE_RETURN_MS     50 /* a node may connect again so long after a reset */

/* The node's side. Plain data, so that it can be passed to the spawner. Zeroed: no lease, and
 * nothing to send. Times are the node's own clock. */
struct lease {
    uint64_t keep_alive_ms;
    uint64_t lease_ms;
    uint64_t from_ms;      /* when the newest keep-alive that was answered was sent */
    uint64_t last_sent_ms; /* answered or not */
    uint64_t extended_ms;  /* not over before this, whatever was answered */
};

/* A WELCOME has come: the lease begins with the HELLO that it answers. A lease that runs already is
 * renewed, never shortened.
 *
 * hello_ms    when the HELLO was sent, as the WELCOME gave it back
 * returns     0; -EPROTO: that is later than anything that was sent, or the times are not
 *             0 < keep-alive < lease <= 10^9 s */
int lease_begin(struct lease *l, uint64_t hello_ms, uint64_t keep_alive_ms, uint64_t lease_ms,
                struct co_error *err);

/* A HELLO or a KEEP_ALIVE goes out now, with now_ms in it. */
void lease_sent(struct lease *l, uint64_t now_ms);

/* An answer has come. One to an older keep-alive than the newest that was answered changes nothing.
 *
 * sent_ms   as the answer gave it back
 * returns   0; -EPROTO: nothing was sent so late: the other side makes times up */
int lease_answered(struct lease *l, uint64_t sent_ms, struct co_error *err);

/* The roster is gone but will be replaced: the lease runs on. */
void lease_extend(struct lease *l, uint64_t until_ms);

/* When the next keep-alive is due; CO_NEVER_MS before lease_begin(). */
uint64_t lease_next_ms(const struct lease *l);

/* When the lease ends. The spawner receives this value. CO_NEVER_MS before lease_begin(). */
uint64_t lease_end_ms(const struct lease *l);

/* The roster's side: for so long a node may be silent; then it counts as lost. */
uint64_t lease_silence_ms(uint64_t lease_ms, uint64_t margin_ms);

#endif
