/* broker.h - hands the node's shared memory to its ranks; see node_socket.h for the protocol.
 *
 * No event loop of its own: the owner tells it which socket has something to read. It never blocks:
 * what it sends fits the socket's buffer, since a rank has one question open at a time; a rank that
 * breaks this rule is refused. Descriptors it was handed are its own until broker_destroy(). */
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

/* What is on local_rank's socket (made non-blocking by the owner): read and answer all of it. With
 * local_rank -1 the rank is not known yet (abstract socket); HELLO then says it, and
 * *ret_local_rank is set.
 *
 * returns   1 go on; 0 the rank closed its end; -EPROTO and the like: refuse and close it, err says
 *           why (REFUSED was sent already) */
int broker_on_readable(struct broker *b, int local_rank, int sock, int *ret_local_rank,
                       struct co_error *err);

/* The rank is gone: refuse those who wait for its segment and had none. */
void broker_rank_gone(struct broker *b, unsigned local_rank);

/* How many STEPs were told, by all ranks. */
uint64_t broker_n_steps(const struct broker *b);

/* Has it said LOST, in this generation? */
bool broker_has_lost_peer(const struct broker *b, unsigned local_rank);

/* To this generation. */
bool broker_has_said_hello(const struct broker *b, unsigned local_rank);
bool broker_mends(const struct broker *b, unsigned local_rank); /* of its last HELLO */

/* --- more than one generation --- */

/* Tell ranks, when they join, that broker_renew() may follow.
 *
 * generation   the number of the one that there is; without this call 0 */
void broker_offer_more(struct broker *b, uint32_t generation);

/* A new generation: the segments of the one before are forgotten, and ranks that have asked for the
 * new one are let in.
 *
 * control_fd   as for broker_create()
 * generation   one more than that of the one before
 * returns      0; -errno: the old one stays */
int broker_renew(struct broker *b, int control_fd, uint32_t generation, struct co_error *err);

/* No generation follows: refuse who asks for one, and who has asked. */
void broker_give_up(struct broker *b);

#endif
