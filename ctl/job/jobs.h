/* jobs.h - the jobs of this user on this machine: each ddprun whose socket is found is asked.
 *
 * A ddprun is a node of a job, and several of one job may be here. What a killed one has left is
 * removed on the way. */
#ifndef DDP_CTL_JOB_JOBS_H
#define DDP_CTL_JOB_JOBS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct co_error;

struct job {
    int fd;         /* the connection, for more requests; -1: it was lost */
    json_t *status; /* its answer, with "cpu_ms" and so on of each rank (job_usage.h); NULL: none */
    char *folder;   /* owned */
    pid_t pid;      /* of who listens there, also if it does not answer; 0: not known */
    int trouble;    /* why there is no answer, as job_conn_hear(); 0: there is one */
};

struct jobs {
    struct job *list; /* owned; in order of run id, node and pid */
    size_t n;
};

/* Find all, and ask each for its status. Those that do not answer by the deadline are in the list,
 * too.
 *
 * returns   0, -ENOMEM; jobs_fini() in any case */
int jobs_find(uint64_t deadline_ms, struct jobs *ret, struct co_error *err);
void jobs_fini(struct jobs *jobs); /* a zeroed one is fine */

/* Keep those of one job only.
 *
 * name      its run id, or how that begins, or a ddprun's pid; NULL: the only one there is
 * returns   0; -ENOENT there is none; -EEXIST there are several; the text lists them */
int jobs_select(struct jobs *jobs, const char *name, struct co_error *err);

/* The run id; "?" where there is no answer. Lent. */
const char *jobs_name(const struct job *job);

#endif
