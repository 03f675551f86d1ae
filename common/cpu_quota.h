/* cpu_quota.h - the processor time that our control group may use: so much in each period. */
#ifndef DDP_COMMON_CPU_QUOTA_H
#define DDP_COMMON_CPU_QUOTA_H

#include <stdint.h>

struct co_cpu_quota {
    int64_t quota_us;  /* 1 to 10^12, in ... */
    int64_t period_us; /* ... each such time: 1 to 10^6 */
};

/* Pure. Of cgroup v2 the content of cpu.max, of v1 those of cpu.cfs_quota_us and cpu.cfs_period_us,
 * one behind the other: two numbers, with blanks or a line's end between.
 *
 * returns   0
 *           -ENOENT   no quota: "max 100000", "-1 100000"
 *           -EINVAL   no such text, or out of the bounds above */
int co_cpu_quota_parse(const char *text, struct co_cpu_quota *ret);

/* The tightest of our own control group and those above it, which share what they have.
 *
 * root      as for co_cgroup_find()
 * returns   0
 *           -ENOENT   there is none, or none that can be read
 *           -ENOMEM, -ENAMETOOLONG, -errno   our control group is not known */
int co_cpu_quota_read(const char *root, struct co_cpu_quota *ret);

/* Whole CPUs that it never exceeds, 0 for less than one; whole CPUs that are enough for it. */
static inline int64_t co_cpu_quota_floor(const struct co_cpu_quota *q)
{
    return q->quota_us / q->period_us;
}

static inline int64_t co_cpu_quota_ceil(const struct co_cpu_quota *q)
{
    return (q->quota_us + q->period_us - 1) / q->period_us;
}

#endif
