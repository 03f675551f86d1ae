/* standby.h - a process that waits for a rank that fails, to take its place (ddprun --standby). It
 * has all that a rank has, and no number. */
#ifndef DDP_WORKER_RUNTIME_JOIN_STANDBY_H
#define DDP_WORKER_RUNTIME_JOIN_STANDBY_H

struct co_error;

/* If this process is one: make its memory ready, wait until ddprun sends whose place it takes, and
 * put RANK, LOCAL_RANK, ROLE_RANK and TORCHELASTIC_ERROR_FILE into the environment, as if it had
 * been started as that rank. Waits as long as the job lasts; a signal that ends processes ends it.
 *
 * returns   0, also of a process that is a rank; -ECANCELED the job is over and did not need it;
 *           -ENOEXEC the environment, or ddprun's message, is invalid; -ENOMEM, -errno */
int standby_wait(struct co_error *err);

#endif
