/* collective.h - the checks that blocking and asynchronous calls share. */
#ifndef DDP_WORKER_RUNTIME_CORE_COLLECTIVE_H
#define DDP_WORKER_RUNTIME_CORE_COLLECTIVE_H

#include "backend.h"
#include "group.h"

/* Check what a caller gave.
 *
 * name         of the public call, for messages
 * ret_bytes    of `in` on this rank: what a world of 1 copies
 * returns      DDP_OK; DDP_EINVAL */
int collective_check(const char *name, const struct ddp_group *g, const struct collective *what,
                     size_t *ret_bytes);

/* A call with counts must have some: without, it would be the one that has none. returns DDP_OK;
 * DDP_EINVAL */
int collective_check_counts(const char *name, const struct collective *what);

/* Who asks whether the result is finite must say where the answer goes. Likewise. */
int collective_check_found(const char *name, const int *ret_found_inf);

/* Fill what->found_inf from what lies in `out`. */
void collective_look_through(const struct collective *what);

/* The collective in a world of 1, where every reduction of one value is that value. */
void collective_run_alone(const struct collective *what, size_t bytes);

/* Of a group without a back end: whether it is over. returns DDP_OK; rt_broken() */
int collective_check_alone(const struct ddp_group *g);

/* Whether this process may call on the group, which this thread's failures are of from now on.
 * returns   DDP_OK; DDP_EINVAL */
int collective_check_group(const char *name, const struct ddp_group *g);

#endif
