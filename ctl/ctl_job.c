#include "ctl_commands.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "console/job_request.h"
#include "ctl/base/table.h"
#include "ctl/job/job_conn.h"
#include "ctl/job/job_print.h"
#include "ctl/job/jobs.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { FOLLOW_MS = 200 };

/* A running task. */
struct work {
    const struct ctl_job_task *task;
    struct jobs jobs;
    struct co_error err;
};

static enum ctl_exit job_task_fail(const struct work *w, int rc)
{
    switch (rc) {
    case -ENOENT:
    case -EEXIST:
    case -EBADE:
        return ctl_fail(CTL_EXIT_NO, &w->err);
    case -ENOMEM:
        return ctl_fail(CTL_EXIT_INTERNAL, &w->err);
    default:
        return ctl_fail(CTL_EXIT_UNAVAILABLE, &w->err);
    }
}

/* Of the terminal on stdout; 0: stdout is not a terminal. */
static int find_width(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static void sleep_ms(uint64_t ms)
{
    poll(NULL, 0, ms < INT32_MAX ? (int)ms : INT32_MAX);
}

static int find_job(struct work *w)
{
    return jobs_poll_one(&w->jobs, w->task->job, true, w->task->timeout_ms, &w->err);
}

static uint64_t deadline_ms(const struct work *w)
{
    return co_deadline_ms(w->task->timeout_ms);
}

/* --- ps and status --- */

static int print_json(json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(value);
    if (text == NULL)
        return -ENOMEM;
    puts(text);
    free(text);
    return 0;
}

/* All statuses as they were received, in one object. */
static int print_all_json(const struct work *w)
{
    json_t *list = json_array();
    for (size_t i = 0; i < w->jobs.n; i++) {
        const struct job *job = &w->jobs.list[i];
        if (job->status != NULL && w->task->all_users)
            json_object_set_new(job->status, "uid", json_integer(job->uid));
        if (job->status != NULL)
            json_array_append(list, job->status);
    }
    return print_json(json_pack("{s:i,s:o}", "v", 1, "jobs", list));
}

static int print_list(const struct work *w)
{
    size_t n = w->jobs.n;
    co_autofree struct job_print_row *rows = calloc(n + 1, sizeof *rows);
    if (rows == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct job *job = &w->jobs.list[i];
        rows[i] = (struct job_print_row){job->status, job->directory, job->pid, job->uid};
    }
    return job_print_list(rows, n, w->task->all_users, find_width(), stdout);
}

static int print_status(const struct work *w)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < w->jobs.n; i++)
        rc = w->task->start ? job_print_start(w->jobs.list[i].status, find_width(), stdout)
                            : job_print_status(w->jobs.list[i].status, find_width(), stdout);
    return rc;
}

static int print_once(const struct work *w)
{
    if (w->task->json)
        return print_all_json(w);
    return w->task->command == CTL_PS ? print_list(w) : print_status(w);
}

/* With --watch the job's end is the end, which is as well as any; without a job there is no list to
 * begin with, but an empty one. */
static enum ctl_exit show(struct work *w)
{
    for (bool is_first = true;; is_first = false) {
        int rc = w->task->command == CTL_PS
                     ? jobs_poll(&w->jobs, w->task->all_users, w->task->timeout_ms, &w->err)
                     : find_job(w);
        if (!is_first && (rc == -ENOENT || (rc == 0 && w->jobs.n == 0)))
            return CTL_EXIT_OK;
        if (rc < 0)
            return job_task_fail(w, rc);
        if (print_once(w) < 0) {
            ctl_tell(CO_ERROR, "out of memory");
            return CTL_EXIT_INTERNAL;
        }
        if (w->task->watch_ms == 0)
            return CTL_EXIT_OK;
        enum ctl_exit code = ctl_flush(CTL_EXIT_OK);
        if (code != CTL_EXIT_OK)
            return code;
        sleep_ms(w->task->watch_ms);
    }
}

/* --- logs --- */

static bool has_rank(const json_t *status, int32_t rank)
{
    size_t i;
    const json_t *one;
    json_array_foreach(json_object_get(status, "ranks"), i,
                       one) if (json_integer_value(json_object_get(one, "rank")) ==
                                rank) return true;
    return false;
}

/* The node where the rank is. */
static const struct job *find_node(struct work *w)
{
    for (size_t i = 0; i < w->jobs.n; i++)
        if (has_rank(w->jobs.list[i].status, w->task->rank))
            return &w->jobs.list[i];
    co_fail(&w->err, -ENOENT, "rank %d of job %s is not on this machine; run ddpctl on its node",
            (int)w->task->rank, jobs_name(&w->jobs.list[0]));
    return NULL;
}

static void tell_file(const json_t *answer, const char *key, const char *stream)
{
    const char *path = json_string_value(json_object_get(answer, key));
    if (path != NULL)
        ctl_tell(CO_NOTE, "its %s is in %s", stream, path);
}

static void print_text(const json_t *answer)
{
    const json_t *text = json_object_get(answer, "text");
    if (json_is_string(text))
        fwrite(json_string_value(text), 1, json_string_length(text), stdout);
}

