/* prefork.h - processes that are forked already and wait to become ranks (docs/design/warm.md):
 * what the spawner has to do with them.
 *
 * A parent, one process of Python started like a rank, imports what ranks import, and forks
 * preforked processes: each with another process in between that ends at once, so that the
 * preforked process is the spawner's own child. All of them hold one end of a socket pair; an order
 * written to the other end is read by one preforked process, which makes itself the rank and
 * reports it. The parent is the user's own process, which may run user code or be in another PID
 * namespace: a pid that it reports counts only if it belongs to its session, a report of a rank
 * counts by its sender, and only our own children are killed or become ranks.
 *
 * Only for the spawner. Only prefork_take() waits, and it has a deadline. */
#ifndef DDP_LAUNCHER_SPAWNER_PREFORK_H
#define DDP_LAUNCHER_SPAWNER_PREFORK_H

#include "spawn.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PREFORK_MAX        64 /* ranks of a node that has preforked processes at all */
#define PREFORK_PROMISE_MS 500

struct seed {
    pid_t pid;
    int32_t batch; /* >= 0; else it is being killed */
};

struct prefork {
    pid_t parent;  /* 0: no parent */
    pid_t session; /* its session, in which it forks preforked processes */
    int sock;      /* -1: closed, and no preforked process can be reached */
    int wish_fd;   /* by which the parent is asked for another batch; -1: it cannot be */
    int n;
    struct seed of[2 * PREFORK_MAX]; /* of the newest batch and of the one before */
    int32_t batch;                   /* the newest */
    int n_awaited;                   /* the newest batch's, promised and not arrived */
    bool complete;                   /* there has been a whole batch */
    bool has_orders;                 /* some of them, and has not answered */
};

/* What an order to a preforked process is; the descriptors that come with it begin with the
 * image. */
struct prefork_order {
    int32_t local_rank;
    uint32_t index;             /* which worker of the image it is */
    uint8_t fd_of[SPAWN_N_FDS]; /* which of the descriptors is number i; SPAWNER_NO_FD: none */
};

enum prefork_word_type { PREFORK_PROMISE = 1, PREFORK_SEED, PREFORK_TAKEN };

/* The messages of the parent and its preforked processes. */
struct prefork_word {
    uint32_t type;
    int32_t pid;   /* SEED: whose; PROMISE: how many preforked processes are about to be forked */
    int32_t value; /* PROMISE, SEED: their batch; TAKEN: the local rank */
};

void prefork_init(struct prefork *s);

/* Start the parent, which has its socket at SPAWN_NODE_FD, and at SPAWN_PMI_FD an eventfd by which
 * it is asked for preforked processes.
 *
 * order     with the answer in it; those two of its fds are filled in
 * returns   0; -EBUSY there is one; -errno */
int prefork_start(struct prefork *s, struct spawn_order *order);

/* Have the kernel state the sender of each message that this socket receives. */
void prefork_hear_senders(int sock);

/* Kill the parent and all preforked processes; those that are ranks by now are none. They are
 * reaped as all others, and forgotten at once. */
void prefork_close(struct prefork *s);

/* Read messages, 64 at most: if more wait, the socket stays readable. */
void prefork_hear(struct prefork *s);

/* Is this child the parent or a preforked process? One that has just become our child has been
 * announced. */
bool prefork_know(struct prefork *s, pid_t pid);

enum prefork_gone { PREFORK_NOT_OURS, PREFORK_ONE_GONE, PREFORK_PARENT_GONE };

/* A child was reaped: if it is one of these, it is one no more. Without the parent there are no
 * preforked processes either. */
enum prefork_gone prefork_forget(struct prefork *s, pid_t pid);

enum prefork_taken {
    PREFORK_TOOK,      /* all are ranks now, orders[].pid is filled in */
    PREFORK_NO_PARENT, /* no parent has preforked processes for us */
    PREFORK_TOO_FEW,   /* nothing was done */
    PREFORK_NO_ANSWER  /* prefork_close() was done; those with orders[].pid != 0 are ranks */
};

/* Make ranks of n preforked processes. Where they are used up the parent is asked for others: it
 * forks them sooner than a rank could be executed, unless it is busy with imports.
 *
 * orders       n of them, of which only fds are looked at; pid is written
 * image_fd     of image.h; the i-th worker in it is orders[i]
 * until_ms     of common/clock.h; for preforked processes that are promised, and for answers. A
 *              promise is waited for no longer than PREFORK_PROMISE_MS */
enum prefork_taken prefork_take(struct prefork *s, int first_rank, struct spawn_order *orders,
                                int n, int image_fd, uint64_t until_ms);

#endif
