/* cpu_quota.h - the processor time that our control group may use: so much in each period. */
#ifndef DDP_COMMON_CPU_QUOTA_H
#define DDP_COMMON_CPU_QUOTA_H

#include <stdint.h>

struct co_cpu_quota {
    int64_t quota_us;  /* 1 to 10^12, in ... */
    int64_t period_us; /* ... each such time: 1 to 10^6 */
};

/* Pure. The text is the content of cpu.max (cgroup v2), or of cpu.cfs_quota_us followed by that of
 * cpu.cfs_period_us (v1): two numbers, with blanks or a newline between.
 *
 * returns   0
 *           -ENOENT   no quota: "max 100000", "-1 100000"
 *           -EINVAL   not such a text, or out of the bounds above */
int co_cpu_quota_parse(const char *text, struct co_cpu_quota *ret);

/* The tightest quota of our own control group and of those above it, which share theirs.
 *
 * root      as for co_cgroup_find()
 * returns   0
 *           -ENOENT   no quota exists, or none can be read
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
