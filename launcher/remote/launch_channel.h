/* launch_channel.h - the end of a launch channel (launch_wire.h) at the node: a ddprun that another
 * one has started, before it is one like any other.
 *
 * Takes standard input over: the ranks' is /dev/null from then on. */
#ifndef DDP_LAUNCHER_REMOTE_LAUNCH_CHANNEL_H
#define DDP_LAUNCHER_REMOTE_LAUNCH_CHANNEL_H

#include "launch_wire.h"
#include "launcher/hosts/host_list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct co_error;
struct job_world;
struct launch_watch; /* opaque */

struct launch_channel {
    int fd;      /* owned; what else comes; close-on-exec */
    char *bytes; /* owned; the order's */
    size_t n_bytes;
    struct launch_order order;
    struct node_assignment assignment; /* from the order */
    char *endpoint;                    /* owned */
    char n_ranks[16];
};

/* Is ddprun to be started by a launch channel? argv is as main() got it. */
bool launch_is_asked_for(int argc, char *const *argv);
extern const char launch_word[]; /* the argument that asks for it */

/* Is ddprun asked whether it is compatible with a launching ddprun? launch_terms() is the answer
 * then. */
bool launch_is_asked_for_terms(int argc, char *const *argv);

/* What two ddpruns have to agree on for one to start the other: versions of the program, of launch
 * channels and of the channel to the roster. */
const char *launch_terms(void);

/* The same of a ddprun that is not started, by the bytes of its program: lent from them.
 *
 * returns   NULL: it is none */
const char *launch_terms_in(const uint8_t *bytes, size_t len);

/* Report that this node is up, wait for the order, and set the directory and the environment from
 * it. The wait ends with the order, or with the launching ddprun.
 *
 * null_fd   /dev/null
 * returns   0; launch_close() it
 *           -EPIPE    the launching ddprun is gone; nothing is to be reported
 *           -EPROTO, -E2BIG, -ENOMEM, -errno: the order, the directory, the variables; err has the
 *           reason */
int launch_open(int null_fd, struct launch_channel *ret, struct co_error *err);
void launch_close(struct launch_channel *l); /* a zeroed one is fine */

/* The secret that came with the order becomes the key.
 *
 * returns   0, -EPROTO (no digits), -ENOMEM, -ENOSYS */
int launch_make_key(struct launch_channel *l, struct job_world *w, struct co_error *err);

/* The command line is understood: what is written from now on is the ranks'. */
void launch_say_ready(void);

/* --- what comes by the channel of a node that runs --- */

/* Signals for its ranks, which concern the whole job, and the end of the launching ddprun, after
 * which this node leaves the job. */
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
