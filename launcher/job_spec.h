/* job_spec.h - what was asked of ddprun, checked: the answer of cli.h, the input of all else.
 *
 * Plain data. Made by cli_parse(), freed by job_spec_fini(). */
#ifndef DDP_LAUNCHER_JOB_SPEC_H
#define DDP_LAUNCHER_JOB_SPEC_H

#include "output_spec.h"

#include <stdbool.h>
#include <stdint.h>

#define JOB_RANKS_MAX 1024 /* of one node */

enum store_choice {
    STORE_AUTO,  /* a world of 1: none; else in ddprun */
    STORE_AGENT, /* in ddprun */
    STORE_WORKER /* rank 0 of the script hosts it, as it would without a launcher */
};

struct job_spec {
    bool as_torchrun;  /* started under the name torchrun: its defaults and its exit code 1 */
    int n_local;       /* ranks on this node, 1 .. JOB_RANKS_MAX */
    char *run_id;      /* owned; never empty */
    char *role;        /* owned; "default" */
    char *master_addr; /* owned; a name of the loopback: "127.0.0.1", or "localhost" if so asked */
    uint16_t master_port; /* 0: any free one */
    enum store_choice store;
    uint64_t grace_ms;         /* after a signal: from forwarding it to SIGKILL */
    uint64_t failure_grace_ms; /* after a failed rank: from SIGTERM to SIGKILL */
    int omp_threads;           /* OMP_NUM_THREADS for workers that have none; 0: leave it alone */
    bool omp_asked;            /* by --omp: an OMP_NUM_THREADS that is there already is replaced */
    int verbose;               /* -v: 1, -vv: 2 */
    struct output_spec output; /* owned; where what the ranks write goes */

    char *path;  /* owned; what is executed: absolute, or as it was given if it holds a '/' */
    char **argv; /* owned, one block, NULL-terminated; argv[0] as the program shall see it */
    char *shown; /* owned; the program's name for messages: the script, the module, the program */
};

void job_spec_fini(struct job_spec *spec); /* a zeroed one is fine; it is zeroed afterwards */

#endif
