/* place.h - a place that a program gives, as env.h's variables would say it. Pure. */
#ifndef DDP_WORKER_RUNTIME_JOIN_PLACE_H
#define DDP_WORKER_RUNTIME_JOIN_PLACE_H

struct co_error;
struct ddp_rank_info;
struct env_who;

/* returns   0; -EINVAL a member is out of bounds, or contradicts another: the text names it */
int place_read(const struct ddp_rank_info *place, struct env_who *ret, struct co_error *err);

#endif
