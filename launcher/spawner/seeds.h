/* seeds.h - processes that are forked already and wait to become ranks (docs/warm.md): what the
 * nursery has to do with them.
 *
 * A parent, one process of Python started like a rank, imports what ranks import, and forks seeds:
 * each with another process in between that ends at once, so that the seed is the nursery's own
 * child. All of them hold one end of a socket pair; an order written to the other end is read by
 * one seed, which makes itself the rank and says so. The parent is the user's own process, so what
 * it says is checked for form, and believed.
 *
 * Only for the nursery. Nothing here waits but seeds_take(), which has a deadline. */
#ifndef DDP_LAUNCHER_SEEDS_H
#define DDP_LAUNCHER_SEEDS_H

#include "spawn.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SEEDS_MAX        64 /* ranks of a node that has seeds at all */
#define SEEDS_PROMISE_MS 500

struct seed {
    pid_t pid;
    int32_t batch; /* >= 0; else it is being killed */
};

struct seeds {
    pid_t parent; /* 0: there is none */
    int sock;     /* -1: closed, and no seed can be reached */
    int wish_fd;  /* by which the parent is asked for another batch; -1: it cannot be */
    int n;
    struct seed of[2 * SEEDS_MAX]; /* of the newest batch and of the one before */
    int32_t batch;                 /* the newest */
    int n_awaited;                 /* of that one, promised and not come */
    bool complete;                 /* there has been a whole batch */
    bool has_orders;               /* some of them, and has not answered */
};

/* What an order to a seed is; the descriptors that come with it begin with the image. */
struct seeds_order {
    int32_t local_rank;
    uint32_t index;                 /* which worker of the image it is */
    uint8_t fd_of[SPAWN_N_FDS + 2]; /* which of the descriptors is number i; NURSERY_NO_FD: none */
};

enum seeds_word_type { SEEDS_PROMISE = 1, SEEDS_SEED, SEEDS_TAKEN };

/* What the parent and its seeds say. */
struct seeds_word {
    uint32_t type;
    int32_t pid;   /* SEED, TAKEN: whose; PROMISE: how many seeds are about to be forked */
    int32_t value; /* PROMISE, SEED: their batch; TAKEN: the local rank */
};

void seeds_init(struct seeds *s);

/* Start the parent, which has its socket at SPAWN_NODE_FD, and at SPAWN_PMI_FD an eventfd by which
 * it is asked for seeds.
 *
 * order     with the answer in it; those two of its fds are filled in
 * returns   0; -EBUSY there is one; -errno */
int seeds_start(struct seeds *s, struct spawn_order *order);

/* Kill the parent and all seeds; those that are ranks by now are none. They are reaped as all
 * others, and forgotten at once. */
void seeds_close(struct seeds *s);

/* Read what was said. */
void seeds_hear(struct seeds *s);

/* Is this child the parent or a seed? One that has just become our child has been announced. */
bool seeds_know(struct seeds *s, pid_t pid);

enum seeds_gone { SEEDS_STRANGER, SEEDS_ONE_GONE, SEEDS_PARENT_GONE };

/* A child was reaped: if it is one of these, it is one no more. Without the parent there are no
 * seeds either. */
enum seeds_gone seeds_forget(struct seeds *s, pid_t pid);

enum seeds_taken {
    SEEDS_TOOK,      /* all are ranks now, orders[].pid is filled in */
    SEEDS_NO_PARENT, /* nobody has seeds for us */
    SEEDS_TOO_FEW,   /* nothing was done */
    SEEDS_NO_ANSWER  /* seeds_close() was done; those with orders[].pid != 0 are ranks */
};

/* Make ranks of n seeds. Where they are used up the parent is asked for others: it forks them
 * sooner than a rank could be executed, unless it is busy with imports.
 *
 * orders       n of them, of which only fds are looked at; pid is written
 * image_fd     of image.h; the i-th worker in it is orders[i]
 * until_ms     of common/clock.h; for seeds that are promised, and for answers. A promise is
 *              waited for no longer than SEEDS_PROMISE_MS */
enum seeds_taken seeds_take(struct seeds *s, int first_rank, struct spawn_order *orders, int n,
                            int image_fd, uint64_t until_ms);

#endif
