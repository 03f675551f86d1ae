/* event_log.h - --event-log-handler console: what happens to the job, in torchrun's own records.
 *
 *     {"name": "torchelastic.worker.status.START", "source": "WORKER", "timestamp": 0,
 *      "metadata": {"run_id": "none", "global_rank": 1, ..., "metadata": "{\"local_rank\": [1]}",
 *      "agent_restarts": 0, "duration_ms": null}}
 *
 * A record is a line on standard error. The keys, their order and the names of the states are
 * torchrun's. The timestamp of 0 is also torchrun's, and the state SUCCEEDED of an agent that has
 * done its work, though its workers failed. events.h has ddprun's own events. */
#ifndef DDP_LAUNCHER_REPORTING_EVENT_LOG_H
#define DDP_LAUNCHER_REPORTING_EVENT_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct job_spec;
struct output;
struct rank_io;
struct supervisor;

struct event_log {
    bool is_on;                  /* else all calls do nothing */
    const struct job_spec *spec; /* all borrowed */
    struct output *output;
    const struct rank_io *io;
    const char *runtime_dir;
    char host[256];
    uint64_t begun_ms;
};

void event_log_init(struct event_log *log, const struct job_spec *spec, struct output *output,
                    const struct rank_io *io, const char *runtime_dir);

/* RENDEZVOUS and ASSIGN_WORKER_RANKS of the agent: a generation begins, which took made_ms. */
void event_log_generation(const struct event_log *log, uint32_t generation, double made_ms);

/* START of a worker. */
void event_log_start(const struct event_log *log, uint32_t generation, int rank, pid_t pid);

/* The job's end: SUCCEEDED, FAILED or TERMINATED (it exited with 0, others failed) of each worker,
 * with its error file's text, and SUCCEEDED of the agent; FAILED of the agent alone, if it was
 * stopped or could not start them. */
void event_log_end(const struct event_log *log, const struct supervisor *s);

#endif
