/* The records of torchrun's console handler. Each event_log_*() fills a struct record;
 * put_record() makes the JSON of it, key by key in torchrun's order (make_metadata()), and writes
 * one line. Read put_record() first. */
#include "event_log.h"

#include "launcher/diagnosis/error_file.h"
#include "launcher/job/job_spec.h"
#include "launcher/platform/json_value.h"
#include "launcher/stdio/output.h"
#include "launcher/stdio/rank_io.h"
#include "launcher/supervisor/supervisor.h"

#include "common/clock.h"
#include "common/scope.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, ERROR_BYTES = 65536 };

void event_log_init(struct event_log *log, const struct job_spec *spec, struct output *output,
                    const struct rank_io *io, const char *runtime_dir)
{
    *log = (struct event_log){.is_on = spec->event_log,
                              .spec = spec,
                              .output = output,
                              .io = io,
                              .runtime_dir = runtime_dir,
                              .begun_ms = co_now_ms()};
    if (log->is_on)
        gethostname(log->host, sizeof log->host - 1);
}

/* What varies from record to record. */
struct record {
    const char *state;
    uint32_t generation;
    int rank;           /* of a worker; -1: of the agent */
    pid_t pid;          /* of a worker */
    bool has_failed;    /* a worker's exit_code and pid are reported */
    int exit_code;      /* minus its signal */
    bool knows_nothing; /* the agent has not completed a rendezvous yet */
    bool is_over;       /* the job's time is reported */
    json_t *raw_error;  /* given up; NULL: none */
    json_t *duration;   /* given up; NULL: none */
};

/* What torchrun gives as a text of JSON inside the JSON. */
static json_t *make_details(const struct event_log *log, const struct record *r)
{
    const char *slash = strrchr(log->spec->path, '/');
    json_t *details =
        json_pack("{s:o,s:o}", "group_world_size", r->knows_nothing ? json_null() : json_integer(1),
                  "entry_point",
                  json_value_or_null(json_string(slash != NULL ? slash + 1 : log->spec->path)));
    if (r->rank >= 0)
        json_object_update_new(
            details,
            json_pack("{s:[i],s:[i],s:[i],s:[o],s:[o]}", "local_rank", r->rank, "role_rank",
                      r->rank, "role_world_size", log->spec->n_local, "exit_code",
                      r->has_failed ? json_integer(r->exit_code) : json_null(), "worker_pid",
                      r->has_failed ? json_integer(r->pid) : json_null()));
    co_autofree char *text = json_dumps(details, JSON_ENSURE_ASCII);
    json_decref(details);
    return json_value_or_null(text != NULL ? json_string(text) : NULL);
}

static json_t *make_metadata(const struct event_log *log, const struct record *r)
{
    char pid[24];
    snprintf(pid, sizeof pid, "%d", (int)r->pid);
    bool is_worker = r->rank >= 0;
    uint64_t run_s = (co_now_ms() - log->begun_ms) / 1000;
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:s,s:I,s:s,s:o,s:o,s:i,s:o}", "run_id",
                     json_value_or_null(json_string(log->spec->run_id)), "global_rank",
                     is_worker ? json_integer(r->rank) : json_null(), "group_rank",
                     r->knows_nothing ? json_null() : json_integer(0), "worker_id",
                     is_worker ? json_string(pid) : json_null(), "role",
                     json_value_or_null(json_string(log->spec->role)), "hostname",
                     json_value_or_null(json_string(log->host)), "state", r->state,
                     "total_run_time", (json_int_t)(r->is_over ? run_s : 0), "rdzv_backend",
                     log->spec->backend, "raw_error", json_value_or_null(r->raw_error), "metadata",
                     make_details(log, r), "agent_restarts", (int)r->generation, "duration_ms",
                     json_value_or_null(r->duration));
}

