/* output.h - the ranks' stderr: passed on unchanged, its last lines kept.
 *
 * Bytes of a rank stay in order; what several ranks write mixes by what came together, as it does
 * on a shared terminal. At most OUTPUT_CHUNK bytes wait inside: while stderr takes no more, ranks
 * that write find their pipes full and wait, those that don't are not touched, and the loop goes
 * on. */
#ifndef DDP_LAUNCHER_OUTPUT_H
#define DDP_LAUNCHER_OUTPUT_H

#include <uv.h>

#define OUTPUT_CHUNK 65536

struct co_error;
struct output; /* opaque */

/* to_fd     where it goes; borrowed
 * returns   0, -ENOMEM */
int output_create(uv_loop_t *loop, int n_ranks, int to_fd, struct output **ret,
                  struct co_error *err);

/* rank's pipe, read end, non-blocking; owned by output from here on, even on failure.
 *
 * returns   0, -errno */
int output_add(struct output *o, int rank, int fd);

/* Lines of our own, in between ("ddprun: ..."), the last ended by a newline, too. Dropped while
 * the sink is full; cut to OUTPUT_CHUNK. */
void output_say(struct output *o, const char *lines);

/* Nobody writes any more: pass on what the pipes hold, then call on_drained: from the loop, or
 * before this returns. */
void output_drain(struct output *o, void (*on_drained)(void *arg), void *arg);

/* See tail_copy(): the last lines of rank, or NULL. */
char *output_tail(const struct output *o, int rank);

/* Stop reading, close the pipes; ranks that still write get SIGPIPE. Frees o when the loop has
 * closed its handles; NULL is fine. */
void output_close(struct output *o);

#endif
