/* nvml.h - facts about the GPUs of this node from NVIDIA's NVML, which is loaded when it is asked
 * for. NVML may hang: only a process that may be killed calls this (health_probe.h).
 *
 * A node without NVML, or whose NVML finds no driver, has no facts about GPUs, and no trouble: it
 * may have none. */
#ifndef DDP_LAUNCHER_HEALTH_NVML_H
#define DDP_LAUNCHER_HEALTH_NVML_H

#include "health_checks.h"

struct nvml; /* opaque */

/* Load it, and begin to note Xids.
 *
 * library   "libnvidia-ml.so.1"
 * visible   the GPUs of the job, as CUDA_VISIBLE_DEVICES has them; NULL: all
 * ret       to close; NULL: there are no GPUs to check
 * trouble   of HEALTH_TEXT_BYTES: why NVML cannot be used although it is there; "": it can, or is
 *           not there */
void nvml_open(const char *library, const char *visible, struct nvml **ret, char *trouble);
void nvml_close(struct nvml *n); /* NULL is fine */

/* Fill gpus, n_gpus and gpu_trouble. NULL is fine: no GPUs. */
void nvml_read(struct nvml *n, struct health_facts *ret);

/* Fill fabric or fabric_trouble; gpu_trouble is known. NULL is fine: no GPUs. */
void nvml_read_fabric(struct nvml *n, struct health_facts *ret);

#endif
