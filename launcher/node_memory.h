/* node_memory.h - the ranks' node sockets, and behind them the node's shared memory
 * (segments/broker.h).
 *
 * The control segment and the broker are made when the first rank asks: a job without libddp costs
 * a socket pair a rank, nothing more. */
#ifndef DDP_LAUNCHER_NODE_MEMORY_H
#define DDP_LAUNCHER_NODE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct co_error;
struct node_memory; /* opaque */

/* on_note   a text without newline: a rank broke the protocol, or there is no memory to share
 * returns   0, -ENOMEM */
int node_memory_create(uv_loop_t *loop, int n_local, void (*on_note)(void *arg, const char *text),
                       void *arg, struct node_memory **ret, struct co_error *err);

/* Make rank's socket.
 *
 * ret_worker_fd   the worker's end, owned by the caller; close-on-exec
 * returns         0, -errno */
int node_memory_add(struct node_memory *m, int rank, int *ret_worker_fd);

/* The rank has ended: tell all who use the shared memory, at once. status as waitpid() has it.
 *
 * returns   the rank that died before, as the shared memory knows; -1: none, or this one */
int node_memory_rank_gone(struct node_memory *m, int rank, int status);

/* Did the rank say, before it ended, that a call of it failed because a peer was gone? */
bool node_memory_has_lost_peer(const struct node_memory *m, int rank);

/* The most steps of training that a rank has completed, as libddp counts them; of a rank without
 * peers only whether there are any. */
uint64_t node_memory_most_steps(struct node_memory *m);

/* Close the sockets and the memory. Frees m when the loop has closed its handles; NULL is fine. */
void node_memory_close(struct node_memory *m);

#endif
