/* status_json.h - what ddprun knows of its node, for clients of the job's socket: one JSON object.
 *
 *     v            1; keys that a reader does not know are to be ignored
 *     job          the run id
 *     pid, host    of this ddprun; version
 *     program      the words of the program and its arguments
 *     state        of supervisor.h: "STARTING", "RUNNING", ..., the same in lower case
 *     waiting      what the node waits for, in words; null: nothing
 *     generation   counted from 0; max_restarts
 *     events       the path of --events, absolute; null: none
 *     http         the address of --http; null: none
 *     age_ms       since the job's start
 *     node, nodes  this node's place among how many
 *     world        ranks of the whole job
 *     started_ms   since the job's start: when this node's generation was begun
 *     goodput      what the seconds of the job were spent on, as goodput_json.h has it
 *     nccl         null, or from the last poll of NCCL's RAS on the first node: age_ms, and what
 *                  ras_report_json_make() makes, or trouble: why it has no answer
 *     unhealthy    nodes that take part in no generation, since a check of their health has failed:
 *                  node, reason
 *     others       null, or with --http on the first node, for each other one: node, host, age_ms
 *                  (since it reported), stale, ranks (rank, pid, state, age_ms, exit_code, signal,
 *                  restarts, steps, own_ms, as below)
 *     pace         null, or from libddp's ranks: steps, step_ms, slowest (the rank), share (0 to 1:
 *                  how much of a step the others would save; pace.h)
 *     ranks        of this node: rank, local_rank, pid, state ("asked", "running", "ended", "not
 *                  started", "failed to start"), age_ms (it runs, or ran, for so long), started_ms,
 *                  came_ms, joined_ms and first_step_ms (since the start of the generation: exec;
 *                  looking for the others, by libddp or by a connection to the store; having joined
 *                  them, and a step completed, both from libddp), exit_code, signal, restarts (how
 *                  often it was replaced or started again), last_line (of its stderr, unless that
 *                  goes to a file without us), unreachable (what it cannot reach on another node,
 *                  as its libddp reports; null: nothing), and from libddp: steps, step_ms, own_ms
 *                  (without what it spent in the call that ends a step), waits, call (the last one
 *                  of the world, in words); null if absent
 *
 * Pure. */
#ifndef DDP_LAUNCHER_REPORTING_STATUS_JSON_H
#define DDP_LAUNCHER_REPORTING_STATUS_JSON_H

#include "segments/rank_status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct goodput_sums;
struct health_list;
struct job_figures;
struct job_spec;
struct pace;
struct ras_report;
struct supervisor;

struct status_rank {
    const char *last_line; /* lent; NULL: none */
    uint64_t output_ms;    /* when it last wrote something; 0: never, or not observed */
    const char *wait;      /* lent: what it cannot reach, as it reports; NULL, "": nothing */
    uint64_t came_ms;      /* 0: it has not looked for the others in this generation */
    uint32_t restarts;
    bool has_progress; /* the rest is known */
    struct progress progress;
    uint64_t own_ns; /* of a step; 0: fewer than two are completed */
};

struct status {
    const struct job_spec *spec; /* all borrowed */
    const struct supervisor *supervisor;
    const struct status_rank *ranks; /* as many as the supervisor has */
    const struct pace *pace;
    const struct goodput_sums *goodput;
    const char *host, *version;
    const char *waiting;                 /* NULL: nothing */
    const char *events;                  /* NULL: none */
    const char *http;                    /* where --http serves; NULL: not */
    const struct ras_report *nccl;       /* the last one of NCCL's RAS; NULL: none */
    const char *nccl_trouble;            /* why it has no report; NULL: it was not asked */
    uint64_t nccl_ms;                    /* when that was known */
    const struct health_list *unhealthy; /* nodes of the job; NULL: none is known */
    const struct job_figures *others; /* the other nodes, with --http on the first one; NULL: not */
    pid_t pid;
    int node, n_nodes, world, first_rank;
    uint64_t now_ms, begun_ms, generation_ms;
};

/* returns   one line, to free(); NULL: out of memory */
char *status_json_make(const struct status *s);

#endif
