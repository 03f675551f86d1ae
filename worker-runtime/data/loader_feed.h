/* loader_feed.h - the way of a loader's batches to the GPU: places of pinned memory that its thread
 * reads files into, each with its place on the GPU, which the program's stream uses.
 *
 * Two threads use a feed: the loader's own writes and sends places, the program's takes and gives
 * them back; a place is one thread's at a time. Functions return 0 or -errno. */
#ifndef DDP_WORKER_RUNTIME_DATA_LOADER_FEED_H
#define DDP_WORKER_RUNTIME_DATA_LOADER_FEED_H

#include "worker-runtime/device/device_plugin.h"

struct ddp_group;

enum { LOADER_FEED_ALIGNMENT = 256 }; /* of a span's start: that of cudaMalloc() */

struct loader_feed { /* zeroed: none */
    struct ddp_group *group;
    void *stream;
    const struct device_plugin *plugin; /* NULL: none */
    struct device *device;
    struct device_feed *feed;
};

/* g         borrowed: outlives the feed
 * stream    not NULL
 * returns   0; -ENOTSUP there is no GPU; -ENOEXEC a variable is wrong; -ENOMEM; -EIO */
int loader_feed_open(struct loader_feed *f, struct ddp_group *g, void *stream, unsigned n_places,
                     size_t bytes, struct co_error *err);

/* Ends what waits for a peer that died, waits for what uses places, and frees them. A zeroed one is
 * fine. */
void loader_feed_close(struct loader_feed *f);

static inline bool loader_feed_is_open(const struct loader_feed *f)
{
    return f->feed != NULL;
}

/* Whether the stream may still be waited for: the job is whole, as far as its communicators know.
 *
 * is_late   the time for waiting is over: what is on the stream has to be done by now
 * returns   0; as a wait for the stream */
int loader_feed_look(const struct loader_feed *f, bool is_late, struct co_error *err);

/* As the functions of struct device_plugin. */
int loader_feed_sent(const struct loader_feed *f, unsigned place, struct co_error *err);
int loader_feed_send(const struct loader_feed *f, unsigned place, const struct device_span *span,
                     size_t n, struct co_error *err);
int loader_feed_take(const struct loader_feed *f, unsigned place, struct co_error *err);
int loader_feed_give(const struct loader_feed *f, unsigned place, struct co_error *err);

#endif
