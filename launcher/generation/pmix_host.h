/* pmix_host.h - PMIx for this node's ranks: the plug-in (rendezvous/pmix/pmix_plugin.h) in ddprun's
 * loop, a namespace for each generation, and what Open MPI needs in the environment and on disk.
 *
 * Where libpmix and Open MPI put files:
 *
 *     DIRECTORY/pmix/                 libpmix's
 *     DIRECTORY/pmix/GENERATION/      Open MPI's session directory, a directory in it for each rank
 *     SHARED/mpi/                     what ranks map; empty when a generation begins
 *
 * They are in directories that the spawner removes if ddprun is killed.
 *
 * What a rank does decides how its end counts (mpi_end.h). */
#ifndef DDP_LAUNCHER_GENERATION_PMIX_HOST_H
#define DDP_LAUNCHER_GENERATION_PMIX_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct co_error;
struct cpu_set;
struct pmix_host; /* opaque */
struct worker_variable;

struct pmix_host_opts {
    int n_local;
    bool has_others;              /* several nodes take part */
    const char *directory;        /* borrowed: the job's own */
    const char *shared_directory; /* borrowed: the same, in memory; may be the same one */

    void (*on_note)(void *arg, const char *text); /* something worth a line on the terminal */
    /* It is to end; called for the first one. status: as it will count */
    void (*on_abort)(void *arg, int local_rank, int status);
    /* The data of the other nodes is there. failure: 0; -errno: no rank can be started, and the
     * note has the reason */
    void (*on_ready)(void *arg, int failure);
    void *arg;
};

struct pmix_host_place {
    int first_rank; /* this node's */
    uint32_t world_size, generation;
    uint32_t node, n_nodes; /* node < n_nodes */
    const char *store_host; /* of several nodes; borrowed for the call */
    uint16_t store_port;
    const int *appnum; /* which program each local rank has; borrowed for the call; NULL: all have
                        * the same */
    const struct cpu_set *const
        *cpus; /* of each local rank; borrowed for the call; NULL: not bound */
};

/* Load the plug-in and start libpmix's server. Once in a process, and early: older versions of
 * libpmix cannot use descriptors of 1024 or more.
 *
 * returns   0
 *           -ELIBACC, -ELIBBAD   as pmix_load(), and libpmix of another major version
 *           -EMFILE, -EIO, -ENOMEM, -errno */
int pmix_host_open(uv_loop_t *loop, const struct pmix_host_opts *opts, struct pmix_host **ret,
                   struct co_error *err);

/* A generation; the one before has no ranks any more. With several nodes, its ranks wait for
 * on_ready() while pmix_host_is_meeting().
 *
 * returns   0, -EIO, -EPROTO, -ENOMEM, -errno */
int pmix_host_begin(struct pmix_host *h, const struct pmix_host_place *place, struct co_error *err);

bool pmix_host_is_meeting(const struct pmix_host *h);

/* What its ranks have in their environment. Lent until the next generation. returns how many */
size_t pmix_host_variables(const struct pmix_host *h, const struct worker_variable **ret);

/* A rank has ended: what it has asked for until then counts. The arguments and the result as in
 * pmi_host_rank_gone(); a rank that was made to fail has aborted. */
int pmix_host_rank_gone(struct pmix_host *h, int local_rank, int status, bool was_signaled,
                        bool *ret_aborted);

/* Let the ranks of this generation end that call MPI_Abort: until then they wait in it, with their
 * connections. */
void pmix_host_answer_aborts(struct pmix_host *h);

/* Not from on_note or on_abort. NULL allowed. */
void pmix_host_close(struct pmix_host *h);

#endif
