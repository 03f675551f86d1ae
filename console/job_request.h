/* job_request.h - what ddpctl asks of a job's ddprun: a line of words.
 *
 *     status                    all that ddprun knows of its node
 *     logs RANK FROM            what the rank wrote to stderr, after the first FROM bytes of it
 *     stop job|node SIGNAL      as if ddprun had received SIGNAL, for all nodes or for this one
 *     restart                   start all ranks again
 *     stack RANK|all SIGNAL tools|proc
 *                               where ranks are; SIGNAL is sent to those that have a handler for it
 *                               (0: none); tools: debuggers may be run, proc: not
 *
 * Pure. RANK is a rank's number in the job. Words are parted by one blank, numbers are decimal
 * without sign or leading zeros: a request can be written in one way only. The answer is also one
 * line: a JSON object with "v":1; {"v":1,"error":"TEXT"} when it cannot be done. */
#ifndef DDP_CONSOLE_JOB_REQUEST_H
#define DDP_CONSOLE_JOB_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;

#define JOB_REQUEST_BYTES      128 /* length of a line, including its newline */
#define JOB_REQUEST_RANK_MAX   9999999
#define JOB_REQUEST_SIGNAL_MAX 64
#define JOB_ANSWER_BYTES_MAX   ((size_t)16 << 20) /* ddpctl reads no longer one */

enum job_request_type {
    JOB_REQUEST_STATUS,
    JOB_REQUEST_LOGS,
    JOB_REQUEST_STOP,
    JOB_REQUEST_RESTART,
    JOB_REQUEST_STACK,
    JOB_REQUEST_N_TYPES,
};

struct job_request {
    enum job_request_type type;
    int32_t rank;   /* LOGS, STACK; -1: all, of STACK */
    uint64_t from;  /* LOGS */
    bool whole_job; /* STOP */
    bool has_tools; /* STACK */
    int signal;     /* STOP: 1 .. JOB_REQUEST_SIGNAL_MAX; STACK: also 0 */
};

/* Read a line without its newline.
 *
 * returns   0; -EINVAL (not a request; the text has the reason) */
int job_request_read(const char *line, size_t len, struct job_request *ret, struct co_error *err);

/* Write it, its newline and a NUL included. returns how many bytes, the NUL not counted */
size_t job_request_write(const struct job_request *r, char buf[JOB_REQUEST_BYTES]);

#endif
