/* report_json.h - the report for programs: one JSON object in a file, written at the job's end,
 * whatever it was.
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
#ifndef DDP_LAUNCHER_REPORTING_REPORT_JSON_H
#define DDP_LAUNCHER_REPORTING_REPORT_JSON_H

struct co_error;
struct report;

/* Write it to path, whole or not at all: by way of path.PID.tmp beside it.
 *
 * returns   0, -ENOMEM, -errno (the text names the file) */
int report_json_write(const char *path, const struct report *r, const char *run_id,
                      struct co_error *err);

#endif
