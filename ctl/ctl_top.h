/* ctl_top.h - `ddpctl top`: the jobs and their ranks, drawn over each second. */
#ifndef DDP_CTL_CTL_TOP_H
#define DDP_CTL_CTL_TOP_H

#include "ctl/base/ctl.h"
#include "ctl_job_cli.h"

/* Prints to stdout, which the caller flushes. */
enum ctl_exit ctl_top(const struct ctl_job_task *task);

#endif
