/* heartbeat.h - how long the ranks of a node may run without a sign of the coordinator's host. Pure
 * arithmetic; spawner_main.c has the connection.
 *
 * The spawner writes a byte at an interval to a connection to the coordinator. It counts from when
 * it *sent* the newest byte that the other kernel has acknowledged; the coordinator counts from
 * when its kernel received it, which is later. So the ranks are suspended before the coordinator
 * may count the node as lost (docs/design/quorum.md, Detection of a lost host):
 *
 *     node          send -------- limit_ms --------> suspended by its spawner
 *     coordinator       receive ---- limit_ms + margin -----> lost
 *
 * An acknowledgment does not resume ranks: the coordinator may have counted the node as lost
 * before. An answer to a keep-alive does, since only a coordinator that has the node gives one. */
#ifndef DDP_LAUNCHER_SPAWNER_HEARTBEAT_H
#define DDP_LAUNCHER_SPAWNER_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    HEARTBEAT_MAX_UNACKED = 64, /* then none is sent before one is acknowledged */
    HEARTBEATS_IN_LIMIT = 6,    /* one that is lost is sent again in time */
};

/* Zeroed: off, no rank is suspended. Times are the node's own clock. */
struct heartbeat {
    uint64_t limit_ms; /* 0: ddprun states the end: end_ms */
    uint64_t end_ms;
    uint64_t from_ms; /* when the newest byte that was acknowledged, or the newest keep-alive that
                         was answered, was sent */
    uint64_t next_ms; /* the next byte is due; only with a link */
    uint64_t sent_ms[HEARTBEAT_MAX_UNACKED]; /* of byte i, at i modulo that */
    uint64_t n_sent, n_acked;
    bool is_on, has_link;
    bool is_suspended;
};

/* There is a connection, a new one or the first: the coordinator has answered what was sent on it
 * at from_ms.
 *
 * limit_ms  not 0 */
void heartbeat_begin(struct heartbeat *h, uint64_t from_ms, uint64_t limit_ms);

/* The coordinator is in this process, which states until when its node may run; CO_NEVER_MS: no
 * other process relies on it. */
void heartbeat_state(struct heartbeat *h, uint64_t end_ms);

/* The connection has ended. What was acknowledged still counts. */
void heartbeat_lose_link(struct heartbeat *h);

/* Is a byte to be sent? If so, call heartbeat_sent() when that was tried.
 *
 * now_ms     before it was tried
 * was_taken  by the kernel: only bytes that were can be acknowledged */
bool heartbeat_is_due(const struct heartbeat *h, uint64_t now_ms);
void heartbeat_sent(struct heartbeat *h, uint64_t now_ms, bool was_taken);

/* So many bytes are not acknowledged yet. More than were sent change nothing. */
void heartbeat_acked(struct heartbeat *h, uint64_t n_unacked);

/* When the ranks are to be suspended; CO_NEVER_MS: never, or they are. */
uint64_t heartbeat_end_ms(const struct heartbeat *h);

/* When to look at the acknowledgments, or to send; CO_NEVER_MS: not. */
uint64_t heartbeat_deadline_ms(const struct heartbeat *h);

/* Is it over? Then is_suspended is set, which is_suspended keeps until heartbeat_resume(). returns
 * whether it was set now */
bool heartbeat_lapse(struct heartbeat *h, uint64_t now_ms);

/* The coordinator has answered a keep-alive that was sent at from_ms: it has not counted this node
 * as lost. A connection that has ended cannot have been the reason for that, and limits nothing
 * from now on.
 *
 * returns   whether ranks that were suspended may run again */
bool heartbeat_resume(struct heartbeat *h, uint64_t from_ms, uint64_t now_ms);

#endif
