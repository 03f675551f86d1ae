/* broker.h - hands the node's shared memory to its ranks; see node_socket.h for the protocol.
 *
 * No event loop of its own: the owner passes it each socket that is readable. It never blocks: what
 * it sends fits the socket's buffer, since a rank has one question open at a time; a rank that
 * breaks this rule is refused. Descriptors it was handed are its own until broker_destroy().
 *
 * A rank keeps its seat for the whole job: its local rank when it was started. Its local rank in a
 * generation differs if the rank of a lower seat has been dropped. */
#ifndef DDP_SEGMENTS_BROKER_H
#define DDP_SEGMENTS_BROKER_H

#include <stdbool.h>
#include <stdint.h>

struct co_error;
struct broker; /* opaque */

/* control_fd   the control segment's; the broker keeps a duplicate
 * returns      0, -ENOMEM, -EINVAL (n_local), -errno */
int broker_create(unsigned n_local, int control_fd, struct broker **ret, struct co_error *err);
void broker_destroy(struct broker *b); /* NULL is fine; does not close the ranks' sockets */

/* Read and answer messages on a seat's socket (made non-blocking by the owner), 64 at most: if more
 * wait, the socket stays readable. With seat -1 the rank is not known yet (abstract socket); its
 * HELLO then has the number, and *ret_seat is set.
 *
 * returns   1 more may come; 2 more may be there: broker_wait_of() has a text that the next call
 *           may replace; 0 the rank closed its end; -EPROTO and the like: refuse and close
 *           it, err has the reason (REFUSED was sent already) */
int broker_on_readable(struct broker *b, int seat, int sock, int *ret_seat, struct co_error *err);

/* The rank is gone: if it had no segment, refuse the ranks that wait for one. */
void broker_rank_gone(struct broker *b, unsigned seat);

/* The number of STEPs that all ranks have sent. */
uint64_t broker_n_steps(const struct broker *b);

/* The memory that the largest user segment takes up, in bytes: of what has been written in it. */
uint64_t broker_most_bytes(const struct broker *b);

/* Has the rank sent LOST in this generation? */
bool broker_has_lost_peer(const struct broker *b, unsigned seat);

/* What the rank cannot reach in this generation, according to its last WAIT: printable ASCII, and
 * otherwise untrusted. "": nothing. Lent until the next call of a function that is not const */
const char *broker_wait_of(const struct broker *b, unsigned seat);

/* To this generation. */
bool broker_has_said_hello(const struct broker *b, unsigned seat);
bool broker_asks(const struct broker *b, unsigned seat);     /* for the next one */
bool broker_recovers(const struct broker *b, unsigned seat); /* of its last HELLO */

/* --- more than one generation --- */

/* Inform ranks, when they join, that broker_renew() may follow.
 *
 * generation   the number of the current one; without this call 0 */
void broker_offer_more(struct broker *b, uint32_t generation);

/* From the next generation on this seat is empty: the ranks of higher seats move up. */
void broker_drop(struct broker *b, unsigned seat);
unsigned broker_n_kept(const struct broker *b); /* seats that are not dropped */

/* Between seats and local ranks of the current generation. -1: dropped before it began */
int broker_local_of(const struct broker *b, unsigned seat);
int broker_seat_at(const struct broker *b, unsigned local_rank); /* -1: no such rank */

struct broker_world {                /* where this node's ranks are in a generation */
    uint32_t first_rank, world_size; /* they have first_rank, ... */
    uint32_t node_rank, n_nodes;
    uint16_t port;    /* of the store; 0: the generation has no store */
    const char *host; /* borrowed for the call; shorter than NODE_SOCKET_TEXT_MAX */
};

/* Begin a new generation: the segments of the previous one are forgotten, and ranks that have asked
 * for the new one are admitted.
 *
 * control_fd   as for broker_create(), for broker_n_kept() ranks
 * generation   more than that of the previous one
 * returns      0; -errno: the old one stays */
int broker_renew(struct broker *b, int control_fd, uint32_t generation,
                 const struct broker_world *world, struct co_error *err);

/* No generation follows: refuse all requests for one, present and future. */
void broker_give_up(struct broker *b);

#endif
