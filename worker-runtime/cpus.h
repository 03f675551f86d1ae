/* cpus.h - how many processors may these ranks use? For the choice between spinning and
 * sleeping. */
#ifndef DDP_WORKER_RUNTIME_CPUS_H
#define DDP_WORKER_RUNTIME_CPUS_H

#include <stddef.h>
#include <stdint.h>

#define CPUS_MASK_BYTES 1024 /* 8192 processors */

struct cpus_mask { /* of processors a rank may run on, bit by bit */
    uint64_t word[CPUS_MASK_BYTES / 8];
};

/* This thread's affinity. Empty if it cannot be had. */
void cpus_get_mask(struct cpus_mask *ret);
unsigned cpus_count(const struct cpus_mask *mask);

/* What the control groups of this process allow it in processor time, rounded up to whole
 * processors; UINT_MAX: no quota, or none that can be read. */
unsigned cpus_quota(void);

#endif
