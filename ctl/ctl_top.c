/* ctl_top.c - ddpctl top: polls the jobs of this machine and draws them until a key, a signal, or
 * the end of the job.
 *
 * Read show_until_key() first: top_poll() asks the jobs, draw() prints a frame (ctl/top),
 * top_screen_wait() waits for a key or the next poll, and obey() carries the key out. show_once()
 * prints one frame. */
#include "ctl_commands.h"

#include "common/error.h"
#include "common/scope.h"
#include "ctl/job/jobs.h"
#include "ctl/top/top_frame.h"
#include "ctl/top/top_screen.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SAMPLE_MS = 200 }; /* --once: processor time is measured over this time */

struct top {
    const struct ctl_job_task *task;
    struct top_view view;
    struct jobs jobs;
    bool has_seen; /* a job that was named, at least once */
    struct co_error err;
};

/* returns   0; -ENOENT there is no such job */
static int top_poll(struct top *t)
{
    int rc = jobs_poll(&t->jobs, false, t->task->timeout_ms, &t->err);
    if (rc == 0 && t->task->job != NULL)
        rc = jobs_select(&t->jobs, t->task->job, &t->err);
    t->has_seen |= rc == 0;
    return rc;
}

static int print(struct top *t, FILE *out)
{
    size_t n = 0;
    char when[16];
    const struct jobs *jobs = &t->jobs;
    co_autofree json_t **statuses = calloc(jobs->n + 1, sizeof *statuses);
    if (statuses == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < jobs->n; i++) /* those that do not answer may do so the next time */
        if (jobs->list[i].status != NULL)
            statuses[n++] = jobs->list[i].status;
    time_t now = time(NULL);
    struct tm local;
    strftime(when, sizeof when, "%H:%M:%S", localtime_r(&now, &local));
    t->view.when = when;
    return top_frame_print(&t->view, statuses, n, out);
}

static enum ctl_exit top_fail(struct top *t, int rc)
{
    if (rc == -ENOENT || rc == -EEXIST)
        return ctl_fail(CTL_EXIT_NO, &t->err);
    return ctl_fail(rc == -ENOMEM ? CTL_EXIT_INTERNAL : CTL_EXIT_UNAVAILABLE, &t->err);
}

static enum ctl_exit show_once(struct top *t)
{
    int rc = top_poll(t);
    if (rc == 0) {
        poll(NULL, 0, SAMPLE_MS);
        rc = top_poll(t);
    }
    if (rc < 0)
        return top_fail(t, rc);
    return print(t, stdout) < 0 ? CTL_EXIT_INTERNAL : CTL_EXIT_OK;
}

/* returns   whether to continue */
static bool obey(struct top *t, int key)
{
    switch (key) {
    case 'r':
        t->view.order = TOP_BY_RANK;
        return true;
    case 'c':
        t->view.order = TOP_BY_CPU;
        return true;
    case 'm':
        t->view.order = TOP_BY_MEMORY;
        return true;
    case 'o':
        t->view.order = TOP_BY_OWN;
        return true;
    default:
        return key != 'q' && key != TOP_KEY_END;
    }
}

static int draw(struct top *t)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (out == NULL)
        return -ENOMEM;
    top_screen_size(&t->view.width, &t->view.height);
    int rc = print(t, out);
    fclose(out);
    if (rc == 0 && !top_screen_draw(text))
        rc = -EIO;
    free(text);
    return rc;
}

/* The end of a job that was named is the end; without a name others may follow. */
static enum ctl_exit show_until_key(struct top *t)
{
    int rc = top_poll(t);
    if (rc == 0)
        rc = top_screen_open(&t->err);
    if (rc < 0)
        return rc == -ENOTTY ? ctl_fail(CTL_EXIT_IO, &t->err) : top_fail(t, rc);
    do {
        rc = draw(t);
    } while (rc == 0 && obey(t, top_screen_wait(t->task->watch_ms)) && (rc = top_poll(t)) == 0);
    top_screen_close();
    if (rc == -EIO)
        return CTL_EXIT_IO;
    return rc == 0 || (rc == -ENOENT && t->has_seen) ? CTL_EXIT_OK : top_fail(t, rc);
}

enum ctl_exit ctl_top(const struct ctl_job_task *task)
{
    struct top t = {.task = task};
    t.view.order = task->order;
    enum ctl_exit code = task->once ? show_once(&t) : show_until_key(&t);
    jobs_fini(&t.jobs);
    return code;
}
