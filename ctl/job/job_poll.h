/* job_poll.h - the jobs as they are now, with what their ranks use: looked at once, or again and
 * again. */
#ifndef DDP_CTL_JOB_JOB_POLL_H
#define DDP_CTL_JOB_JOB_POLL_H

#include "job_usage.h"
#include "jobs.h"

#include <stdint.h>

struct co_error;

struct job_poll { /* zeroed: nothing was looked at yet */
    struct jobs jobs;
    struct job_usage usage; /* since the look before */
};

/* All of them.
 *
 * timeout_ms   for their answers
 * returns      0, -ENOMEM */
int job_poll_all(struct job_poll *l, uint64_t timeout_ms, struct co_error *err);

/* The nodes of one job, each with an answer.
 *
 * name      as jobs_select()
 * returns   as jobs_select(); -ETIMEDOUT one of them does not answer */
int job_poll_at(struct job_poll *l, const char *name, uint64_t timeout_ms, struct co_error *err);

void job_poll_fini(struct job_poll *l);

#endif
