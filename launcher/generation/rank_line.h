/* rank_line.h - our end of a socket of which a rank has the other one.
 *
 * Watches it and closes it; what goes over it is its owner's business. */
#ifndef DDP_LAUNCHER_GENERATION_RANK_LINE_H
#define DDP_LAUNCHER_GENERATION_RANK_LINE_H

#include <uv.h>

struct rank_line; /* opaque */

struct rank_line_owner {
    /* From the loop: the event that is watched for has occurred, in uv_poll_t's words. A broken
     * socket counts as readable: reading returns the details. May close the line. */
    void (*on_event)(void *arg, int rank, int events);

    /* The loop has released a line that was closed. NULL: not needed. */
    void (*on_closed)(void *arg);
    void *arg;
};

/* Watch for what can be read.
 *
 * fd              of a socket; owned from here on, even on failure; made non-blocking. -1: a new
 *                 pair of sockets of this type, SOCK_STREAM or SOCK_SEQPACKET
 * owner           copied
 * ret_line        owned by the caller, which calls rank_line_close()
 * ret_worker_fd   with a new pair: the rank's end, owned by the caller; close-on-exec
 * returns         0, -ENOMEM, -errno */
int rank_line_open(uv_loop_t *loop, int type, int fd, int rank, const struct rank_line_owner *owner,
                   struct rank_line **ret_line, int *ret_worker_fd);

int rank_line_fd(const struct rank_line *l);

/* events   UV_READABLE, or that and UV_WRITABLE */
void rank_line_watch(struct rank_line *l, int events);

/* Close the socket, at once, and set *l to NULL: no event follows, only on_closed(), when the loop
 * has freed what is left in its next turn. A line that is NULL is fine. */
void rank_line_close(struct rank_line **l);

#endif
