/* start.h - ask the spawner for ranks: what each of them executes, its environment, what it has as
 * descriptors. */
#ifndef DDP_LAUNCHER_START_START_H
#define DDP_LAUNCHER_START_START_H

#include "launcher/job/worker_env.h"

#include <stdint.h>

struct co_error;
struct generation;
struct job_spec;
struct spawner;
struct pmi_host;
struct rank_io;
struct supervisor;

struct start {
    const struct job_spec *spec; /* borrowed, as the five below */
    const struct spawner *spawner;
    const struct rank_io *io;
    const char *runtime_dir;
    const struct generation *gen;
    struct pmi_host *pmi;                /* borrowed; of this generation; NULL: none */
    char *const *environment;            /* borrowed; ours, as ranks inherit it */
    struct generation_place place;       /* what its ranks get about the job ... */
    int first_rank;                      /* ... and the number there of this node's first */
    int encrypt_fd;                      /* borrowed; of data_secret.h; -1: none */
    int memory_fd;                       /* borrowed; of checkpoint_memory.h; -1: none */
    const struct supervisor *supervisor; /* borrowed: which of its ranks are left out */
    struct worker_env *env;              /* owned; NULL: made by the first start */
};

/* Ask for n ranks, from local rank `first` on, 1 to SPAWN_AT_ONCE: they are started together.
 *
 * ret_n        how many were asked for: less than n if the next one could not be
 * returns      0; -EPIPE, -EAGAIN: of the spawner; else -errno: of rank first + *ret_n */
int start_ranks(struct start *s, int first, int n, int *ret_n);

struct standby_ends {  /* ours, of what a standby has */
    int out[2];        /* pipes of its standard output and error */
    int node_fd;       /* SOCK_SEQPACKET */
    int checkpoint_fd; /* stream; -1: ranks have none */
    int progress_fd;   /* of a pipe */
};

extern const struct standby_ends standby_ends_none; /* all are -1 */

/* Ask for a process that waits for a rank to take.
 *
 * number    by which the spawner knows it: n_local or more
 * bytes     as for worker_env_make_standby()
 * ret       owned by the caller, which closes them
 * returns   0, -errno */
int start_standby(struct start *s, int number, uint64_t bytes, struct standby_ends *ret);
void standby_ends_close(struct standby_ends *e); /* those that are -1 are fine */

/* The next generation has another environment. A zeroed one is fine. */
void start_fini(struct start *s);

#endif
