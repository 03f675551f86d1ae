#include "job_poll.h"

#include "common/clock.h"
#include "common/error.h"

#include <errno.h>

int job_poll_all(struct job_poll *l, uint64_t timeout_ms, struct co_error *err)
{
    jobs_fini(&l->jobs);
    int rc = jobs_find(co_deadline_ms(timeout_ms), &l->jobs, err);
    uint64_t now_ms = co_now_ms();
    for (size_t i = 0; i < l->jobs.n; i++)
        job_usage_add(&l->usage, l->jobs.list[i].status, now_ms);
    return rc;
}

int job_poll_at(struct job_poll *l, const char *name, uint64_t timeout_ms, struct co_error *err)
{
    int rc = job_poll_all(l, timeout_ms, err);
    if (rc == 0)
        rc = jobs_select(&l->jobs, name, err);
    for (size_t i = 0; rc == 0 && i < l->jobs.n; i++)
        if (l->jobs.list[i].status == NULL)
            rc = co_fail(err, -ETIMEDOUT,
                         "the ddprun of %s does not answer: it may be stopped, or its machine be "
                         "very busy",
                         l->jobs.list[i].folder != NULL ? l->jobs.list[i].folder : "?");
    return rc;
}

void job_poll_fini(struct job_poll *l)
{
    jobs_fini(&l->jobs);
    job_usage_fini(&l->usage);
}
