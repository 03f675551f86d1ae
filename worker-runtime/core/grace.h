/* grace.h - how much longer than its timeout a wait for ranks of other nodes may take. Pure.
 *
 * A rank that is waited for may itself wait for a third one. The timeout alone does not show which
 * of the two is late: the waiting rank asks the others, and blames a rank only after that rank has
 * been silent for a while (tcp/straggler.h). Waits inside a node that depend on such a wait take as
 * much longer. */
#ifndef DDP_WORKER_RUNTIME_CORE_GRACE_H
#define DDP_WORKER_RUNTIME_CORE_GRACE_H

#include <stdint.h>

/* How long a rank may be silent without being blamed: long enough for a live rank to get a
 * processor on a busy machine. */
static inline uint64_t grace_silence_ms(uint64_t timeout_ms)
{
    enum { LEAST_MS = 3000, MOST_MS = 10000 };
    const uint64_t part_ms = timeout_ms / 4;
    return part_ms < LEAST_MS ? LEAST_MS : part_ms > MOST_MS ? MOST_MS : part_ms;
}

/* How much longer than its timeout a wait takes at most. */
static inline uint64_t grace_ms(uint64_t timeout_ms)
{
    return 2 * grace_silence_ms(timeout_ms);
}

#endif
