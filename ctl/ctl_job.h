/* ctl_job.h - the commands that ask a job: ps, status, logs, stack, stop, restart. */
#ifndef DDP_CTL_CTL_JOB_H
#define DDP_CTL_CTL_JOB_H

#include "ctl.h"

enum ctl_exit ctl_job(int argc, char **argv); /* argv[0] is the command */

#endif
