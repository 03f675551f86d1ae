/* env_value.h - the values of the variables of ddp/env.h which a user sets for libddp: one table.
 * Joining fails with an invalid value, whether joining uses it or not.
 *
 * Not in it: free text (DDP_JOB_ID, DDP_SOCKET_IFNAME, DDP_TRACE), DDP_TUNING, which is a table of
 * its own (shm/cpu_tuning.h), and what a launcher sets (join/env.h). */
#ifndef DDP_WORKER_RUNTIME_CORE_ENV_VALUE_H
#define DDP_WORKER_RUNTIME_CORE_ENV_VALUE_H

struct co_error;

#define ENV_VALUE_LANES_MOST 16 /* of DDP_SOCKET_LANES */
#define ENV_VALUE_LANES_AUTO "auto"

/* value     NULL or "": not set
 * returns   0; -ENOEXEC "invalid value 'VALUE' for NAME: expected ..." */
int env_value_check(const char *name, const char *value, struct co_error *err);

/* All of this process's variables. returns 0; -ENOEXEC as above, of the first in the table */
int env_value_check_all(struct co_error *err);

#endif
