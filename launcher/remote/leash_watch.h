/* leash_watch.h - what comes by the leash of a node that runs: signals for its ranks, which concern
 * the whole job, and the starter's end, of which this node leaves the job. */
#ifndef DDP_LAUNCHER_LEASH_WATCH_H
#define DDP_LAUNCHER_LEASH_WATCH_H

#include <uv.h>

struct co_error;
struct leash_watch; /* opaque */

struct leash_watch_notes {
    void (*on_signal)(void *arg, int sig);
    void (*on_gone)(void *arg); /* once; nothing comes after it */
    void *arg;
};

/* fd        borrowed
 * returns   0, -ENOMEM, -errno */
int leash_watch_open(uv_loop_t *loop, int fd, const struct leash_watch_notes *notes,
                     struct leash_watch **ret, struct co_error *err);
void leash_watch_close(struct leash_watch *w); /* from the loop; NULL is fine */

#endif
