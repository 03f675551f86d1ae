/* jobs.c - finds the jobs' sockets, asks each ddprun for its status, and adds what /proc knows.
 *
 * Read jobs_poll() first, then jobs_select(), which reduces the list to the job that a word of the
 * command line names: its run ID, the PID of its ddprun, or the beginning of its run ID. */
#include "jobs.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/parse.h"
#include "common/process.h"
#include "console/job_directory.h"
#include "console/job_request.h"
#include "job_conn.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* returns   whether a ddprun is, or may be, there */
static bool begin_to_ask(struct job *job, const char *directory, enum job_directory_owner owner)
{
    struct co_error err;
    const struct job_request status = {.type = JOB_REQUEST_STATUS};
    *job = (struct job){.fd = job_directory_connect(directory, owner, &err), .uid = (uid_t)-1};
    if (job->fd == -ECONNREFUSED)
        job_directory_remove_dead(directory);
    if (job->fd < 0 && job->fd != -EAGAIN)
        return false;
    if (job->fd < 0) { /* too many clients already */
        job->trouble = -EAGAIN;
        job->fd = -1;
    } else {
        job->pid = job_directory_peer(job->fd);
        job->uid = job_directory_peer_uid(job->fd);
        job->trouble = job_conn_say(job->fd, &status, &err);
    }
    job->directory = strdup(directory);
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
    free(job->directory);
}

static void drop_all(struct jobs *jobs)
{
    for (size_t i = 0; i < jobs->n; i++)
        job_fini(&jobs->list[i]);
    free(jobs->list);
    jobs->list = NULL;
    jobs->n = 0;
}

void jobs_fini(struct jobs *jobs)
{
    drop_all(jobs);
    free(jobs->usage);
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
        order = compare_numbers(one->uid, other->uid);
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

/* Find all, and ask each for its status. The list includes those that do not answer by the
 * deadline. */
static int find_all(struct jobs *jobs, enum job_directory_owner owner, uint64_t deadline_ms,
                    struct co_error *err)
{
    struct job_directories directories;
    int rc = job_directories_find(owner, &directories, err);
    if (rc == 0 && directories.n > 0) {
        jobs->list = calloc(directories.n, sizeof *jobs->list);
        if (jobs->list == NULL)
            rc = co_fail(err, -ENOMEM, "out of memory");
    }
    for (size_t i = 0; rc == 0 && i < directories.n; i++)
        jobs->n += begin_to_ask(&jobs->list[jobs->n], directories.paths[i], owner);
    job_directories_fini(&directories);
    for (size_t i = 0; i < jobs->n; i++)
        end_asking(&jobs->list[i], deadline_ms);
    drop_ended(jobs);
    if (jobs->n > 0)
        qsort(jobs->list, jobs->n, sizeof *jobs->list, compare_jobs);
    return rc;
}

/* --- What ranks use --- */

/* The place of a pid; a new one if it has none. returns NULL without memory */
static struct jobs_usage *find_usage(struct jobs *jobs, pid_t pid)
{
    for (size_t i = 0; i < jobs->n_usage; i++)
        if (jobs->usage[i].pid == pid)
            return &jobs->usage[i];
    struct jobs_usage *usage = realloc(jobs->usage, (jobs->n_usage + 1) * sizeof *usage);
    if (usage == NULL)
        return NULL;
    jobs->usage = usage;
    jobs->usage[jobs->n_usage] = (struct jobs_usage){.pid = pid};
    return &jobs->usage[jobs->n_usage++];
}

static double percent(uint64_t cpu_ms, uint64_t over_ms)
{
    return over_ms > 0 ? 100.0 * (double)cpu_ms / (double)over_ms : 0;
}

static double cpu_percent(struct jobs *jobs, pid_t pid, const struct co_process *p, uint64_t age_ms,
                          uint64_t now_ms)
{
    struct jobs_usage *before = find_usage(jobs, pid);
    double result = percent(p->cpu_ms, age_ms);
    if (before == NULL)
        return result;
    if (before->start_ticks == p->start_ticks && now_ms > before->at_ms &&
        p->cpu_ms >= before->cpu_ms)
        result = percent(p->cpu_ms - before->cpu_ms, now_ms - before->at_ms);
    *before = (struct jobs_usage){pid, p->start_ticks, p->cpu_ms, now_ms};
    return result;
}

static void add_usage(struct jobs *jobs, json_t *status, uint64_t now_ms)
{
    size_t i;
    json_t *rank;
    json_array_foreach(json_object_get(status, "ranks"), i, rank)
    {
        struct co_process p;
        json_int_t pid = json_integer_value(json_object_get(rank, "pid"));
        const json_t *code = json_object_get(rank, "exit_code");
        const json_t *signal = json_object_get(rank, "signal");
        if (pid <= 0 || pid > INT32_MAX || json_is_integer(code) || json_is_integer(signal) ||
            co_process_look((pid_t)pid, &p, NULL) < 0)
            continue;
        char state[2] = {p.state, '\0'};
        json_int_t age_ms = json_integer_value(json_object_get(rank, "age_ms"));
        double cpu = cpu_percent(jobs, (pid_t)pid, &p, age_ms > 0 ? (uint64_t)age_ms : 0, now_ms);
        json_object_set_new(rank, "cpu_percent", json_real(cpu));
        json_object_set_new(rank, "cpu_ms", json_integer((json_int_t)p.cpu_ms));
        json_object_set_new(rank, "rss_bytes", json_integer((json_int_t)p.rss_bytes));
        json_object_set_new(rank, "threads", json_integer(p.n_threads));
        json_object_set_new(rank, "process_state", json_string(state));
    }
}

int jobs_poll(struct jobs *jobs, bool all_users, uint64_t timeout_ms, struct co_error *err)
{
    drop_all(jobs);
    int rc = find_all(jobs, all_users ? JOB_DIRECTORY_ANY : JOB_DIRECTORY_OURS,
                      co_deadline_ms(timeout_ms), err);
    uint64_t now_ms = co_now_ms();
    for (size_t i = 0; i < jobs->n; i++)
        add_usage(jobs, jobs->list[i].status, now_ms);
    return rc;
}

/* --- One of them --- */

/* As the kernel reports it: what a job of another user reports about itself may be false. */
static bool is_pid(const struct job *job, const char *name)
{
    int64_t pid;
    return co_parse_int("pid", name, 1, INT32_MAX, &pid, NULL) == 0 && job->pid == pid;
}

static bool is_pid_it_says(const struct job *job, const char *name)
{
    int64_t pid;
    return co_parse_int("pid", name, 1, INT32_MAX, &pid, NULL) == 0 && job->uid == geteuid() &&
           number_of(job, "pid") == pid;
}

static bool begins(const struct job *job, const char *name)
{
    return job->uid == geteuid() && strncmp(jobs_name(job), name, strlen(name)) == 0;
}

static bool is_it(const struct job *job, const char *name)
{
    return strcmp(jobs_name(job), name) == 0;
}

static size_t matches_count(const struct jobs *jobs, bool (*fits)(const struct job *, const char *),
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
        const struct job *job = &jobs->list[i];
        bool is_users = i > 0 && job->uid == job[-1].uid;
        bool is_new = !is_users || strcmp(jobs_name(job), jobs_name(job - 1)) != 0;
        n_others += is_new && i > 0;
        if (is_new && len < sizeof names && job->uid == geteuid())
            len += (size_t)snprintf(names + len, sizeof names - len, " %s", jobs_name(job));
        else if (is_new && len < sizeof names)
            len += (size_t)snprintf(names + len, sizeof names - len, " %s (uid %d, pid %d)",
                                    jobs_name(job), (int)job->uid, (int)job->pid);
    }
    return n_others == 0 ? 0
                         : co_fail(err, -EEXIST, "several jobs are running; give one of:%s", names);
}

