/* checkpoint_request.h - asking the ranks to save their state, because a node waits to join
 * (--admit-at checkpoint) or because this node is to leave (--on-term), and receiving their
 * answers.
 *
 * Each rank has a stream socket of its own, whose number is DDP_CHECKPOINT_FD. ddprun writes a byte
 * into it, once in a generation; a rank that has written a checkpoint also writes a byte, asked or
 * not, and continues until it is stopped. What the bytes are does not matter, so that a shell
 * script can do it. Answers from before the question do not count: what was saved then may be long
 * ago. */
#ifndef DDP_LAUNCHER_GENERATION_CHECKPOINT_REQUEST_H
#define DDP_LAUNCHER_GENERATION_CHECKPOINT_REQUEST_H

#include <stdbool.h>
#include <uv.h>

struct checkpoint_request; /* opaque; of one generation */

/* on_saved   called from the loop when checkpoint_request_all_saved() has become true
 * returns    0, -ENOMEM */
int checkpoint_request_create(uv_loop_t *loop, int n_local, void (*on_saved)(void *arg), void *arg,
                              struct checkpoint_request **ret);

/* Make a rank's socket; it replaces an earlier one. A socket that is made after the question has
 * the question in it.
 *
 * ret_worker_fd   the worker's end, owned by the caller; close-on-exec
 * returns         0, -ENOMEM, -errno */
int checkpoint_request_add(struct checkpoint_request *s, int rank, int *ret_worker_fd);

/* The same for a rank that has its end already.
 *
 * fd        ours, of a stream socket; owned from here on, even on failure */
int checkpoint_request_adopt(struct checkpoint_request *s, int rank, int fd);

/* Ask all ranks, those too whose socket is not made yet. Once: later calls do nothing.
 *
 * returns   whether it was the first call */
bool checkpoint_request_ask(struct checkpoint_request *s);

/* The rank is gone for good: its answer is not awaited. Once for each, before
 * checkpoint_request_renew(). */
void checkpoint_request_drop(struct checkpoint_request *s, int rank);

/* A generation begins, in which ranks continue: no rank is asked, and none has answered. A rank is
 * asked from checkpoint_request_let_in() on, because until then it discards questions of the
 * generation before. A rank that has ended may get another socket by checkpoint_request_add(). */
void checkpoint_request_renew(struct checkpoint_request *s);
void checkpoint_request_let_in(struct checkpoint_request *s, int rank);

/* Each rank that is not dropped has answered. NULL: never. */
bool checkpoint_request_all_saved(const struct checkpoint_request *s);

/* Close the sockets, from on_saved too. What the loop has left to close lives on by itself; NULL is
 * fine. */
void checkpoint_request_close(struct checkpoint_request *s);

#endif
