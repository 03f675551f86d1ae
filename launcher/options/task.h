/* task.h - a ddprun that a scheduler has started once for each rank: it becomes that rank. Nobody
 * watches over the ranks then but the scheduler. */
#ifndef DDP_LAUNCHER_OPTIONS_TASK_H
#define DDP_LAUNCHER_OPTIONS_TASK_H

struct co_error;
struct job_spec;

/* Execute the program with the rank's environment: in spec->task's place, and with a store that
 * rank 0 itself serves.
 *
 * returns   only if that failed: -ENOMEM; -ENOENT, -EACCES as program_explain_exec_error() */
int task_become(const struct job_spec *spec, struct co_error *err);

#endif
