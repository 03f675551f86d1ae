/* cpus.h - how many processors may these ranks use? For the choice between spinning and
 * sleeping. And how to get off one that another rank is on. */
#ifndef DDP_WORKER_RUNTIME_CORE_CPUS_H
#define DDP_WORKER_RUNTIME_CORE_CPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPUS_MASK_BYTES 1024 /* 8192 processors */

struct cpus_mask { /* processors that a rank may run on; bit by bit */
    uint64_t word[CPUS_MASK_BYTES / 8];
};

/* This thread's affinity. Empty if it cannot be had. */
void cpus_get_mask(struct cpus_mask *ret);
unsigned cpus_count(const struct cpus_mask *mask);

void cpus_add(struct cpus_mask *mask, uint32_t cpu); /* counted from 1; others are left out */

/* Move this thread to one of its processors that is not `taken`, and leave its affinity as it was:
 * the system may move it again. returns whether that went well; false also if all are taken */
bool cpus_leave(const struct cpus_mask *taken);

/* What the control groups of this process allow it in processor time, rounded up to whole
 * processors; UINT_MAX: no quota, or none that can be read. */
unsigned cpus_quota(void);

#endif
