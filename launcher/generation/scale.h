/* scale.h - asking the ranks to save their state, because a node waits to join (--scale-at
 * checkpoint) or since this one is to leave (--on-term), and hearing that they have.
 *
 * Each rank has a stream socket of its own, whose number is DDP_SCALE_FD. ddprun writes a byte into
 * it, once in a generation; a rank that has written a checkpoint writes one,
 * too, asked or not, and goes on until it is stopped. What the bytes are does not matter, so that a
 * shell script can do it. Answers from before the question do not count: what was saved then may be
 * long ago. */
#ifndef DDP_LAUNCHER_SCALE_H
#define DDP_LAUNCHER_SCALE_H

#include <stdbool.h>
#include <uv.h>

struct scale; /* opaque; of one generation */

/* on_saved   called from the loop when scale_all_saved() has become true
 * returns    0, -ENOMEM */
int scale_create(uv_loop_t *loop, int n_local, void (*on_saved)(void *arg), void *arg,
                 struct scale **ret);

/* Make a rank's socket, in the place of an earlier one's if it is replaced. One that was asked for
 * late finds the question in it.
 *
 * ret_worker_fd   the worker's end, owned by the caller; close-on-exec
 * returns         0, -ENOMEM, -errno */
int scale_add(struct scale *s, int rank, int *ret_worker_fd);

/* The same for a rank that has its end already.
 *
 * fd        ours, of a stream socket; owned from here on, even on failure */
int scale_adopt(struct scale *s, int rank, int fd);

/* Ask all ranks, those too whose socket is not made yet. Once: later calls do nothing.
 *
 * returns   whether it was the first call */
bool scale_ask(struct scale *s);

/* The rank is gone for good: nobody waits for its answer. Once for each, before scale_renew(). */
void scale_drop(struct scale *s, int rank);

/* A generation begins, in which ranks go on: nobody is asked, and nobody has answered. A rank is
 * asked from scale_let_in() on, for until then it throws questions of the generation before away;
 * one that has ended may get another socket by scale_add(). */
void scale_renew(struct scale *s);
void scale_let_in(struct scale *s, int rank);

/* Each rank that is not dropped has answered. NULL: never. */
bool scale_all_saved(const struct scale *s);

/* Close the sockets, from on_saved too. What the loop has left to close lives on by itself; NULL is
 * fine. */
void scale_close(struct scale *s);

#endif
