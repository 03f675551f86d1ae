/* health_facts.h - reads the facts of health_checks.h from /proc, file systems, and sysfs. May take
 * as long as a file system does not answer: health_probe.h has a process for that. */
#ifndef DDP_LAUNCHER_HEALTH_HEALTH_FACTS_H
#define DDP_LAUNCHER_HEALTH_HEALTH_FACTS_H

#include "health_checks.h"

/* Memory, disks and links; nothing of GPUs (nvml.h).
 *
 * root      put in front of /proc and /sys; "" except in tests
 * log_dir   NULL: none */
void health_facts_read(const struct health_checks *c, const char *root, const char *log_dir,
                       struct health_facts *ret);

#endif
