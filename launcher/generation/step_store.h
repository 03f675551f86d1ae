/* step_store.h - the store of a step whose ranks a scheduler has started, and which no ddprun
 * supervises: a process next to rank 0 serves it, and ends with rank 0.
 *
 * The process is a child of the caller, which becomes rank 0 by execve(). A rank that waits for its
 * children does not see it: it is a child without SIGCHLD, which only __WALL and __WCLONE find. */
#ifndef DDP_LAUNCHER_GENERATION_STEP_STORE_H
#define DDP_LAUNCHER_GENERATION_STEP_STORE_H

#include <stdint.h>

struct allow_list;
struct co_error;

struct step_store_opts {
    const char *host; /* as for listen_for(): where the ranks of all nodes connect */
    uint16_t port;
    const struct allow_list *allow; /* as in struct server_opts; NULL: all other machines */
    void (*on_refused)(void *arg, const char *text); /* as above; called in the new process */
    void *arg;
};

/* Start it; it listens when this returns. The caller has one thread.
 *
 * returns   0, -EADDRINUSE, -EACCES, -ENOMEM, -errno */
int step_store_start(const struct step_store_opts *opts, struct co_error *err);

#endif
