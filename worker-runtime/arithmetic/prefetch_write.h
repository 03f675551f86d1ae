/* prefetch_write.h - ask for memory that is about to be written, ahead of time.
 *
 * What another processor has read or written last must be taken away from it before it can be
 * written here. A claim starts that without waiting for it; one that comes to nothing does no
 * harm. */
#ifndef DDP_WORKER_RUNTIME_ARITHMETIC_PREFETCH_WRITE_H
#define DDP_WORKER_RUNTIME_ARITHMETIC_PREFETCH_WRITE_H

#include <stddef.h>

#define CLAIM_LINE 64

static inline __attribute__((always_inline)) void prefetch_write_line(const void *p)
{
#if defined(__x86_64__) /* the compiler has an instruction for it only where told so */
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
    __builtin_prefetch(p, 1);
#endif
}

/* The lines that begin in [from, from + bytes) of `p`, but none from `end` on. */
static inline __attribute__((always_inline)) void claim(const void *p, size_t from, size_t bytes,
                                                        size_t end)
{
    const size_t to = end < from + bytes ? end : from + bytes;
    for (size_t at = from; at < to; at += CLAIM_LINE)
        prefetch_write_line((const char *)p + at);
}

#endif
