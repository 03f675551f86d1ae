/* node_replay.h - repeat what happened to a job before (--replay): replay.h tells what, the control
 * segment where ranks wait for it, and here it is done.
 *
 * All functions take NULL for "nothing is repeated". */
#ifndef DDP_LAUNCHER_NODE_NODE_REPLAY_H
#define DDP_LAUNCHER_NODE_NODE_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

struct co_error;
struct node;
struct node_replay; /* opaque; owned by the loop */

/* Read the file of spec->replay; without one there is none.
 *
 * returns   0; -EBADMSG it is no history, or cannot be read (the text names the file);
 *           -ENOMEM */
int node_replay_open(struct node *n, struct node_replay **ret, struct co_error *err);
void node_replay_close(struct node_replay *r);

/* For node_memory_opts.find_hold(). */
bool node_replay_find_hold(const struct node_replay *r, uint32_t generation, uint64_t *ret_steps);

/* How a rank has ended: where it was killed in the place of one that ended otherwise, as that did.
 *
 * rank     local; it has ended
 * status   as waitpid() has it; returned where nothing was done to the rank */
int node_replay_status(struct node_replay *r, int rank, int status);

/* The job is over: say whether it went as the one before. */
void node_replay_tell_end(struct node_replay *r);

#endif
