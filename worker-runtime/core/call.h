/* call.h - the signature of a collective call: what all ranks must agree on. Pure. */
#ifndef DDP_WORKER_RUNTIME_CORE_CALL_H
#define DDP_WORKER_RUNTIME_CORE_CALL_H

#include "segments/call_kind.h"

#include <ddp/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;

enum call_form {
    CALL_EQUAL = 0, /* blocks of `count` elements */
    CALL_COUNTS,    /* a count for each rank: `count` is their sum, `digest` identifies them */
    CALL_PAIRS,     /* all_to_all: a count for each pair of ranks, not part of the signature */
    CALL_CHECKED,   /* all_reduce: blocks of `count`, and all ranks ask whether all is finite */
};

struct call { /* travels through shared memory; what a kind doesn't use is 0 */
    uint8_t kind;
    uint8_t dtype;
    uint8_t op;
    uint8_t form;
    int32_t root;
    uint64_t count;
    uint64_t digest; /* distinguishes arrays of counts */
};

#define CALL_TEXT_BYTES 104

/* Write it as a user would: "reduce(float32, sum, 100, root 2)". Made for messages: it accepts
 * signatures that another process wrote wrongly. Returns text. */
const char *call_format(const struct call *call, char text[CALL_TEXT_BYTES]);

struct call_side {    /* a rank's, where two ranks call different things */
    const char *rank; /* its name */
    const struct call *call;
    uint32_t number;
};

/* "RANK called CALL as call #N where RANK called CALL". If both sides made the same call, the text
 * names possible reasons. returns -EPROTO */
int call_fail_mismatch(const struct call_side *a, const struct call_side *b, struct co_error *err);

static inline bool call_same(const struct call *a, const struct call *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->form == b->form &&
           a->root == b->root && a->count == b->count && a->digest == b->digest;
}

static inline bool call_is_reduction(enum call_kind kind) /* has an operation */
{
    return kind == CALL_ALL_REDUCE || kind == CALL_REDUCE || kind == CALL_REDUCE_SCATTER;
}

bool call_has_root(enum call_kind kind);

#endif
