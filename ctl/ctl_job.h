/* ctl_job.h - the commands that ask a job: ps, status, logs, stack, stop, restart. */
#ifndef DDP_CTL_CTL_JOB_H
#define DDP_CTL_CTL_JOB_H

#include "ctl/base/ctl.h"
#include "ctl_job_cli.h"

/* Prints to stdout, which the caller flushes. */
enum ctl_exit ctl_job(const struct ctl_job_task *task);

#endif
