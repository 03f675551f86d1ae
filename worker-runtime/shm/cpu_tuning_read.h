/* cpu_tuning_read.h - the table that DDP_TUNING gives. */
#ifndef DDP_WORKER_RUNTIME_SHM_CPU_TUNING_READ_H
#define DDP_WORKER_RUNTIME_SHM_CPU_TUNING_READ_H

struct co_error;
struct cpu_tunings;

/* value     of the variable: the path of a file if there is a '/' in it, else the table itself;
 *           NULL or empty: the default
 * returns   0; -ENOEXEC: it is no table, or the file cannot be read */
int cpu_tuning_read(const char *value, struct cpu_tunings *ret, struct co_error *err);

#endif
