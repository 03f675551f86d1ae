/* ctl_check.h - `ddpctl check`: are nodes fit for a job, and do they reach each other? */
#ifndef DDP_CTL_CTL_CHECK_H
#define DDP_CTL_CTL_CHECK_H

#include "ctl/base/ctl.h"

/* argv[0] is "check". */
enum ctl_exit ctl_check(int argc, char **argv);

#endif
