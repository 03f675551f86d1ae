/* race.h - which operations happen before which, and which accesses of memory are not ordered.
 * Pure.
 *
 * Each agent (the host, each stream) has a vector clock. An operation on a stream happens after
 * what the host had seen when it queued it, after all earlier ones on the same stream, and after
 * the events that the stream had to wait for. The host has seen what it has waited for. Two
 * accesses of the same bytes of which one writes are a race if neither happens before the other,
 * in whatever order they happened to run this time. */
#ifndef DDP_TESTS_NCCL_DOUBLE_RACE_H
#define DDP_TESTS_NCCL_DOUBLE_RACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RACE_HOST = 0, RACE_AGENTS = 64, RACE_NAME_BYTES = 24, RACE_TEXT_BYTES = 256 };

struct race_clock {
    uint32_t of[RACE_AGENTS];
};

struct race { /* zeroed at first */
    struct race_clock agent[RACE_AGENTS];
    struct race_access *access;
    size_t n, cap;
};

void race_fini(struct race *r);

/* An agent begins an operation, which sees what `by` has seen: the host, that queues it. */
void race_begin(struct race *r, unsigned agent, unsigned by);

/* Merge what is seen: by an event that is recorded, waited for, or a stream that is waited for. */
void race_see(struct race *r, unsigned agent, const struct race_clock *seen);

/* The operation that the agent has begun touches memory. Kept until it is freed.
 *
 * returns   false: it races, and `text` names both operations. -ENOMEM is also a race */
bool race_touch(struct race *r, unsigned agent, const char *name, const void *at, size_t bytes,
                bool writes, char text[RACE_TEXT_BYTES]);

/* Memory was freed: later memory at that address does not conflict with it. */
void race_forget(struct race *r, const void *at, size_t bytes);

#endif