/* ddprun does not see output that ranks write to files: print where these are. */
static enum ctl_exit log_follow(struct work *w, const struct job *node)
{
    struct job_request r = {.type = JOB_REQUEST_LOGS, .rank = w->task->rank};
    json_t *answer;
    for (bool is_first = true;; is_first = false) {
        int rc = job_conn_ask(node->fd, &r, deadline_ms(w), &answer, &w->err);
        if (rc == -EPIPE && !is_first)
            return CTL_EXIT_OK; /* the job is over */
        if (rc < 0)
            return job_task_fail(w, rc);
        if (is_first) {
            tell_file(answer, "stdout_file", "standard output");
            tell_file(answer, "stderr_file", "standard error");
        }
        r.from = (uint64_t)json_integer_value(json_object_get(answer, "to"));
        if (w->task->json) {
            print_json(answer);
        } else {
            print_text(answer);
            json_decref(answer);
        }
        enum ctl_exit code = ctl_flush(CTL_EXIT_OK);
        if (code != CTL_EXIT_OK || !w->task->follow)
            return code;
        sleep_ms(FOLLOW_MS);
    }
}

static enum ctl_exit logs(struct work *w)
{
    int rc = find_job(w);
    if (rc < 0)
        return job_task_fail(w, rc);
    const struct job *node = find_node(w);
    return node != NULL ? log_follow(w, node) : job_task_fail(w, -ENOENT);
}

/* --- stack --- */

/* The text is ddprun's; it may include a rank's stderr. */
static void print_plain(const json_t *answer)
{
    const char *text = json_string_value(json_object_get(answer, "text"));
    co_autofree char *copy = text != NULL ? strdup(text) : NULL;
    for (char *line = copy; line != NULL && *line != '\0';) {
        char *end = line + strcspn(line, "\n");
        bool is_last = *end == '\0';
        *end = '\0';
        puts(table_plain(line));
        line = is_last ? NULL : end + 1;
    }
}

static int ask_stack(struct work *w, const struct job *node)
{
    const struct job_request r = {.type = JOB_REQUEST_STACK,
                                  .rank = w->task->rank,
                                  .signal = w->task->signal,
                                  .has_tools = !w->task->no_tools};
    return job_conn_say(node->fd, &r, &w->err);
}

static enum ctl_exit print_stack(struct work *w, struct job_hearing *h)
{
    if (h->rc < 0) {
        w->err = h->err;
        return job_task_fail(w, h->rc);
    }
    if (w->task->json)
        print_json(co_take(&h->answer));
    else
        print_plain(h->answer);
    return CTL_EXIT_OK;
}

/* Send all requests before the first answer, and read all answers while waiting for it: it may take
 * longer than a ddprun waits for a client that sends nothing, or does not read its answer. */
static enum ctl_exit stacks_of(struct work *w, const struct job *nodes, size_t n)
{
    enum ctl_exit code = CTL_EXIT_OK;
    size_t n_asked = 0;
    int rc = 0;
    co_autofree struct job_hearing *list = calloc(n, sizeof *list);
    if (list == NULL)
        return job_task_fail(w, co_fail(&w->err, -ENOMEM, "out of memory"));
    while (n_asked < n && (rc = ask_stack(w, &nodes[n_asked])) == 0) {
        list[n_asked].fd = nodes[n_asked].fd;
        n_asked++;
    }
    uint64_t end_ms = deadline_ms(w);
    for (size_t i = 0; i < n_asked && code == CTL_EXIT_OK; i++) {
        job_conn_hear(list, n_asked, i, end_ms);
        code = print_stack(w, &list[i]);
    }
    for (size_t i = 0; i < n_asked; i++)
        job_hearing_fini(&list[i]);
    return code == CTL_EXIT_OK && rc < 0 ? job_task_fail(w, rc) : code;
}

static enum ctl_exit stack(struct work *w)
{
    int rc = find_job(w);
    if (rc < 0)
        return job_task_fail(w, rc);
    if (w->task->rank < 0)
        return stacks_of(w, w->jobs.list, w->jobs.n);
    const struct job *node = find_node(w);
    return node != NULL ? stacks_of(w, node, 1) : job_task_fail(w, -ENOENT);
}

/* --- stop and restart --- */

/* One node of a job is asked to stop all; those of this machine that are not the whole job's are
 * asked one by one. */
static enum ctl_exit command(struct work *w, const struct job_request *r)
{
    json_t *answer;
    int rc = find_job(w);
    if (rc == 0 && r->type == JOB_REQUEST_STOP && !r->whole_job && w->jobs.n > 1)
        rc = co_fail(&w->err, -EEXIST,
                     "several nodes of the job are on this machine; give the pid of one, as ddpctl "
                     "ps prints it");
    if (rc == 0)
        rc = job_conn_ask(w->jobs.list[0].fd, r, deadline_ms(w), &answer, &w->err);
    if (rc < 0)
        return job_task_fail(w, rc);
    if (w->task->json)
        print_json(answer);
    else
        json_decref(answer);
    return CTL_EXIT_OK;
}

static enum ctl_exit job_task_run(struct work *w)
{
    const struct ctl_job_task *task = w->task;
    switch (task->command) {
    case CTL_PS:
    case CTL_STATUS:
        return show(w);
    case CTL_LOGS:
        return logs(w);
    case CTL_STACK:
        return stack(w);
    case CTL_STOP:
        return command(w, &(struct job_request){.type = JOB_REQUEST_STOP,
                                                .whole_job = !task->this_node,
                                                .signal = task->signal});
    case CTL_RESTART:
        return command(w, &(struct job_request){.type = JOB_REQUEST_RESTART});
    case CTL_TOP:
    case CTL_REPORT:
    case CTL_CHECK:
    case CTL_STORE:
    case CTL_N_COMMANDS:
        break;
    }
    return CTL_EXIT_INTERNAL;
}

enum ctl_exit ctl_job(const struct ctl_job_task *task)
{
    struct work w = {.task = task};
    enum ctl_exit code = job_task_run(&w);
    jobs_fini(&w.jobs);
    return code;
}
