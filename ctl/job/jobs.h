/* jobs.h - the jobs of this user on this machine, or of all users, as they are now: each ddprun
 * whose socket is found is asked for its status, to which is added what its ranks use. Asked once,
 * or again and again.
 *
 * A ddprun is a node of a job, and several of one job may be here. What a killed one has left is
 * removed on the way. ddpctl is on the same machine as the ranks, so ddprun need not be asked what
 * they use: each rank that runs has "cpu_percent" (since it was asked before, else since its start;
 * 100 is one CPU), "cpu_ms", "rss_bytes", "threads" and "process_state", as /proc has it, where
 * /proc knows the process, which it does not in another PID namespace. */
#ifndef DDP_CTL_JOB_JOBS_H
#define DDP_CTL_JOB_JOBS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct co_error;

struct job {
    int fd;          /* the connection, for more requests; -1: it was lost */
    json_t *status;  /* its answer, with what its ranks use; NULL: none */
    char *directory; /* owned */
    pid_t pid;       /* of the process that listens, also if it does not answer; 0: not known */
    uid_t uid;       /* of that process; -1: not known */
    int trouble;     /* why the job did not answer, as job_conn_hear(); 0: it answered */
};

struct jobs {         /* zeroed: not asked yet */
    struct job *list; /* owned; in order of run id, node and pid */
    size_t n;
    struct jobs_usage { /* of a rank when it was asked before */
        pid_t pid;
        uint64_t start_ticks, cpu_ms, at_ms;
    } * usage; /* owned */
    size_t n_usage;
};

void jobs_fini(struct jobs *jobs); /* a zeroed one is fine */

/* Find all of them; they replace those that were found before.
 *
 * all_users    not only ours; only root can see those of others
 * timeout_ms   for their answers; the list includes those that do not answer by then
 * returns      0, -ENOMEM */
int jobs_poll(struct jobs *jobs, bool all_users, uint64_t timeout_ms, struct co_error *err);

/* Keep those of one job only.
 *
 * name      its run id, or how that begins, or a ddprun's pid; NULL: the only job
 * returns   0; -ENOENT not found; -EEXIST there are several; the text lists them */
int jobs_select(struct jobs *jobs, const char *name, struct co_error *err);

/* The nodes of one job, each with an answer.
 *
 * all_users   if none of ours has this name, and this process runs as root, also look for it
 *             among all others: by its whole run id or a pid
 * returns   as jobs_select(); -ETIMEDOUT one of them does not answer; -ENOMEM */
int jobs_poll_one(struct jobs *jobs, const char *name, bool all_users, uint64_t timeout_ms,
                  struct co_error *err);

/* The run id; "?" where there is no answer. Lent. */
const char *jobs_name(const struct job *job);

#endif
