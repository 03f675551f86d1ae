/* post_mortem.h - after a generation that did not end well: gather what is known, make the report,
 * tell who watches, pass the root cause on to whoever started us. */
#ifndef DDP_LAUNCHER_REPORTING_POST_MORTEM_H
#define DDP_LAUNCHER_REPORTING_POST_MORTEM_H

#include <stdint.h>

struct co_error;
struct events;
struct hang_finding;
struct job_spec;
struct oom_watch;
struct rank_io;
struct report;
struct report_job;
struct roster_restart;
struct supervisor;

struct post_mortem { /* all borrowed */
    const struct job_spec *spec;
    const struct supervisor *supervisor;
    struct events *events;
    struct oom_watch *oom; /* it has noted the failure, if there was one */
    const struct rank_io *io;
    const char *runtime_dir;
    const struct hang_finding *hang; /* the root cause was ended for it; NULL: not */
    uint64_t begun_ms;
    const struct report_job *job;         /* NULL: this node was alone */
    const struct roster_restart *restart; /* what follows; NULL: nothing, the job is over */
};

/* Writes the root cause to the file TORCHELASTIC_ERROR_FILE names, if a rank failed. Nothing in
 * here can fail the job any further: its own troubles are a line of the report.
 *
 * returns   the report, to free(); NULL: nothing to say, or no memory */
char *post_mortem(const struct post_mortem *p);

/* --- the report for programs --- */

/* One JSON object in a file, written at the job's end, whatever it was.
 *
 *     version      1; grows when the meaning of a key changes
 *     job          the run id
 *     outcome      "ok", "rank_failed", "start_failed", "signal", "timeout", "internal"; of several
 *                  nodes "ok", "rank_failed", "too_few" (nodes left), "missing" (nodes, or the
 *                  place where they meet), "ended" (by another node), "signal" (this one)
 *     exit_code    0 to 255, what the job's end means
 *     signal       "signal": its number; else null
 *     verdict      null, or of several nodes: node (where it began, or null), rank (or null), text
 *     restarts     how often all ranks were started again
 *     duration_s   of the whole job
 *     host, program
 *     root_cause   null, or the rank of "rank_failed" and "start_failed", if it is of this node:
 *                  rank, local_rank, pid, exit_code, signal, error (its own message), stderr
 *                  (its last lines); null where there is none. "start_failed": errno, and why as
 *                  the error; oom (oom_report.h)
 *     ranks        this node's of the last generation: rank, local_rank, pid, exit_code, signal,
 *                  stopped_by (the first signal that ddprun sent it), duration_s; null where
 *                  there is none */

/* Write it to path, whole or not at all: by way of path.PID.tmp beside it.
 *
 * returns   0, -ENOMEM, -errno (the text names the file) */
int report_json_write(const char *path, const struct report *r, const char *run_id,
                      struct co_error *err);

#endif
