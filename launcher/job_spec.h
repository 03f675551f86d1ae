/* job_spec.h - what was asked of ddprun, checked: the answer of cli.h, the input of all else.
 *
 * Plain data. Made by cli_parse(), freed by job_spec_fini(). Texts and lists marked "owned" belong
 * to it. Ranks here are local ranks: this version runs on one node. */
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

enum signal_scope { SCOPE_PROCESS, SCOPE_GROUP };

struct job_spec {
    bool as_torchrun; /* started under the name torchrun: its defaults and its exit code 1 */
    bool dry_run;     /* show what would be started, start nothing */
    int verbose;      /* -v: 1, -vv: 2 */
    char *notes;      /* owned; warnings about the command line, whole lines; NULL: none */

    /* ranks and the environment */
    int n_local;       /* ranks on this node, 1 .. JOB_RANKS_MAX */
    char *run_id;      /* owned; never empty; no control characters, but '/' may be in it */
    char *role;        /* owned; "default"; may be empty */
    char *backend;     /* owned; --rdzv-backend as it was given, for events; "static" */
    char *master_addr; /* owned; a name of the loopback: "127.0.0.1", or "localhost" if so asked */
    uint16_t master_port; /* 0: any free one */
    enum store_choice store;
    int omp_threads;         /* OMP_NUM_THREADS for workers that have none; 0: leave it alone */
    bool omp_asked;          /* by --omp: an OMP_NUM_THREADS that is there already is replaced */
    bool virtual_local_rank; /* each rank has LOCAL_RANK 0 and one device in CUDA_VISIBLE_DEVICES */

    /* the program: see rank_argv.h for what one rank gets */
    char *path;  /* owned; what is executed: absolute, or as it was given if it holds a '/' */
    char **argv; /* owned, one block, NULL-terminated; argv[0] as the program shall see it */
    char *shown; /* owned; the program's name for messages: the script, the module, the program */
    int n_program_words;  /* argv up to here is the program, the rest are its arguments */
    bool has_templates;   /* an argument holds a '$' */
    char *local_rank_arg; /* owned; "--local_rank": NAME=<n> becomes the first argument; NULL: no */

    /* restarts and the end */
    int max_restarts;            /* failures of ranks that start all ranks again; 0: none */
    uint64_t restart_window_ms;  /* count only failures of so many last ms; 0: of the whole job */
    bool restart_after_progress; /* a failure after progress is not counted; restart_policy.h */
    uint64_t output_after_ms;    /* what a rank writes so long after its start is progress */
    bool no_restart_on[256];     /* by the exit code that the failure means for ddprun (a rank's, or
                                    128 + its signal): the job ends at once */
    uint64_t timeout_ms;         /* stop the job so long after its start, exit 124; 0: never */
    uint64_t grace_ms;           /* after a signal: from forwarding it to SIGKILL */
    uint64_t failure_grace_ms;   /* after a failed rank: from SIGTERM to SIGKILL */
    uint64_t stop_signals;   /* bit N: signal N, passed on, ends the job. TERM, INT, HUP and QUIT
                                    always; never KILL, STOP, CHLD, CONT, WINCH, nor a fault's */
    char *signals_to_handle; /* owned; TORCHELASTIC_SIGNALS_TO_HANDLE, as it was given */
    enum signal_scope signal_scope; /* who gets the first signal: a rank's main process, or its
                                       process group */

    struct output_spec output; /* owned; where what the ranks write goes, and who reads our stdin */

    /* seeing */
    char *events;   /* owned; --events, a path for JSON lines; NULL: none */
    bool event_log; /* --event-log-handler console: torchrun's records on stderr */
    char *report;   /* owned; --report, a path for the report as JSON; NULL: none */
};

/* Does ddprun serve the store? */
bool job_spec_agent_store(const struct job_spec *spec);

void job_spec_fini(struct job_spec *spec); /* a zeroed one is fine; it is zeroed afterwards */

#endif
