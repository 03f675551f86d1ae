/* ctl_report.h - `ddpctl report`: what happened in a job, as a page for a browser. */
#ifndef DDP_CTL_CTL_REPORT_H
#define DDP_CTL_CTL_REPORT_H

#include "ctl/base/ctl.h"
#include "ctl_job_cli.h"

/* Prints to stdout, which the caller flushes. */
enum ctl_exit ctl_report(const struct ctl_job_task *task);

#endif
