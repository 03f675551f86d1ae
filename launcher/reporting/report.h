/* report.h - why the job ended as it did, in a few lines for a human: the root cause first, then
 * the other ranks, grouped by sameness.
 *
 *     ddprun: error: rank 1 failed: exit status 3, 0.52 s after its start
 *       host n1, local rank 1, pid 12104, ./train.py
 *       terminated by ddprun because it hung: missing in all_reduce #812 (hang_report.h)
 *       out of memory: ... (oom_report.h)
 *       error: RuntimeError: bad thing happened
 *       last lines of its stderr:
 *         | ...
 *       its standard error is in /logs/job_x/attempt_0/1/stderr.log
 *       rank 3 also failed: ValueError: something else
 *         | ...
 *       ranks 0, 2-7: stopped by ddprun (SIGTERM) */
#ifndef DDP_LAUNCHER_REPORTING_REPORT_H
#define DDP_LAUNCHER_REPORTING_REPORT_H

#include "launcher/supervisor/goodput.h"
#include "launcher/supervisor/rank_numbers.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct hang_finding;
struct oom_finding;
struct member_end;
struct roster_restart;
struct supervisor_rank;

/* Of a job that a roster decides about. */
struct report_job {
    bool is_reported_elsewhere;   /* another ddprun reports what is not this node's own */
    int first_rank;               /* the number that the job gives local rank 0 */
    const struct member_end *end; /* how it ended for this node */
};

/* An exception that another rank has reported. */
struct report_stuck {  /* a process that outlived SIGKILL */
    int rank;          /* local */
    const char *where; /* stuck.h */
};

struct report_other {
    int rank;          /* local */
    bool is_own;       /* else it is about a lost peer */
    const char *error; /* "ValueError: ..." */
    const char *tail;  /* as in struct report; NULL: nothing */
};

struct report {
    const struct supervisor *supervisor;
    const char *host;
    const char *program; /* as the user knows it */
    const char *error;   /* the root cause's own message, of its error file; NULL: none. Of a
                            program that cannot be executed: why, never NULL */
    const struct oom_finding *oom;   /* NULL: nothing was looked for */
    const struct hang_finding *hang; /* the root cause was ended for it; NULL: not */
    const char *note;                /* a trouble of ours worth a line; NULL: none */
    const char *tail;                /* of tail_copy(); NULL: nothing, or not wanted */
    const char *log;                 /* the file with the root cause's standard error; NULL: none */
    const char *error_file;          /* that of `error`, if it stays; NULL */
    const char *log_trouble;         /* why its log file may be incomplete; NULL: it is not */
    const struct report_other *others;
    const struct report_stuck *stuck; /* that outlived SIGKILL; n_stuck of them */
    int n_stuck;
    int n_others;
    uint64_t begun_ms, now_ms;
    struct goodput_sums goodput;          /* until now_ms; for the file of --report */
    int max_restarts;                     /* of the job; 0: counted otherwise */
    bool after_progress;                  /* those after progress are not counted */
    uint32_t no_progress;                 /* --no-progress; 0: none */
    const struct report_job *job;         /* NULL: this node is alone */
    const struct roster_restart *restart; /* what follows; NULL: nothing, the job is over */
};

static inline struct rank_numbers report_numbers(const struct report *r)
{
    return (struct rank_numbers){.first = r->job != NULL ? r->job->first_rank : 0,
                                 .supervisor = r->supervisor};
}

/* Is what failed here what ended the job? */
bool report_is_ours(const struct report *r);

/* Nothing if all went well; one line if a restart follows. */
void report_print(FILE *out, const struct report *r);

enum {
    REPORT_STATUS_BYTES = 160,
    REPORT_END_BYTES = 2 * REPORT_STATUS_BYTES,
    REPORT_FATE_BYTES = 2 * REPORT_STATUS_BYTES,
    REPORT_SIGNAL_BYTES = 32,
    REPORT_DURATION_BYTES = 48
};

/* "exit status 3", "killed by SIGSEGV (Segmentation fault), core dumped". returns buf */
char *report_status(int status, char *buf, size_t n);

/* The same for a rank that has ended: "killed by SIGUSR1 (User defined signal 1), which ddprun
 * forwarded"; "stopped by ddprun (SIGTERM) while it failed", for a rank that had reported its error
 * before. returns buf */
char *report_end(const struct supervisor_rank *r, char *buf, size_t n);

/* What became of any rank: the above, "succeeded", "stopped by ddprun (SIGTERM)", "not started".
 * Those that are not the root cause share a line of the report where this text is the same. */
void report_fate(const struct supervisor_rank *r, char *buf, size_t n);

/* "SIGTERM". returns buf */
char *report_signal(int sig, char *buf, size_t n);

/* "0.52 s", "2 h 3 min". returns buf */
char *report_duration(uint64_t ms, char *buf, size_t n);

#define REPORT_TAIL_LINES                                                                          \
    12 /* printed of the tail, more only where a Python traceback begins earlier */

#endif
