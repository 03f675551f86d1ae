/* report.h - why the job ended as it did, in a few lines for a human: the root cause first, then
 * the other ranks, grouped by sameness.
 *
 *     ddprun: rank 1 failed: exit status 3, 0.52 s after its start
 *       host n1, local rank 1, pid 12104, ./train.py
 *       out of memory: killed by the kernel's OOM killer (oom_text.h)
 *       error: RuntimeError: bad thing happened
 *       last lines of its stderr:
 *         | ...
 *       ranks 0, 2-7: stopped by ddprun (SIGTERM) */
#ifndef DDP_LAUNCHER_REPORT_H
#define DDP_LAUNCHER_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct oom_finding;
struct supervisor;

struct report {
    const struct supervisor *supervisor;
    const char *host;
    const char *program; /* as the user knows it */
    const char *error;   /* the root cause's own message, of its error file; NULL: none. Of a
                            program that cannot be executed: why, never NULL */
    const struct oom_finding *oom; /* NULL: nothing was looked for */
    const char *note;              /* a trouble of ours worth a line; NULL: none */
    const char *tail;              /* of tail_copy(); NULL: nothing, or not wanted */
    uint64_t begun_ms, now_ms;
    int max_restarts;    /* of the job; 0: counted otherwise */
    bool after_progress; /* those after progress are not counted */
};

/* Nothing if all went well; one line if the failure is followed by a restart. */
void report_print(FILE *out, const struct report *r);

/* "exit status 3", "killed by SIGSEGV (Segmentation fault), core dumped". returns buf */
char *report_status(int status, char *buf, size_t n);

#define REPORT_TAIL_LINES                                                                          \
    12 /* printed of the tail, more only where a Python traceback begins earlier */

#endif
