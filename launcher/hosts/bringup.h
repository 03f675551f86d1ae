/* bringup.h - the hosts of a job on their way to becoming its nodes: which is reached for next,
 * when the others are started, and when too few are left. Pure.
 *
 * No node starts before it is known which hosts are up: hosts that cannot be reached are all found
 * before the first rank runs, and named together. With MIN:MAX nodes, the job does not wait for
 * late hosts: the others start a while after enough are up, and late ones join. */
#ifndef DDP_LAUNCHER_HOSTS_BRINGUP_H
#define DDP_LAUNCHER_HOSTS_BRINGUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bringup; /* opaque */

enum bringup_phase {
    BRINGUP_IDLE,     /* its turn has not come */
    BRINGUP_AGAIN,    /* the way there was not open, or was lost: the next attempt follows after a
                       * pause */
    BRINGUP_REACHING, /* the way there was started */
    BRINGUP_UP,       /* a ddprun there has answered */
    BRINGUP_ORDERED,  /* it has its order */
    BRINGUP_READY,    /* and has understood: it is a node */
    BRINGUP_FAILED,   /* it did not become one */
    BRINGUP_ENDED,    /* it was one */
    BRINGUP_N_PHASES
};

struct bringup_limits {
    size_t n_hosts;     /* > 0 */
    size_t min_nodes;   /* > 0 */
    size_t at_once;     /* as many are reached for at a time, > 0 */
    uint64_t reach_ms;  /* so long one may take to answer */
    uint64_t window_ms; /* so long those that are late are waited for once min_nodes are up */
    uint64_t pause_ms;  /* between two attempts to reach a host; 0: there is one attempt */
    uint64_t miss_ms;   /* so long after its first attempt, or its loss, further ones may begin */
};

struct bringup *bringup_create(const struct bringup_limits *limits); /* NULL without memory */
void bringup_destroy(struct bringup *m);                             /* NULL is fine */

/* A host has come to another phase; AGAIN, REACHING and UP begin times. */
void bringup_set(struct bringup *m, size_t host, enum bringup_phase phase, uint64_t now_ms);
enum bringup_phase bringup_get(const struct bringup *m, size_t host);
size_t bringup_count(const struct bringup *m, enum bringup_phase phase);

/* May a host that cannot be reached now, or a node that is lost, be reached for again?
 *
 * returns   whether an attempt is left: the host becomes AGAIN then */
bool bringup_may_retry(const struct bringup *m, size_t host, uint64_t now_ms);

/* Hosts whose pause is over are IDLE again. */
void bringup_wake(struct bringup *m, uint64_t now_ms);

/* The host to be reached for now; -1: none. */
ptrdiff_t bringup_next(const struct bringup *m);

/* A host that has not answered in time; -1: none. */
ptrdiff_t bringup_late(const struct bringup *m, uint64_t now_ms);

enum bringup_state {
    BRINGUP_GATHERS,
    BRINGUP_GOES,     /* all hosts that are UP get their order, now and later */
    BRINGUP_IS_SHORT, /* there will not be enough, and no more is going to be learned */
    BRINGUP_IS_OVER,  /* it had begun, and no host is left */
};
enum bringup_state bringup_look(const struct bringup *m, uint64_t now_ms);

/* When to look again, at the latest; CO_NEVER_MS: only something new changes the answers. */
uint64_t bringup_deadline_ms(const struct bringup *m);

#endif
