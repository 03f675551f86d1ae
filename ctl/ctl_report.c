#include "ctl_commands.h"

#include "common/error.h"
#include "common/scope.h"
#include "common/whole.h"
#include "ctl/job/jobs.h"
#include "history/history.h"
#include "history/history_page.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#ifndef DDPRUN_VERSION
#error "the build gives the version"
#endif

struct work {
    const struct ctl_job_task *task;
    struct history history;
    struct co_error err;
};

static enum ctl_exit report_task_fail(const struct work *w, int rc)
{
    switch (rc) {
    case -ENOMEM:
        return ctl_fail(CTL_EXIT_INTERNAL, &w->err);
    case -EIO:
        return ctl_fail(CTL_EXIT_IO, &w->err);
    case -ETIMEDOUT:
        return ctl_fail(CTL_EXIT_UNAVAILABLE, &w->err);
    default:
        return ctl_fail(CTL_EXIT_NO, &w->err);
    }
}

/* --- The file --- */

/* The rest of a line that is too long. */
static void skip_line(FILE *in)
{
    int c;
    while ((c = getc_unlocked(in)) != EOF && c != '\n') {
    }
}

static int read_lines(struct work *w, FILE *in, const char *path)
{
    enum { ROOM = HISTORY_LINE_BYTES + 2 }; /* a newline and a NUL */
    co_autofree char *line = malloc(ROOM);
    int rc = line != NULL ? 0 : -ENOMEM;
    while (rc == 0 && fgets(line, ROOM, in) != NULL) {
        size_t n = strlen(line); /* text after a NUL is not JSON */
        rc = history_add(&w->history, line, n);
        if (n == ROOM - 1 && line[n - 1] != '\n')
            skip_line(in);
    }
    if (rc < 0)
        return co_fail(&w->err, rc, "out of memory reading the events of %s", path);
    if (ferror(in))
        return co_fail(&w->err, -EIO, "cannot read %s: %s", path, strerror(errno));
    return 0;
}

static int read_file(struct work *w, const char *path)
{
    co_autoclose FILE *in = fopen(path, "re");
    if (in == NULL)
        return co_fail(&w->err, -errno, "cannot open %s: %s", path, strerror(errno));
    return read_lines(w, in, path);
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

/* --- The job that runs --- */

static int read_of_job(struct work *w)
{
    struct jobs jobs = {0};
    int rc = jobs_poll_one(&jobs, w->task->job, false, w->task->timeout_ms, &w->err);
    if (rc == 0)
        history_init(&w->history, jobs_name(&jobs.list[0]));
    for (size_t i = 0; rc == 0 && i < jobs.n; i++) {
        const char *path = json_string_value(json_object_get(jobs.list[i].status, "events"));
        if (path == NULL)
            rc = co_fail(&w->err, -ENOENT,
                         "this job was started without --events, so no events were recorded; start "
                         "it with --events FILE");
        else if (i == 0 || strcmp(path, json_string_value(json_object_get(jobs.list[i - 1].status,
                                                                          "events"))) != 0)
            rc = read_file(w, path);
    }
    jobs_fini(&jobs);
    return rc;
}

/* --- The page --- */

static int make_page(struct work *w, char **ret_text, size_t *ret_len)
{
    FILE *out = open_memstream(ret_text, ret_len);
    if (out == NULL)
        return co_fail(&w->err, -ENOMEM, "out of memory");
    int rc = history_page_print(&w->history, DDPRUN_VERSION, NULL, out);
    if (fclose(out) != 0 || rc < 0)
        return co_fail(&w->err, -ENOMEM, "out of memory");
    return 0;
}

static enum ctl_exit write_page(struct work *w)
{
    co_autofree char *text = NULL;
    size_t len = 0;
    int rc = history_finish(&w->history);
    rc = rc < 0 ? co_fail(&w->err, rc, "out of memory") : make_page(w, &text, &len);
    if (rc < 0)
        return report_task_fail(w, rc);
    if (w->task->output == NULL) {
        fwrite(text, 1, len, stdout);
        return CTL_EXIT_OK;
    }
    rc = co_write_whole(w->task->output, text, len, &w->err);
    return rc < 0 ? ctl_fail(rc == -ENOMEM ? CTL_EXIT_INTERNAL : CTL_EXIT_IO, &w->err)
                  : CTL_EXIT_OK;
}

static enum ctl_exit report_task_run(struct work *w)
{
    int rc;
    if (w->task->job != NULL && is_file(w->task->job)) {
        history_init(&w->history, w->task->run_id);
        rc = read_file(w, w->task->job);
    } else {
        rc = read_of_job(w);
    }
    if (rc == 0 && w->history.n_events == 0)
        rc = co_fail(&w->err, -ENOENT, "the file contains no events of %s",
                     w->history.job[0] != '\0' ? w->history.job : "a job");
    return rc < 0 ? report_task_fail(w, rc) : write_page(w);
}

enum ctl_exit ctl_report(const struct ctl_job_task *task)
{
    struct work w = {.task = task};
    enum ctl_exit code = report_task_run(&w);
    history_fini(&w.history);
    return code;
}
