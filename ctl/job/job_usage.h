/* job_usage.h - what the ranks of a node use, added to its status: ddpctl is on the same machine,
 * so ddprun need not be asked. */
#ifndef DDP_CTL_JOB_JOB_USAGE_H
#define DDP_CTL_JOB_JOB_USAGE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Of ranks, as they were when they were looked at before; zeroed: never. */
struct job_usage {
    struct job_usage_rank {
        pid_t pid;
        uint64_t start_ticks, cpu_ms, at_ms;
    } * ranks; /* owned */
    size_t n;
};

void job_usage_fini(struct job_usage *u);

/* Add to each rank that runs "cpu_percent" (since it was looked at before, else since its start;
 * 100 is one CPU), "cpu_ms", "rss_bytes", "threads" and "process_state", as /proc has it. They stay
 * away where /proc knows no such process: that of another PID namespace.
 *
 * u    what is remembered until the next call; NULL: nothing */
void job_usage_add(struct job_usage *u, json_t *status, uint64_t now_ms);

#endif
