/* ctl_commands.h - ddpctl's commands. What they print to stdout the caller flushes. */
#ifndef DDP_CTL_CTL_COMMANDS_H
#define DDP_CTL_CTL_COMMANDS_H

#include "ctl/base/ctl.h"
#include "ctl_job_cli.h"

/* Those that ask a job: ps, status, logs, stack, stop, restart. */
enum ctl_exit ctl_job(const struct ctl_job_task *task);

/* `ddpctl top`: the jobs and their ranks, drawn over each second. */
enum ctl_exit ctl_top(const struct ctl_job_task *task);

/* `ddpctl report`: what happened in a job, as a page for a browser. */
enum ctl_exit ctl_report(const struct ctl_job_task *task);

/* `ddpctl check`: are nodes fit for a job, and do they reach each other? argv[0] is "check". */
enum ctl_exit ctl_check(int argc, char **argv);

/* `ddpctl store`: get, set, add, wait, delete, dump on any TCPStore server that speaks the dialect
 * of torch 2.2 and later. argv[0] is "store". */
enum ctl_exit ctl_store(int argc, char **argv);

#endif
