/* slices.h - deal a stretch of elements out to ranks and in pieces. Pure. */
#ifndef DDP_WORKER_RUNTIME_ARITHMETIC_SLICES_H
#define DDP_WORKER_RUNTIME_ARITHMETIC_SLICES_H

#include <stddef.h>

struct slice { /* in elements */
    size_t first, count;
};

/* Part `i` of `n` of `count` elements of `size` bytes: parts differ by at most a cache line, and
 * their borders are at multiples of 64 bytes from the start, so that two ranks seldom write to one
 * line. */
static inline struct slice slice_of(size_t count, size_t size, unsigned i, unsigned n)
{
    const size_t per_line = 64 / size;
    const size_t lines = count / per_line + (count % per_line != 0);
    /* lines * i / n without overflow */
    size_t from = (lines / n * i + lines % n * i / n) * per_line;
    size_t to = (lines / n * (i + 1) + lines % n * (i + 1) / n) * per_line;
    from = from < count ? from : count;
    to = to < count ? to : count;
    return (struct slice){from, to - from};
}

/* Piece number `i` of at most `most` elements; empty after the end. */
static inline struct slice slice_piece(size_t count, size_t most, size_t i)
{
    if (i > count / most)
        return (struct slice){count, 0};
    size_t first = i * most;
    return (struct slice){first, count - first < most ? count - first : most};
}

#endif
