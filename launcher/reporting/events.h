/* events.h - what happens in a job, as lines of JSON in a file, for programs that watch.
 *
 *     {"v":1,"t":1732125000.12345,"ms":12.4,"ev":"rank_exit","job":"a1b2","gen":0,"node":1,
 *      "host":"n2","rank":9,"lrank":1,"pid":4711,"code":null,"signal":"SIGSEGV"}
 *
 * Each ddprun of a job writes what it sees; node is its place among the nodes of the generation,
 * null before the first generation of a job of several nodes. t is seconds since 1970, ms the time
 * since the job's start. Each line is one write() to a file open for appending, so several jobs may
 * share one. A program that reads meanwhile may see only the beginning of a line, if the line
 * crosses a page of the file: it is complete once its newline is written. What cannot be written
 * is dropped, with one warning: a full disk, or a pipe that is not read, must not stop a job. A
 * line of which only a part was written is ended by the next one: it is not JSON. */
#ifndef DDP_LAUNCHER_REPORTING_EVENTS_H
#define DDP_LAUNCHER_REPORTING_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct goodput_sums;
struct hang_finding;
struct hang_proc;
struct oom_finding;
struct message_place;
struct pace;
struct pace_rank;
struct roster_restart;
struct message_progress;
struct supervisor;
struct supervisor_event;

struct events {
    int fd;           /* -1: no file */
    const char *path; /* both borrowed */
    const char *job;
    char *real_path; /* owned: absolute path, for ddpctl; NULL: not known */
    void (*on_note)(void *arg, const char *text);
    void *arg;
    void (*on_line)(void *arg, const char *line, size_t len); /* NULL: no reader */
    void *reader_arg;
    bool has_reported_gap; /* that events are missing */
    bool is_torn;          /* the last line has no end */
    bool is_regular;
    char host[256];
    uint64_t begun_ms;
    int node, first_rank; /* of this node in its generation; node -1: not known yet */
    const struct supervisor *supervisor; /* borrowed, set by the caller: which of its ranks are left
                                            out; NULL: none */
};

/* path      NULL: no file; without a reader, all calls do nothing
 * on_note   called from within the calls below, once: a text without newline that names the file
 *           and the reason why events are missing from it
 * returns   0, -errno (the text names the file) */
int events_open(struct events *e, const char *path, const char *job,
                void (*on_note)(void *arg, const char *text), void *arg, struct co_error *err);
void events_close(struct events *e);

/* Each line, without its newline, also goes to a reader in this process, whether there is a file or
 * not. on_line: NULL: no more. */
void events_set_reader(struct events *e, void (*on_line)(void *arg, const char *line, size_t len),
                       void *arg);

/* job_start: argv, ranks, max_restarts, pid (of this ddprun) */
void events_job_start(struct events *e, char *const *argv, int n_ranks, int max_restarts);

/* rank_start: rank, lrank, pid, forked (--warm; else it was executed); rank_start_failed: rank,
 * lrank, errno; rank_exit: rank, lrank, pid, code or signal, step. lrank is the number on this
 * node. Other events are not written. Call it before the supervisor is fed.
 *
 * pid      the rank's
 * forked   how it was started
 * step     EXITED: steps that it had completed, as node_steps.h counts them; NULL: not known */
void events_rank(struct events *e, const struct supervisor *s, const struct supervisor_event *what,
                 int pid, bool forked, const uint64_t *step);

/* steps: the generation is over: before (steps of the job that were completed when its ranks had
 * joined; null: they did not), after (those that a rank of this node has now), lives (whether ranks
 * continue from there in the next generation) */
struct events_steps {
    bool has_met, lives;
    uint64_t before, after;
};
void events_steps(struct events *e, uint32_t generation, const struct events_steps *steps);

/* stop: the ranks are ordered to stop; why: "failure" (with rank), "signal" (its name), "timeout",
 * "restart" (ddpctl asked for it). events_order() reports the orders of a roster.
 *
 * by_request   ddpctl ordered it, not a roster */
