/* device_link.h - the communicator of a group, for the files that call the plug-in with it. */
#ifndef DDP_WORKER_RUNTIME_DEVICE_DEVICE_LINK_H
#define DDP_WORKER_RUNTIME_DEVICE_DEVICE_LINK_H

#include "device_plugin.h"

struct ddp_group;

struct device_link { /* of a group */
    const struct device_plugin *plugin;
    struct device_group *group;
    struct device_link *next; /* of world.devices */
};

/* How the plug-in asks about the job that the group belongs to. */
struct device_job device_job_of(const struct ddp_group *g);

#endif
