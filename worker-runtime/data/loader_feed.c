#include "loader_feed.h"

#include "common/error.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/device/device.h"
#include "worker-runtime/device/device_load.h"

#include <errno.h>

int loader_feed_open(struct loader_feed *f, struct ddp_group *g, void *stream, unsigned n_places,
                     size_t bytes, struct co_error *err)
{
    struct loader_feed made = {.group = g, .stream = stream};
    if (g->is_apart)
        return co_fail(err, -ENOTSUP,
                       "threads of a process share its GPU: ranks that use GPUs are processes");
    int code = device_load(g->world->group.local_rank, &made.plugin, &made.device, err);
    if (code == 0)
        code = made.plugin->check(made.device, err);
    if (code == 0)
        code = made.plugin->h2d_copy_open(made.device, n_places, bytes, &made.feed, err);
    if (code == 0)
        *f = made;
    return code;
}

/* Of a GPU that is lost to this process, or that a fork did not inherit, nothing can be freed, nor
 * where something on the stream does not end. */
void loader_feed_close(struct loader_feed *f)
{
    struct co_error err = {0};
    if (f->feed != NULL && !process_is_forked()) {
        if (device_end_waits(f->group, f->stream) && f->plugin->check(f->device, &err) == 0)
            f->plugin->h2d_copy_close(f->feed);
    }
    *f = (struct loader_feed){0};
}

int loader_feed_look(const struct loader_feed *f, bool is_late, struct co_error *err)
{
    return device_look(f->group, f->stream, is_late, err);
}

int loader_feed_sent(const struct loader_feed *f, unsigned place, struct co_error *err)
{
    return f->plugin->h2d_copy_sent(f->feed, place, err);
}

int loader_feed_send(const struct loader_feed *f, unsigned place, const struct device_span *span,
                     size_t n, struct co_error *err)
{
    return f->plugin->h2d_copy_send(f->feed, place, span, n, err);
}

int loader_feed_take(const struct loader_feed *f, unsigned place, struct co_error *err)
{
    return f->plugin->h2d_copy_take(f->feed, place, f->stream, err);
}

int loader_feed_give(const struct loader_feed *f, unsigned place, struct co_error *err)
{
    return f->plugin->h2d_copy_give(f->feed, place, f->stream, err);
}
