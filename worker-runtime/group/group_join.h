/* group_join.h - how a process comes into a world and leaves it, for the other files of this
 * component. */
#ifndef DDP_WORKER_RUNTIME_GROUP_GROUP_JOIN_H
#define DDP_WORKER_RUNTIME_GROUP_GROUP_JOIN_H

#include "worker-runtime/core/group.h"

struct env_who;
struct node_again;

/* A world before its rendezvous. free() it, or leave it. NULL: out of memory */
struct world *group_create_world(void);

/* As ddp_init() and ddp_finalize(), for a process that may come back: with what `recovery` wants,
 * and without leaving the job for good.
 *
 * opts      not NULL
 * returns   0; -ECANCELED no generation follows the one that broke; -ECONNRESET another rank died
 *           meanwhile; else as ddp_init(), as -errno */
int group_enter(const struct ddp_init_opts *opts, struct recovery *recovery,
                struct ddp_group **ret_world, struct co_error *err);
void group_leave(struct ddp_group *world);

/* Check all variables that a user sets for libddp (core/env_value.h, DDP_TUNING), and take timeouts
 * and the progress thread from them where `opts` leaves them open.
 * returns   0, -ENOEXEC, -ENOMEM */
int group_read_options(const struct ddp_init_opts *opts, struct ddp_group *g, struct co_error *err);

/* Before the program's function is called: the world is not its to finalize. */
void group_lend(struct ddp_group *world);

/* What the program's function has returned: 0 or a negative status; else, or where it has called
 * ddp_finalize(), DDP_EINVAL. */
int group_check_result(const char *name, const struct ddp_group *world, int rc);

/* The same as ddp_finalize(), also for a world that the caller has lent. NULL is fine. */
void group_finalize(struct ddp_group *world);

/* Destroy a world that this process has not entered: one of its threads. NULL is fine. */
void group_close(struct ddp_group *world);

/* --- group_open.c ----------------------------------------------------------------------------- */

/* The back end of a world's group: join the ranks of this node, then the other nodes, if there are
 * any. Fills the group's back end, or w->alone if this rank is the only one, and w->line. The
 * place from the environment is changed to the one in the generation that was joined.
 *
 * again     see node_join.h; NULL: this rank does not outlive a peer
 * returns 0; -errno as node_join() and net_join() */
int group_open(struct world *w, struct env_who *who, struct node_again *again, uint64_t deadline_ms,
               struct co_error *err);

#endif
