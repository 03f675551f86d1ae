/* pmi_host.h - PMI-1 for this node's ranks of one generation: their sockets around
 * rendezvous/pmi/pmi1_server.h, and the other nodes by pmi_exchange.h.
 *
 * What a rank does there decides how its end counts (mpi_end.h). */
#ifndef DDP_LAUNCHER_GENERATION_PMI_HOST_H
#define DDP_LAUNCHER_GENERATION_PMI_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct co_error;
struct pmi_host; /* opaque */

struct pmi_host_opts {
    int n_local, world_size;
    int first_rank; /* this node's, for messages */
    uint32_t node, n_nodes, generation;
    const char *store_host; /* of several nodes; borrowed for the call */
    uint16_t store_port;
    const int *appnum; /* which program each local rank has; borrowed; NULL: all have the same */

    void (*on_note)(void *arg, const char *text); /* something worth a line on the terminal */
    /* It waits to be ended; called for the first one. status: as it will count */
    void (*on_abort)(void *arg, int local_rank, int status);
    void *arg;
};

/* returns   0, -ENOMEM, -errno */
int pmi_host_open(uv_loop_t *loop, const struct pmi_host_opts *opts, struct pmi_host **ret,
                  struct co_error *err);

/* Make a rank's socket.
 *
 * ret_worker_fd   the worker's end, owned by the caller; close-on-exec
 * returns         0, -ENOMEM, -errno */
int pmi_host_add(struct pmi_host *h, int local_rank, int *ret_worker_fd);

/* A rank has ended: what it has sent until then is read.
 *
 * status        as waitpid() has it
 * was_signaled  ddprun had sent it a signal, so its end is not evidence about the job
 * ret_aborted   whether it had called MPI_Abort
 * returns       the status that counts */
int pmi_host_rank_gone(struct pmi_host *h, int local_rank, int status, bool was_signaled,
                       bool *ret_aborted);

/* Not from on_note or on_abort. What the loop still has to close lives on. NULL allowed. */
void pmi_host_close(struct pmi_host *h);

#endif
