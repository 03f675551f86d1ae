/* node_stacks.h - stacks.h for the ranks of this node that run just now. */
#ifndef DDP_LAUNCHER_NODE_NODE_STACKS_H
#define DDP_LAUNCHER_NODE_NODE_STACKS_H

#include <stdbool.h>

struct co_error;
struct flights;
struct node_view;
struct stack;
struct stacks;

struct node_stacks_opts { /* the rest as in stacks.h */
    int local_rank;       /* -1: all */
    int signal;
    bool has_tools;
    bool all_dump; /* torch's flight recorder of all ranks is wanted, whoever is looked at */
    void (*on_done)(void *arg, const struct stack *list, int n, const struct flights *flights);
    void *arg;
};

/* returns   0; -ESRCH none of them runs; -ENOMEM */
int node_stacks_begin(const struct node_view *n, const struct node_stacks_opts *opts,
                      struct stacks **ret, struct co_error *err);

#endif
