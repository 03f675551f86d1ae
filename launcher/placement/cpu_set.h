/* cpu_set.h - sets of CPUs, as the kernel numbers them. Pure. */
#ifndef DDP_LAUNCHER_PLACEMENT_CPU_SET_H
#define DDP_LAUNCHER_PLACEMENT_CPU_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;

#define CPU_SET_CPUS 8192 /* of a machine; the kernel's own bound */

struct cpu_set { /* bit by bit, in the form of sched_setaffinity(2); zeroed: empty */
    uint64_t word[CPU_SET_CPUS / 64];
};

static inline void cpu_set_add(struct cpu_set *s, unsigned cpu) /* cpu < CPU_SET_CPUS */
{
    s->word[cpu / 64] |= UINT64_C(1) << cpu % 64;
}

static inline bool cpu_set_has(const struct cpu_set *s, unsigned cpu)
{
    return cpu < CPU_SET_CPUS && (s->word[cpu / 64] >> cpu % 64 & 1) != 0;
}

size_t cpu_set_count(const struct cpu_set *s);

/* As the kernel writes it: "0-3,8,10-11"; "" for the empty set.
 *
 * n         bytes at `to`, at least 1: what does not fit is cut behind a number, with "..." if
 *           there is room
 * returns   to */
char *cpu_set_print(const struct cpu_set *s, char *to, size_t n);

/* The same read back; a line's end may follow, and "" is the empty set.
 *
 * returns   0; -EINVAL: no such list, or a CPU out of bounds */
int cpu_set_parse(const char *text, struct cpu_set *ret);

#endif
