/* small_acts.h - what can happen next in a small world, and to let it happen. */
#ifndef TESTS_SIM_SMALL_ACTS_H
#define TESTS_SIM_SMALL_ACTS_H

#include "small_world.h"

enum { MAX_ACTS = 64 };

enum act_type {
    START,
    CONNECT,
    DELIVER,
    OPEN,
    FINISH,
    RID,
    KEEP,
    SAVE,
    BREAK,
    SEE,
    CHECK, /* its check of its health succeeds */
    MEET,
    STEP,
    FAULT, /* which one: struct act.detail */
    HEAL,
    WRITE,   /* the record of the newest generation */
    CONFIRM, /* and the roster knows */
    TICK,    /* time moves to the next deadline of any node */
};

struct act {
    uint8_t type, node, link, detail; /* detail: direction, or enum fault */
};

struct acts {
    struct act items[MAX_ACTS];
    int n;
};

/* All of them; ret is written over. */
void acts_list(const struct world *w, struct acts *ret);
void act_do(struct world *w, struct act act);

/* Has every ddprun ended? */
bool acts_are_over(const struct world *w);

#endif
