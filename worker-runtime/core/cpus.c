#include "cpus.h"

#include "common/cpu_quota.h"

#include <limits.h>
#include <sched.h>

void cpus_get_mask(struct cpus_mask *ret)
{
    *ret = (struct cpus_mask){0};
    if (sched_getaffinity(0, sizeof *ret, (cpu_set_t *)ret) != 0)
        *ret = (struct cpus_mask){0};
}

unsigned cpus_count(const struct cpus_mask *mask)
{
    unsigned n = 0;
    for (size_t i = 0; i < sizeof mask->word / sizeof *mask->word; i++)
        n += (unsigned)__builtin_popcountll(mask->word[i]);
    return n;
}

void cpus_add(struct cpus_mask *mask, uint32_t cpu)
{
    if (cpu >= 1 && cpu <= 8 * sizeof mask->word)
        mask->word[(cpu - 1) / 64] |= UINT64_C(1) << (cpu - 1) % 64;
}

bool cpus_leave(const struct cpus_mask *taken)
{
    struct cpus_mask all, rest;
    cpus_get_mask(&all);
    for (size_t i = 0; i < sizeof all.word / sizeof *all.word; i++)
        rest.word[i] = all.word[i] & ~taken->word[i];
    if (cpus_count(&rest) == 0 || sched_setaffinity(0, sizeof rest, (cpu_set_t *)&rest) != 0)
        return false;
    sched_setaffinity(0, sizeof all, (cpu_set_t *)&all);
    return true;
}

/* Rounded up: a rank that spins soon stops and sleeps, so the part of a CPU pays for it; but ranks
 * that sleep where they could run at the same time lose a wake-up in each step. */
unsigned cpus_quota(void)
{
    struct co_cpu_quota quota;
    if (co_cpu_quota_read("", &quota) < 0)
        return UINT_MAX;
    int64_t n = co_cpu_quota_ceil(&quota);
    return n < UINT_MAX ? (unsigned)n : UINT_MAX;
}
