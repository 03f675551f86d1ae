/* backend.h - what a home for collectives must offer. backend_cpu.c is the one for CPU memory.
 *
 * One collective is open at a time, and a back end sees them in the same order on all ranks: the
 * queue of asynchronous calls is above (requests.c). Arguments were checked by collective.c (types,
 * roots, NULLs). Functions return 0 or -errno with err filled: -EPROTO mismatch, -ECONNRESET a rank
 * died or left, -ETIMEDOUT. After such a failure the back end is broken and returns it again.
 *
 * Ranks are numbers in the back end's group, 0 .. n - 1. */
#ifndef DDP_WORKER_RUNTIME_CORE_BACKEND_H
#define DDP_WORKER_RUNTIME_CORE_BACKEND_H

#include "call.h"

#include <stdbool.h>

struct backend;

struct collective { /* as its caller gave it; lent until it is done */
    enum call_kind kind;
    enum ddp_dtype dtype;
    enum ddp_op op;
    int root;     /* 0 where a kind has none */
    size_t count; /* elements of a block; unused where there are counts */
    const void *in;
    void *out;
    const size_t *counts; /* of the _v forms: for each rank, the same on all ranks; of all_to_all_v:
                                from each rank; else NULL */
    const size_t *in_counts; /* of all_to_all_v: for each rank; else NULL */
    void *stream;
    int *found_inf;      /* of all_reduce: becomes 1 if an element of the result is not finite, else
                            0, the same on all ranks; NULL: not wanted */
    uint64_t timeout_ms; /* 0: the group's */
    /* of a part of a collective that is made by several back ends: */
    const struct call *whole; /* what the ranks agree on and read in messages; NULL: this one */
    bool goes_on;             /* not the first part: it does not count as a call */
};

struct message { /* between two ranks; lent until it is done */
    bool is_send;
    enum ddp_dtype dtype;
    int peer, tag;
    size_t count;
    void *data;           /* written only by a receive */
    uint64_t timeout_ms;  /* 0: the group's */
    struct co_error *err; /* filled if it fails; not NULL */

    _Atomic bool done; /* written by the back end, and `code` before it */
    int code;          /* how it ended: 0 or -errno */

    struct message *next; /* the back end's own, from here on */
    uint32_t seq, n_chunks;
    int stage;
    bool is_inside; /* of the node: `peer` is a number on it */
};

struct backend_place {
    int local_rank, local_world_size; /* among the group's ranks of this node */
    int node_rank, n_nodes;           /* nodes that have ranks of the group */
};

struct backend_ops {
    const char *name;
    bool finds_inf; /* it fills collective.found_inf; else the caller checks `out` */
    /* Open a collective: publish what can be published without waiting. */
    int (*begin)(struct backend *b, const struct collective *what, struct co_error *err);
    /* Continue the open collective; wait for other ranks or not.
     * returns   1 it is done; 0 other ranks must come first (never if may_wait); -errno */
    int (*advance)(struct backend *b, bool may_wait, struct co_error *err);

    /* Open a message. Any number may be open; those of one peer, tag and direction are served in
     * the order of beginning. returns 0; -ENOMEM, and it is not open. What fails later is its
     * `code`. */
    int (*message_begin)(struct backend *b, struct message *m, struct co_error *err);
    /* Continue all open messages; with `until` wait until that one is done. By any thread. */
    void (*p2p_shm_advance)(struct backend *b, const struct message *until);

    /* Form a group of some of the ranks. Collective over all ranks of b.
     * color     -1: this rank joins none
     * ret       NULL then; else the new group's back end, owned by the caller
     * ret_rank, ret_n   this rank's place in it, and how many there are */
    int (*split)(struct backend *b, int color, int key, struct backend **ret, int *ret_rank,
                 int *ret_n, struct co_error *err);

    /* Where this rank is in a group that spans nodes. NULL: the group is on one node. */
    void (*place)(const struct backend *b, struct backend_place *ret);

    /* Lend the word in which the group's ranks of this node agree on steps (model_priv.h). NULL: no
     * other rank is on the node. */
    _Atomic uint64_t *(*commit_word)(struct backend *b);

    /* Whether the job is intact, without waiting for any rank, by any thread: for a caller that
     * waits for something else. A rank that left in good order breaks nothing here.
     * returns   0; what broke it */
    int (*look)(struct backend *b, struct co_error *err);
    /* Break the job by a reason that was found elsewhere; by any thread.
     * returns   whether it was whole until now: else the first reason stays */
    bool (*tell)(struct backend *b, int code, const char *text);

    int (*alloc)(struct backend *b, size_t bytes, void **ret, struct co_error *err);
    void (*free)(struct backend *b, void *ptr);
    void (*destroy)(struct backend *b); /* leaves; NULL never passed */
};

struct backend {
    const struct backend_ops *ops; /* first member of every back end */
};

/* A collective from its beginning to its end. */
static inline int backend_run(struct backend *b, const struct collective *what,
                              struct co_error *err)
{
    int code = b->ops->begin(b, what, err);
    while (code == 0)
        code = b->ops->advance(b, true, err);
    return code < 0 ? code : 0;
}

#endif