/* Without memory a record is left out. */
static void put_record(const struct event_log *log, const struct record *r)
{
    char name[64];
    snprintf(name, sizeof name, "torchelastic.worker.status.%s", r->state);
    json_t *record =
        json_pack("{s:s,s:s,s:i,s:o}", "name", name, "source", r->rank >= 0 ? "WORKER" : "AGENT",
                  "timestamp", 0, "metadata", make_metadata(log, r));
    co_autofree char *dump = json_dumps(record, JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
    json_decref(record);
    co_autofree char *line = NULL;
    if (dump != NULL && asprintf(&line, "%s\n", dump) >= 0)
        output_report(log->output, line);
}

void event_log_generation(const struct event_log *log, uint32_t generation, double made_ms)
{
    if (!log->is_on)
        return;
    put_record(log, &(struct record){.state = "RENDEZVOUS",
                                     .generation = generation,
                                     .rank = -1,
                                     .knows_nothing = generation == 0,
                                     .duration = json_real(made_ms)});
    put_record(log,
               &(struct record){.state = "ASSIGN_WORKER_RANKS", /* on one node they are known */
                                .generation = generation,
                                .rank = -1,
                                .knows_nothing = generation == 0,
                                .duration = json_real(0)});
}

void event_log_start(const struct event_log *log, uint32_t generation, int rank, pid_t pid)
{
    if (log->is_on)
        put_record(log, &(struct record){
                            .state = "START", .generation = generation, .rank = rank, .pid = pid});
}

/* The content of the rank's error file; only the message if the file is very long. NULL: nothing */
static json_t *read_error(const struct event_log *log, int rank)
{
    char path[PATH_BYTES];
    co_autofree char *message = NULL;
    co_autofree char *text = NULL;
    rank_io_error_file(log->io, log->runtime_dir, rank, path, sizeof path);
    if (error_file_read(path, &message, &text, NULL) < 0)
        return NULL;
    return strlen(text) <= ERROR_BYTES ? json_loads(text, 0, NULL)
                                       : json_pack("{s:s}", "message", message);
}

/* A text of JSON; torchrun's text where the rank wrote nothing. */
static json_t *make_worker_error(const struct event_log *log, int rank, int status)
{
    json_t *error = read_error(log, rank);
    if (error == NULL && WIFSIGNALED(status))
        error = json_pack("{s:s}", "message", "<NONE>");
    else if (error == NULL)
        error = json_pack("{s:s,s:{s:s,s:s}}", "message", "<NONE>", "errorTraits", "category",
                          "system_terminated_error", "retryability", "False");
    co_autofree char *dump = json_dumps(error, JSON_ENSURE_ASCII);
    json_decref(error);
    return dump != NULL ? json_string(dump) : NULL;
}

static void put_worker(const struct event_log *log, const struct supervisor *s, int rank)
{
    const struct supervisor_rank *r = supervisor_get_rank(s, rank);
    bool has_failed = r->phase == RANK_ENDED && r->status != 0;
    bool all_well = supervisor_get_verdict(s)->outcome == OUTCOME_WELL;
    struct record record = {.state = has_failed ? "FAILED"
                                     : all_well ? "SUCCEEDED"
                                                : "TERMINATED",
                            .generation = supervisor_generation(s),
                            .rank = rank,
                            .pid = r->pid,
                            .has_failed = has_failed,
                            .is_over = true};
    if (has_failed) {
        record.exit_code = WIFSIGNALED(r->status) ? -WTERMSIG(r->status) : WEXITSTATUS(r->status);
        record.raw_error = make_worker_error(log, rank, r->status);
    }
    put_record(log, &record);
}

/* Why the agent itself gave up; NULL: it did not. */
static const char *agents_error(const struct supervisor *s, char *buf, size_t n)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(s);
    const char *name;
    switch (v->outcome) {
    case OUTCOME_WELL:
    case OUTCOME_RANK_FAILED:
    case OUTCOME_ORDERED:
        return NULL;
    case OUTCOME_SIGNAL:
        name = sigdescr_np(v->signal);
        snprintf(buf, n, "stopped by signal %d: %s", v->signal, name != NULL ? name : "unknown");
        return buf;
    case OUTCOME_TIMEOUT:
        return "the job timed out (--timeout)";
    case OUTCOME_START_FAILED:
        snprintf(buf, n, "rank %d could not be started: %s", v->rank,
                 strerror(supervisor_get_rank(s, v->rank)->status));
        return buf;
    case OUTCOME_NONE:
    case OUTCOME_INTERNAL:
        break;
    }
    return "internal error";
}

void event_log_end(const struct event_log *log, const struct supervisor *s)
{
    char buf[160];
    if (!log->is_on)
        return;
    const char *error = agents_error(s, buf, sizeof buf);
    for (int i = 0; error == NULL && i < supervisor_n_ranks(s); i++)
        put_worker(log, s, i);
    put_record(log, &(struct record){.state = error == NULL ? "SUCCEEDED" : "FAILED",
                                     .generation = supervisor_generation(s),
                                     .rank = -1,
                                     .is_over = true,
                                     .raw_error = error != NULL ? json_string(error) : NULL});
}
