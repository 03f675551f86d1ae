#include "jobs.h"

#include "common/error.h"
#include "common/parse.h"
#include "console/job_folder.h"
#include "console/job_request.h"
#include "job_conn.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* returns   whether somebody is, or may be, there */
static bool begin_to_ask(struct job *job, const char *folder)
{
    struct co_error err;
    const struct job_request status = {.type = JOB_REQUEST_STATUS};
    *job = (struct job){.fd = job_folder_connect(folder, &err)};
    if (job->fd == -ECONNREFUSED)
        job_folder_remove_dead(folder);
    if (job->fd < 0 && job->fd != -EAGAIN)
        return false;
    if (job->fd < 0) { /* too many ask already */
        job->trouble = -EAGAIN;
        job->fd = -1;
    } else {
        job->pid = job_folder_peer(job->fd);
        job->trouble = job_conn_say(job->fd, &status, &err);
    }
    job->folder = strdup(folder);
    return true;
}

static void end_asking(struct job *job, uint64_t deadline_ms)
{
    struct co_error err;
    if (job->trouble == 0)
        job->trouble = job_conn_hear_one(job->fd, deadline_ms, &job->status, &err);
}

static void job_fini(struct job *job)
{
    if (job->fd >= 0)
        close(job->fd);
    json_decref(job->status);
    free(job->folder);
}

void jobs_fini(struct jobs *jobs)
{
    for (size_t i = 0; i < jobs->n; i++)
        job_fini(&jobs->list[i]);
    free(jobs->list);
    *jobs = (struct jobs){0};
}

const char *jobs_name(const struct job *job)
{
    const char *name = json_string_value(json_object_get(job->status, "job"));
    return name != NULL ? name : "?";
}

static int64_t number_of(const struct job *job, const char *key)
{
    return json_integer_value(json_object_get(job->status, key));
}

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_jobs(const void *a, const void *b)
{
    const struct job *one = a, *other = b;
    int order = strcmp(jobs_name(one), jobs_name(other));
    if (order == 0)
        order = compare_numbers(number_of(one, "node"), number_of(other, "node"));
    return order != 0 ? order : compare_numbers(number_of(one, "pid"), number_of(other, "pid"));
}

/* Those that ended while they were asked are not there any more. */
static void drop_ended(struct jobs *jobs)
{
    size_t n = 0;
    for (size_t i = 0; i < jobs->n; i++) {
        if (jobs->list[i].trouble == -EPIPE)
            job_fini(&jobs->list[i]);
        else
            jobs->list[n++] = jobs->list[i];
    }
    jobs->n = n;
}

int jobs_find(uint64_t deadline_ms, struct jobs *ret, struct co_error *err)
{
    struct job_folders folders;
    *ret = (struct jobs){0};
    int rc = job_folders_find(&folders, err);
    if (rc == 0 && folders.n > 0) {
        ret->list = calloc(folders.n, sizeof *ret->list);
        if (ret->list == NULL)
            rc = co_fail(err, -ENOMEM, "no memory for %zu jobs", folders.n);
    }
    for (size_t i = 0; rc == 0 && i < folders.n; i++)
        ret->n += begin_to_ask(&ret->list[ret->n], folders.paths[i]);
    job_folders_fini(&folders);
    for (size_t i = 0; i < ret->n; i++)
        end_asking(&ret->list[i], deadline_ms);
    drop_ended(ret);
    if (ret->n > 0)
        qsort(ret->list, ret->n, sizeof *ret->list, compare_jobs);
    return rc;
}

/* --- One of them --- */

static bool is_pid(const struct job *job, const char *name)
{
    int64_t pid;
    return co_parse_int("pid", name, 1, INT32_MAX, &pid, NULL) == 0 &&
           (job->pid == pid || number_of(job, "pid") == pid);
}

static bool begins(const struct job *job, const char *name)
{
    return strncmp(jobs_name(job), name, strlen(name)) == 0;
}

static bool is_it(const struct job *job, const char *name)
{
    return strcmp(jobs_name(job), name) == 0;
}

static size_t count(const struct jobs *jobs, bool (*fits)(const struct job *, const char *),
                    const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < jobs->n; i++)
        n += fits(&jobs->list[i], name);
    return n;
}

static void keep(struct jobs *jobs, bool (*fits)(const struct job *, const char *),
                 const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < jobs->n; i++) {
        if (fits(&jobs->list[i], name))
            jobs->list[n++] = jobs->list[i];
        else
            job_fini(&jobs->list[i]);
    }
    jobs->n = n;
}

/* Are they nodes of one job? */
static int require_one(const struct jobs *jobs, struct co_error *err)
{
    char names[512] = "";
    size_t len = 0, n_others = 0;
    for (size_t i = 0; i < jobs->n; i++) {
        const char *name = jobs_name(&jobs->list[i]);
        bool is_new = i == 0 || strcmp(name, jobs_name(&jobs->list[i - 1])) != 0;
        n_others += is_new && i > 0;
        if (is_new && len < sizeof names)
            len += (size_t)snprintf(names + len, sizeof names - len, " %s", name);
    }
    return n_others == 0 ? 0 : co_fail(err, -EEXIST, "there are several jobs, say which:%s", names);
}

int jobs_select(struct jobs *jobs, const char *name, struct co_error *err)
{
    if (name != NULL && count(jobs, is_it, name) > 0)
        keep(jobs, is_it, name);
    else if (name != NULL && count(jobs, is_pid, name) > 0)
        keep(jobs, is_pid, name);
    else if (name != NULL)
        keep(jobs, begins, name);
    if (jobs->n == 0 && name != NULL)
        return co_fail(err, -ENOENT, "there is no job '%.200s' of yours here: see ddpctl ps", name);
    if (jobs->n == 0)
        return co_fail(err, -ENOENT, "there is no job of yours here");
    return require_one(jobs, err);
}
