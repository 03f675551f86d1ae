/* job_conn.h - ddpctl's end of a job's socket: sends requests and receives answers. */
#ifndef DDP_CTL_JOB_JOB_CONN_H
#define DDP_CTL_JOB_JOB_CONN_H

#include "common/buf.h"
#include "common/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct job_request;

/* Send a request; job_conn_hear() waits for the answer, so that many jobs can be asked at once.
 *
 * fd        of job_directory_connect(), borrowed
 * returns   0, -EPIPE (the job is gone), -EAGAIN */
int job_conn_say(int fd, const struct job_request *r, struct co_error *err);

/* An answer that is awaited. */
struct job_hearing {
    int fd; /* borrowed; the caller's to set, in a zeroed one */
    struct co_buf in;
    bool is_over;
    int rc;              /* once it is over:
                            0
                            -EBADE      ddprun refused the request; the text is ddprun's
                            -ETIMEDOUT  no answer arrived by the deadline
                            -EPIPE      the connection ended before
                            -EPROTO     the answer is invalid or too long
                            -ENOMEM */
    json_t *answer;      /* owned; NULL unless rc is 0 */
    struct co_error err; /* else */
};
void job_hearing_fini(struct job_hearing *h);

/* Read answers until the wanted one is over; at deadline_ms (common/clock.h) all that have not
 * arrived are over. Answers of the others are also read as they arrive: a ddprun drops a client
 * that does not take its answer in time. */
void job_conn_hear(struct job_hearing *list, size_t n, size_t wanted, uint64_t deadline_ms);

/* Read one answer.
 *
 * ret_answer   an object, json_decref() it
 * returns      as struct job_hearing has it */
int job_conn_hear_one(int fd, uint64_t deadline_ms, json_t **ret_answer, struct co_error *err);

/* Send a request, and read the answer.
 *
 * ret_answer   an object, json_decref() it
 * returns      as job_conn_say() and struct job_hearing */
int job_conn_ask(int fd, const struct job_request *r, uint64_t deadline_ms, json_t **ret_answer,
                 struct co_error *err);

#endif
