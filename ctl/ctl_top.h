/* ctl_top.h - `ddpctl top`: the jobs and their ranks, drawn over each second. */
#ifndef DDP_CTL_CTL_TOP_H
#define DDP_CTL_CTL_TOP_H

#include "ctl.h"

enum ctl_exit ctl_top(int argc, char **argv); /* argv[0] is "top" */

#endif
