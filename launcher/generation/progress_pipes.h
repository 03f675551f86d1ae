/* progress_pipes.h - the pipes of a node's ranks into which programs write their steps
 * (progress_lines.h). The number of its end is in each rank's DDP_PROGRESS_FD.
 *
 * A rank that writes never waits: its end is non-blocking, and a line that does not fit is lost;
 * the next one has a larger number. ddprun is woken by the first line, and then looks every
 * PROGRESS_LOOK_MS at the pipes of all ranks until one is quiet for two seconds: with 64 ranks that
 * take two steps a second, to be woken by each line is most of ddprun's processor time. */
#ifndef DDP_LAUNCHER_GENERATION_PROGRESS_PIPES_H
#define DDP_LAUNCHER_GENERATION_PROGRESS_PIPES_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct progress;
struct progress_pipes; /* opaque; of one generation, or of several that share ranks */

enum { PROGRESS_LOOK_MS = 250 };

struct progress_pipes_opts {
    int n_local;
    /* A rank wrote a line that is none: a text without newline, once for each rank. NULL: not of
     * interest */
    void (*on_note)(void *arg, const char *text);
    void *arg;
};

/* returns   0, -ENOMEM, -errno */
int progress_pipes_create(uv_loop_t *loop, const struct progress_pipes_opts *opts,
                          struct progress_pipes **ret);

/* Make a rank's pipe; it replaces an earlier one, and what was read from that.
 *
 * ret_worker_fd   the worker's end, owned by the caller; close-on-exec
 * returns         0, -ENOMEM, -errno */
int progress_pipes_add(struct progress_pipes *p, int rank, int *ret_worker_fd);

/* The same for a rank that has its end already.
 *
 * fd   ours, of a pipe; owned from here on, even on failure */
int progress_pipes_adopt(struct progress_pipes *p, int rank, int fd);

/* A pipe as progress_pipes_add() makes it: [0] ours, [1] the worker's. returns 0, -errno */
int progress_pipes_open(int ret[2]);

/* Read what a rank has written by now: it has ended. */
void progress_pipes_drain(struct progress_pipes *p, int rank);

/* What a rank has reported in this generation.
 *
 * ret          only_steps
 * ret_digest   another number when it has reported something
 * returns      whether there is anything */
bool progress_pipes_read(const struct progress_pipes *p, int rank, struct progress *ret,
                         uint64_t *ret_digest);

/* The signal that it has named for its stack; 0: none. */
int progress_pipes_stack_signal(const struct progress_pipes *p, int rank);

/* A generation begins in which ranks continue. */
void progress_pipes_renew(struct progress_pipes *p);

/* Frees p when the loop has closed its handles; NULL is fine. */
void progress_pipes_close(struct progress_pipes *p);

#endif
