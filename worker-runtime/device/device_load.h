/* device_load.h - the plug-in for devices: found and loaded at most once in a process, when
 * somebody needs it. Thread-safe. */
#ifndef DDP_WORKER_RUNTIME_DEVICE_DEVICE_LOAD_H
#define DDP_WORKER_RUNTIME_DEVICE_DEVICE_LOAD_H

struct co_error;
struct device;
struct device_plugin;

/* Lend the plug-in and the process's device.
 *
 * returns   0; -ENOTSUP the text says what is missing; -ENOEXEC a variable is wrong */
int device_load(int local_rank, const struct device_plugin **ret_plugin, struct device **ret,
                struct co_error *err);

/* Whether the process's device, if it has one, can be used any more.
 * returns   0; -EOWNERDEAD */
int device_load_check(struct co_error *err);

#endif