void events_stop(struct events *e, const struct supervisor *s, bool by_request);

/* oom: the OOM killer had a part in the end of rank, the root cause: rank, lrank, pid, and what
 * oom_report.h lists. Not written without a finding. */
void events_oom(struct events *e, const struct supervisor *s, const struct oom_finding *f);

/* In a job of several nodes.
 * rdzv: this node has a place in a generation: world, nodes, rank (its first), ranks (of this
 * node), pid (of this ddprun), wait_ms (since it had none).
 * The lines after it have this node's number there. */
void events_place(struct events *e, uint32_t generation, const struct message_place *place,
                  uint64_t waited_ms);

/* node_wait: what is waited for has changed: want, have, missing (some names) */
void events_wait(struct events *e, uint32_t generation, const struct message_progress *p);

/* stop: by order; why: "join", "lost", "leave", "failure", "order", "lease", "end", and text. The
 * last one of a generation is right: a failure may turn out to come of a loss. */
void events_order(struct events *e, uint32_t generation, const char *why, const char *text);

/* save: a node waits for a checkpoint; state: "asked" (the ranks of this node were notified),
 * "done" (each of them has reported that its state is saved) */
void events_save(struct events *e, uint32_t generation, const char *state);

/* leaving: the end of the ranks here is announced; state: "announced" (they are asked to save:
 * signal, grace_ms), then "saved" (all have reported it), "late" (the time was over before), or
 * "ended" (something else ended them) */
void events_leaving(struct events *e, uint32_t generation, const char *state, int sig,
                    uint64_t grace_ms);

/* coordinator: another one has replaced the job's, and the generation continues; state:
 * "replaced" */
void events_coordinator(struct events *e, uint32_t generation, const char *state);

/* suspend: the coordinator's host does not answer, and the ranks of this node wait (--rdzv-conf
 * host_timeout); state: "suspended", "resumed" (after for_ms) */
void events_suspended(struct events *e, uint32_t generation, bool is_suspended, uint64_t for_ms);

/* health: a node is found unhealthy, or is healthy again; state: "unhealthy" (with reason),
 * "healthy", "gone" (it was unhealthy, and has left). about: which node, by the coordinator's list;
 * this one, or another.
 *
 * reason   NULL: null */
void events_health(struct events *e, uint32_t generation, const char *about, const char *state,
                   const char *reason);

/* leave: this node leaves, or ends the job for all: text */
void events_leave(struct events *e, uint32_t generation, const char *text);

/* hang: rank, lrank, pid, and what hang_report.h lists; state, place: hang_report.h's. */
void events_hang(struct events *e, const struct supervisor *s, const struct hang_finding *f,
                 const struct hang_proc *proc);

/* pace: how fast the steps are: steps (of libddp, so many are completed), step_ms, slowest (the
 * rank that the others wait for), share (of a step, that they would save without it), and ranks: of
 * each that is known rank, steps, step_ms, own_ms (without the end of the step, where it waits).
 *
 * ranks    n of them */
void events_pace(struct events *e, uint32_t generation, const struct pace *pace,
                 const struct pace_rank *ranks, int n);

/* restart: of a failed generation gen; rank is its root cause (null: ddpctl asked for it), wait_ms
 * what it waits, counted whether it uses up --max-restarts */
void events_restart(struct events *e, const struct supervisor *s,
                    const struct roster_restart *restart);

/* replace: the failed rank lrank alone is started again, in generation gen; shrink: or the others
 * continue without it; counted as above */
void events_replace(struct events *e, const struct supervisor *s,
                    const struct roster_restart *restart);

/* goodput: what the seconds of the job were spent on, at the end of each generation and before
 * job_end: what goodput_json.h lists. */
void events_goodput(struct events *e, uint32_t generation, const struct goodput_sums *sums);

/* job_end: code, restarts (that --max-restarts was charged with; null: not known), generations,
 * wall_s
 *
 * n_restarts   -1: not known */
void events_job_end(struct events *e, const struct supervisor *s, int64_t n_restarts,
                    uint32_t n_generations);

#endif