int jobs_select(struct jobs *jobs, const char *name, struct co_error *err)
{
    if (name != NULL && matches_count(jobs, is_it, name) > 0)
        keep(jobs, is_it, name);
    else if (name != NULL && matches_count(jobs, is_pid, name) > 0)
        keep(jobs, is_pid, name);
    else if (name != NULL && matches_count(jobs, is_pid_it_says, name) > 0)
        keep(jobs, is_pid_it_says, name);
    else if (name != NULL)
        keep(jobs, begins, name);
    if (jobs->n == 0 && name != NULL)
        return co_fail(err, -ENOENT, "no such job: '%.200s'; see ddpctl ps", name);
    if (jobs->n == 0)
        return co_fail(err, -ENOENT, "no job of yours is running on this machine");
    return require_one(jobs, err);
}

int jobs_poll_one(struct jobs *jobs, const char *name, bool all_users, uint64_t timeout_ms,
                  struct co_error *err)
{
    int rc = jobs_poll(jobs, false, timeout_ms, err);
    if (rc == 0)
        rc = jobs_select(jobs, name, err);
    if (rc == -ENOENT && name != NULL && all_users && geteuid() == 0) {
        rc = jobs_poll(jobs, true, timeout_ms, err);
        if (rc == 0)
            rc = jobs_select(jobs, name, err);
    }
    for (size_t i = 0; rc == 0 && i < jobs->n; i++)
        if (jobs->list[i].status == NULL)
            rc = co_fail(err, -ETIMEDOUT,
                         "timed out waiting for the ddprun of %s: it may be stopped, or its "
                         "machine very busy; try a longer --timeout",
                         jobs->list[i].directory != NULL ? jobs->list[i].directory : "?");
    return rc;
}
