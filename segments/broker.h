/* broker.h - hands the node's shared memory to its ranks; see node_socket.h for the protocol.
 *
 * No event loop of its own: the owner tells it which socket has something to read. It never blocks:
 * what it sends fits the socket's buffer, since a rank has one question open at a time; a rank that
 * breaks this rule is refused. Descriptors it was handed are its own until broker_destroy().
 *
 * A rank has a seat for good: its local rank when it was started. Its local rank in a generation is
 * another number where the rank of a lower seat has been dropped. */
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

/* What is on a seat's socket (made non-blocking by the owner): read and answer all of it. With
 * seat -1 the rank is not known yet (abstract socket); HELLO then says it, and *ret_seat is
 * set.
 *
 * returns   1 go on; 0 the rank closed its end; -EPROTO and the like: refuse and close it, err says
 *           why (REFUSED was sent already) */
int broker_on_readable(struct broker *b, int seat, int sock, int *ret_seat, struct co_error *err);

/* The rank is gone: refuse those who wait for its segment and had none. */
void broker_rank_gone(struct broker *b, unsigned seat);

/* How many STEPs were told, by all ranks. */
uint64_t broker_n_steps(const struct broker *b);

/* The memory that the largest user segment takes up, in bytes: of what has been written in it. */
uint64_t broker_most_bytes(const struct broker *b);

/* Has it said LOST, in this generation? */
bool broker_has_lost_peer(const struct broker *b, unsigned seat);

/* What it cannot reach in this generation, as it said last: printable ASCII, and else untrusted.
 * "": nothing. Lent until the next call of a function that is not const */
const char *broker_wait_of(const struct broker *b, unsigned seat);

/* To this generation. */
bool broker_has_said_hello(const struct broker *b, unsigned seat);
bool broker_asks(const struct broker *b, unsigned seat);     /* for the next one */
bool broker_recovers(const struct broker *b, unsigned seat); /* of its last HELLO */

/* --- more than one generation --- */

/* Tell ranks, when they join, that broker_renew() may follow.
 *
 * generation   the number of the one that there is; without this call 0 */
void broker_offer_more(struct broker *b, uint32_t generation);

/* From the next generation on this seat is empty: those behind it move up. */
void broker_drop(struct broker *b, unsigned seat);
unsigned broker_n_kept(const struct broker *b); /* seats that are not dropped */

/* Between the local ranks of the generation that there is and seats. -1: dropped before it began */
int broker_local_of(const struct broker *b, unsigned seat);
int broker_seat_at(const struct broker *b, unsigned local_rank); /* -1: no such rank */

struct broker_world {                /* where this node's ranks are in a generation */
    uint32_t first_rank, world_size; /* they have first_rank, ... */
    uint32_t node_rank, n_nodes;
    uint16_t port;    /* of the store; 0: there is none */
    const char *host; /* borrowed for the call; shorter than NODE_SOCKET_TEXT_MAX */
};

/* A new generation: the segments of the one before are forgotten, and ranks that have asked for the
 * new one are let in.
 *
 * control_fd   as for broker_create(), for broker_n_kept() ranks
 * generation   more than that of the one before
 * returns      0; -errno: the old one stays */
int broker_renew(struct broker *b, int control_fd, uint32_t generation,
                 const struct broker_world *world, struct co_error *err);

/* No generation follows: refuse who asks for one, and who has asked. */
void broker_give_up(struct broker *b);

#endif
