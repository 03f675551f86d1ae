/* device_kernels.c - kernels of the plug-in: work on this rank's GPU that no other rank takes part
 * in. */
#include "device.h"

#include "common/error.h"
#include "device_plugin.h"

/* CUDA may wait for the whole device to load them, and knows nothing of peers that died. */
int device_load_kernels(struct ddp_group *g, void *stream)
{
    const struct device_plugin *plugin;
    struct device *device;
    struct co_error err = {0};
    int rc = device_get(g, &plugin, &device);
    if (rc == DDP_OK && group_any_device(g) != NULL)
        rc = device_wait(g, stream);
    return rc != DDP_OK ? rc : rt_return(plugin->load_kernels(device, &err), &err);
}

int device_norm(const struct ddp_group *g, enum device_norm step, const struct device_layer *layer,
                void *stream)
{
    const struct device_plugin *plugin;
    struct device *device;
    struct co_error err = {0};
    int rc = device_get(g, &plugin, &device);
    return rc != DDP_OK ? rc : rt_return(plugin->norm(device, step, layer, stream, &err), &err);
}

int device_clip(const struct ddp_group *g, const struct device_clip *c)
{
    const struct device_plugin *plugin;
    struct device *device;
    struct co_error err = {0};
    int rc = device_get(g, &plugin, &device);
    return rc != DDP_OK ? rc : rt_return(plugin->clip(device, c, &err), &err);
}
