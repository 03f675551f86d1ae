/* call.h - the signature of a collective call: what all ranks must agree on. Pure. */
#ifndef DDP_WORKER_RUNTIME_CALL_H
#define DDP_WORKER_RUNTIME_CALL_H

#include <ddp/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum call_kind {
    CALL_BARRIER = 1,
    CALL_ALL_REDUCE,
    CALL_REDUCE,
    CALL_BROADCAST,
    CALL_ALL_GATHER,
};

struct call { /* travels through shared memory; what a kind doesn't use is 0 */
    uint8_t kind;
    uint8_t dtype;
    uint8_t op;
    uint8_t zero;
    int32_t root;
    uint64_t count;
};

#define CALL_TEXT_BYTES 96

/* Write it as a user would: "reduce(float32, sum, 100, root 2)". Made for messages: it accepts
 * signatures that another process wrote wrongly. Returns text. */
const char *call_format(const struct call *call, char text[CALL_TEXT_BYTES]);

bool call_same(const struct call *a, const struct call *b);

#endif
