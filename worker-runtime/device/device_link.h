/* device_link.h - the plug-in and the process's device, and the communicator of a group, for the
 * files that call the plug-in. */
#ifndef DDP_WORKER_RUNTIME_DEVICE_DEVICE_LINK_H
#define DDP_WORKER_RUNTIME_DEVICE_DEVICE_LINK_H

#include "device_plugin.h"

struct ddp_group;

struct device_link { /* of a group */
    const struct device_plugin *plugin;
    struct device_group *group;
    struct device_link *next; /* of world.devices */
};

/* Lend the plug-in and the process's device. Thread-safe.
 *
 * returns   0; -ENOTSUP the text names what is missing; -ENOEXEC a variable is wrong */
int device_load(const struct ddp_group *g, const struct device_plugin **ret_plugin,
                struct device **ret, struct co_error *err);
/* The same, for a device that can be used, by a group of processes. returns also -EOWNERDEAD */
int device_take(const struct ddp_group *g, const struct device_plugin **ret_plugin,
                struct device **ret, struct co_error *err);

/* How the plug-in asks about the job that the group belongs to. */
struct device_job device_job_of(const struct ddp_group *g);

#endif
