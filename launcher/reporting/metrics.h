/* metrics.h - what ddprun knows of its node and job, as Prometheus has it (text format 0.0.4): the
 * page /metrics of --http. Names and labels are in docs/reference/metrics.md. Pure. */
#ifndef DDP_LAUNCHER_REPORTING_METRICS_H
#define DDP_LAUNCHER_REPORTING_METRICS_H

#include <stdio.h>

struct status;

/* Failures of `out` are its caller's. */
void metrics_print(const struct status *s, FILE *out);

#endif
