/* launch_watch.h - what comes by the launch channel of a node that runs: signals for its ranks,
 * which concern the whole job, and the starter's end, of which this node leaves the job. */
#ifndef DDP_LAUNCHER_REMOTE_LAUNCH_WATCH_H
#define DDP_LAUNCHER_REMOTE_LAUNCH_WATCH_H

#include <uv.h>

struct co_error;
struct launch_watch; /* opaque */

struct launch_watch_callbacks {
    void (*on_signal)(void *arg, int sig);
    void (*on_gone)(void *arg); /* once; nothing comes after it */
    void *arg;
};

/* fd        borrowed
 * returns   0, -ENOMEM, -errno */
int launch_watch_open(uv_loop_t *loop, int fd, const struct launch_watch_callbacks *callbacks,
                      struct launch_watch **ret, struct co_error *err);
void launch_watch_close(struct launch_watch *w); /* from the loop; NULL is fine */

#endif
