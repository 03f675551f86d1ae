/* device_average.c - averages of gradients, by the plug-in: of a group that has a communicator. */
#include "device.h"

#include "common/error.h"
#include "device_link.h"

int device_average(struct ddp_group *g, const struct device_average *a)
{
    struct co_error err = {0};
    const struct device_link *l = g->device;
    return rt_return(l->plugin->average(l->group, a, &err), &err);
}

int device_enlist(struct ddp_group *g, const void *at)
{
    struct co_error err = {0};
    return rt_return(g->device->plugin->enlist(g->device->group, at, &err), &err);
}

void device_delist(struct ddp_group *g, const void *at)
{
    g->device->plugin->delist(g->device->group, at);
}

int device_take_words(struct ddp_group *g, uint32_t *words, uint32_t *ret_words, size_t n)
{
    struct co_error err = {0};
    const struct device_link *l = g->device;
    return rt_return(l->plugin->take_words(l->group, words, ret_words, n, &err), &err);
}

int device_copy_out(struct ddp_group *g, void *to, const void *from, size_t bytes)
{
    struct co_error err = {0};
    const struct device_link *l = g->device;
    return rt_return(l->plugin->copy_out(l->group, to, from, bytes, &err), &err);
}

int device_wait_averages(struct ddp_group *g)
{
    struct co_error err = {0};
    const struct device_link *l = g->device;
    return rt_return(l->plugin->wait_averages(l->group, 0, &err), &err);
}

/* --- in a graph ------------------------------------------------------------------------------- */

int device_is_capturing(const struct ddp_group *g, void *stream, bool *ret)
{
    const struct device_plugin *plugin;
    struct device *device;
    struct co_error err = {0};
    int rc = device_get(g, &plugin, &device);
    return rc != DDP_OK ? rc : rt_return(plugin->is_capturing(device, stream, ret, &err), &err);
}

int device_fork_averages(struct ddp_group *g, void *stream)
{
    struct co_error err = {0};
    return rt_return(g->device->plugin->fork_averages(g->device->group, stream, &err), &err);
}

int device_join_averages(struct ddp_group *g, void *stream)
{
    struct co_error err = {0};
    return rt_return(g->device->plugin->join_averages(g->device->group, stream, &err), &err);
}
