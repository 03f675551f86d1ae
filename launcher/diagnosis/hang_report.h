/* hang_report.h - what hang.h has found, in words and as JSON, and what the kernel reports about a
 * process that makes no progress. Pure, except hang_proc_read(). */
#ifndef DDP_LAUNCHER_DIAGNOSIS_HANG_REPORT_H
#define DDP_LAUNCHER_DIAGNOSIS_HANG_REPORT_H

#include "launcher/supervisor/hang.h"
#include "launcher/supervisor/rank_numbers.h"

#include <jansson.h>
#include <stddef.h>
#include <sys/types.h>

enum { HANG_TEXT_BYTES = 512, HANG_CALL_BYTES = 96 };

/* "rank 1 is missing in all_reduce #812 (4 MiB, float32); ranks 0, 2 and 3 have waited in it for
 * 30 s"
 *
 * numbers   the job's, of this node's ranks
 * returns   buf */
char *hang_text(const struct hang_finding *f, struct rank_numbers numbers,
                char buf[HANG_TEXT_BYTES]);

/* "all_reduce #812 (4 MiB, float32)"; for a group of some of the ranks, " of group 3fa2" follows.
 * returns buf */
char *hang_text_call(const struct rank_status_call *call, char buf[HANG_CALL_BYTES]);

/* For programs, in --events and --report:
 *
 * {"kind": "missing", "stopped": false, "still_ms": 30100, "waiting": [0, 2, 3],
 *  "waiting_ms": 30050, "call": {"op": "all_reduce", "number": 812, "bytes": 4194304,
 *  "dtype": "float32", "group": 0}, "last": {...}, "timer": null}
 * kind: "missing", "not_joined", "all_wait", "silent", "timer", "asleep"; call, last, timer: null
 * if absent; waiting: at most 16 of them
 *
 * numbers   the job's, of this node's ranks
 * returns   owned by the caller; NULL: out of memory */
json_t *hang_json_make(const struct hang_finding *f, struct rank_numbers numbers);

/* --- what the kernel reports about a process --- */

struct hang_proc {
    char state; /* as proc_pid_stat(5) has it: 'R', 'S', 'D', 'T', ...; '?': gone */
    char place[HANG_PLACE_BYTES]; /* the kernel's function in which its main thread sleeps; "" */
};

/* Never waits. What cannot be read is left out. */
void hang_proc_read(pid_t pid, struct hang_proc *ret);

/* "sleeps in futex_wait", "is stopped", "runs". returns buf */
char *hang_proc_text(const struct hang_proc *p, char *buf, size_t n);

#endif
