/* muster.h - the hosts of a job on their way to becoming its nodes: which is reached for next, when
 * the others are told to begin, and when there are too few. Pure.
 *
 * Nobody begins before it is known who is there: hosts that cannot be reached are all found before
 * the first rank runs, and named together. With MIN:MAX nodes those that are late need not be
 * waited for: the others begin a while after there are enough, and late ones join. */
#ifndef DDP_LAUNCHER_MUSTER_H
#define DDP_LAUNCHER_MUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct muster; /* opaque */

enum muster_phase {
    MUSTER_IDLE,     /* its turn has not come */
    MUSTER_REACHING, /* the way there was started */
    MUSTER_UP,       /* a ddprun there has answered */
    MUSTER_TOLD,     /* it has been told what to do */
    MUSTER_READY,    /* and has understood: it is a node */
    MUSTER_FAILED,   /* it did not become one */
    MUSTER_ENDED,    /* it was one */
    MUSTER_N_PHASES
};

struct muster_limits {
    size_t n_hosts;     /* > 0 */
    size_t min_nodes;   /* > 0 */
    size_t at_once;     /* as many are reached for at a time, > 0 */
    uint64_t reach_ms;  /* so long one may take to answer */
    uint64_t window_ms; /* so long those that are late are waited for once min_nodes are up */
};

struct muster *muster_create(const struct muster_limits *limits); /* NULL without memory */
void muster_destroy(struct muster *m);                            /* NULL is fine */

/* A host has come to another phase; REACHING and UP begin times. */
void muster_set(struct muster *m, size_t host, enum muster_phase phase, uint64_t now_ms);
enum muster_phase muster_get(const struct muster *m, size_t host);
size_t muster_count(const struct muster *m, enum muster_phase phase);

/* The host to be reached for now; -1: none. */
ptrdiff_t muster_next(const struct muster *m);

/* A host that has not answered in time; -1: none. */
ptrdiff_t muster_late(const struct muster *m, uint64_t now_ms);

enum muster_state {
    MUSTER_GATHERS,
    MUSTER_GOES,     /* all who are UP are to be told, now and later */
    MUSTER_IS_SHORT, /* there will not be enough, and no more is going to be learned */
    MUSTER_IS_OVER,  /* it had begun, and nobody is left */
};
enum muster_state muster_look(const struct muster *m, uint64_t now_ms);

/* When to look again, at the latest; CO_NEVER_MS: only something new changes the answers. */
uint64_t muster_deadline_ms(const struct muster *m);

#endif
