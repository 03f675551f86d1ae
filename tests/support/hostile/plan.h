/* plan.h - what a hostile client will do: the bytes it sends, in what pieces, and how it ends.
 * Pure: all that is random comes from the seed. */
#ifndef DDP_TESTS_SUPPORT_HOSTILE_PLAN_H
#define DDP_TESTS_SUPPORT_HOSTILE_PLAN_H

#include "common/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum plan_kind {
    PLAN_GREETING, /* of another protocol: a scanner's, a browser's */
    PLAN_NOISE,
    PLAN_RANDOM,  /* requests that can be understood, in any order and of any dialect */
    PLAN_MUTATED, /* the same with bytes changed, lost, doubled, put in */
    PLAN_HALF,    /* cut somewhere, and then silence */
    PLAN_PROMISE, /* of a value of megabytes, of which little comes */
    PLAN_CROWD,   /* waits for thousands of keys */
    PLAN_GLUTTON, /* asks for large replies and does not read them */
    PLAN_FLOOD,   /* a megabyte of small requests, as fast as they are taken */
    PLAN_NOTHING, /* comes and goes */
    PLAN_N_KINDS,
};

extern const char *const plan_names[PLAN_N_KINDS];

struct plan {
    enum plan_kind kind;
    struct co_buf bytes;
    size_t piece_bytes; /* sent at a time */
    bool reads;         /* takes its replies */
    unsigned hold;      /* stays silent, when all is sent, until so many others have begun */
    bool resets;        /* ends with a reset instead of an orderly end */
};

/* The plan that `seed` and `number` stand for, the same each time. Not all of it need be refused.
 *
 * returns   0, -ENOMEM */
int plan_init(struct plan *p, uint64_t seed, uint64_t number);
void plan_fini(struct plan *p);

#endif
