/* job_report.h - --report: how a job ended, and why, as one JSON object in a file.
 *
 * One process writes it, for the whole job. The outcome of the ranks of each node arrives as a
 * MESSAGE_RESULT (message.h), also from this process itself; rendezvous/jobs/results.h has the way
 * and the receiver.
 *
 *     version      2; grows when the meaning of a key changes
 *     job          the run id
 *     outcome      "ok", "rank_failed", "start_failed", "signal", "timeout", "internal"; with
 *                  several nodes "ok", "rank_failed", "too_few" (nodes left), "missing" (nodes, or
 *                  the rendezvous endpoint), "ended" (by another node), "signal" (this one)
 *     exit_code    0 to 255, what the job's end means
 *     signal       "signal": its number; else null
 *     verdict      null, or with several nodes: node (where it began, or null), rank (or null),
 *                  text
 *     restarts     how many --max-restarts was charged with; null: not known
 *     generations  how often ranks were started, or continued, as a new group: 1 without restarts
 *     duration_s   of the whole job
 *     goodput      what the seconds were spent on, as goodput_json.h has it
 *     host         of the process that writes it
 *     program
 *     root_cause   null, or the rank of "rank_failed" and "start_failed": node, host, rank,
 *                  local_rank, pid, exit_code, signal, forwarded (ddprun got this signal and passed
 *                  it on), error (its own message), stderr (its last lines); null if absent.
 *                  "start_failed": errno, and why as the error; oom (oom_report.h), hang
 *                  (hang_report.h). If its node was lost before it reported: rank, exit_code, and
 *                  the text of the verdict as the error; the rest null
 *     unhealthy    nodes that failed a check of their health: node, reason (the last one), times,
 *                  unhealthy (whether it still was)
 *     ranks        those of the last generation, as far as their nodes have reported: node, host,
 *                  rank, local_rank, pid, exit_code, signal, stopped_by (the first signal that
 *                  ddprun sent it), lost_peer, was_failing, duration_s; null if absent */
#ifndef DDP_LAUNCHER_REPORTING_JOB_REPORT_H
#define DDP_LAUNCHER_REPORTING_JOB_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct goodput_sums;
struct health_list;
struct member_end;
struct message;
struct message_verdict;
struct report;

enum { JOB_REPORT_MAX_RANKS = 65536 };

/* How it ended; texts are lent. */
struct job_report_end {
    const char *run_id, *host, *program;
    const char *outcome;
    int exit_code;
    int signal; /* 0: none */
    bool has_others;
    const char *node, *text; /* has_others: of the verdict; NULL or empty: none */
    int rank;                /* as above; -1: none. It failed if that is the outcome */
    int64_t n_restarts;      /* -1: not known */
    uint32_t n_generations;
    uint64_t duration_ms;
    const struct goodput_sums *goodput;  /* NULL: not known */
    const char *output_error;            /* see output_error(); NULL: none */
    const struct health_list *unhealthy; /* nodes that were; NULL: none is known */
};

/* "rank_failed", ... */
const char *job_report_outcome(const struct member_end *end);
const char *job_report_outcome_alone(const struct report *r);

struct job_report_rank; /* opaque */

/* Zeroed: empty. */
struct job_report {
    struct job_report_rank *ranks; /* owned */
    size_t n_ranks, cap_ranks;
    char **hosts; /* owned, also each of them */
    size_t n_hosts, cap_hosts;
    char *cause; /* owned; JSON; NULL: none */
    bool has_generation;
    uint32_t generation; /* of the ranks */
};

void job_report_fini(struct job_report *j);

/* Add the RESULT of a node. Ranks of an earlier generation are dropped, and those beyond
 * JOB_REPORT_MAX_RANKS; the cause counts if it is JSON.
 *
 * returns   0, -ENOMEM */
int job_report_add(struct job_report *j, const struct message *result);

/* Write it to path, whole or not at all: through a draft in the same directory. Sorts the ranks.
 *
 * returns   0, -ENOMEM, -errno (the text names the file) */
int job_report_write(struct job_report *j, const struct job_report_end *end, const char *path,
                     struct co_error *err);

/* --- FILE of --report --- */

#define JOB_REPORT_NODE_RANK "{node_rank}"

/* Each node writes a file of its own. */
bool job_report_is_by_node(const char *path);

/* The file of this node. returns   to free(); NULL without memory */
char *job_report_path(const char *path, uint32_t node_rank);

#endif
