/* ctl_report.h - `ddpctl report`: what happened in a job, as a page for a browser. */
#ifndef DDP_CTL_CTL_REPORT_H
#define DDP_CTL_CTL_REPORT_H

#include "ctl.h"

enum ctl_exit ctl_report(int argc, char **argv); /* argv[0] is "report" */

#endif
