/* node_stacks.h - where the ranks of this node are that run just now (stacks.h), and torch's flight
 * recorder of them (flight_recorder.h): dumps that are asked for, and those that torch writes by
 * itself before it ends a rank whose collective call took too long.
 *
 * NCCL's RAS (ras_query.h) is asked with the stacks. The first node of the job also asks it every
 * RAS_POLL_MS, for its status: one node does, since the answer is about the whole job. */
#ifndef DDP_LAUNCHER_NODE_NODE_STACKS_H
#define DDP_LAUNCHER_NODE_NODE_STACKS_H

#include "node_view.h"

struct ras_query;
struct stack;
struct stacks;
struct status;

extern const struct node_feature node_stacks_feature;

struct node_stacks_opts { /* the rest as in stacks.h */
    int local_rank;       /* -1: all */
    int tool_rank;        /* has_tools: only this one, -1: all of them */
    int signal;
    bool has_tools;
    uint64_t tool_ms;
    uint64_t total_ms; /* 0: STACKS_TOTAL_MS */
    bool all_dump;     /* torch's flight recorder of all ranks is wanted, whichever ranks are
                    * examined */
    void (*on_done)(void *arg, const struct stack *list, int n, const struct flights *flights,
                    const struct ras_query *ras);
    void *arg;
};

/* returns   0; -ESRCH none of them runs; -ENOMEM */
int node_stacks_begin(const struct node_view *n, const struct node_stacks_opts *opts,
                      struct stacks **ret, struct co_error *err);

/* Print what was found: which rank torch finds missing, where `first` is, where some others are
 * that have answered, and what torch and NCCL reported. */
void node_stacks_tell(const struct node_view *v, int first, const struct stack *list, int n,
                      const struct flights *flights, const struct ras_query *ras);

/* The sockets of torch's worker servers, by local rank; NULL where a rank has none.
 *
 * returns   a list to free(), with its strings; NULL: out of memory */
char **node_stacks_find_servers(const struct node_view *n);

/* The ranks have failed, and none is left: gather what torch has written about them, and report
 * where. If all were asked before, this is known already. */
void node_stacks_tell_flights(const struct node_view *n);

/* What the last poll of NCCL's RAS that is over has found, if one of this generation has found a
 * process: lent until the loop runs again. */
void node_stacks_fill_nccl(const struct node_view *n, struct status *s);

enum {
    RAS_POLL_MS = 10000,
    RAS_FIRST_MS = 2000, /* while no process listens */
};

#endif
