/* supervisor.h - the ranks of this node: start, watch, stop, give the verdict.
 *
 * Pure. The caller feeds events in, each with the time, and carries out the orders that come back.
 * docs/design/supervisor.dot is the drawing, made from the table in supervisor.c and compared with
 * it by a test.
 *
 * Words:
 *   root cause   the first failure that was seen; only it decides the exit status. A rank that had
 *                lost a peer before it failed is the root cause only if no other failure is known:
 *                the other ranks have cause_ms to fail by themselves before they are stopped
 *   descendant   a process that is not a rank but descends from one, alive when its rank has ended
 *   signaled     a rank got a signal from us; its end after that is not evidence about the job
 *   generation   the ranks from one start of all of them to the end of all of them, or to the
 *                replacement of one, counted from 0
 *   aborter      a rank that waits in MPI_Abort. It fails; but a library of MPI also aborts a rank
 *                that has lost a peer, without any other trace, so a rank that fails by itself
 *                anywhere is the cause instead
 *   recoverable  a rank that has reported, when it joined the others, that it outlives a peer: when
 *                one fails, only that one is started again (docs/design/recovery.md)
 *   parked       ranks that take part in no generation, and wait for the next one
 *
 * The supervisor decides nothing about the job: that is the roster's (roster.h), and
 * launcher/membership/roster_agent.h carries news one way and orders the other. Nothing is started
 * before NEXT. After a failure, and when all ranks have ended, the supervisor stops what it has,
 * and waits: for NEXT, or for FINISH, which has the outcome of the job. */
#ifndef DDP_LAUNCHER_SUPERVISOR_SUPERVISOR_H
#define DDP_LAUNCHER_SUPERVISOR_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SUPERVISOR_STATES(X) /* name, on entry, meaning */                                         \
    X(STARTING, start_more, "ranks are being started; those that were run already")                \
    X(RUNNING, nothing, "every rank was started, at least one runs")                               \
    X(RECOVERING, nothing, "a failed rank is being replaced; the others are called to it")         \
    X(PARKED, nothing, "the ranks live on between two generations")                                \
    X(AWAITING, nothing,                                                                           \
      "a rank that lost a peer has failed; the failure of that peer is awaited")                   \
    X(STOPPING, nothing, "the ranks got a signal to stop and are given time for it")               \
    X(KILLING, kill_ranks, "the ranks are killed, with their process groups")                      \
    X(LEFTOVERS, signal_descendants,                                                               \
      "the ranks are gone; the processes that they left get a signal to stop")                     \
    X(SWEEPING, kill_descendants, "what the ranks left is killed")                                 \
    X(ALONE, sweep_alone, "without the spawner, lost or deaf, ddprun kills all below it")          \
    X(DRAINING, drain, "nothing runs any more; the last output is passed on")                      \
    X(WAITING, nothing, "the next generation waits for its time, or for an order")                 \
    X(ENDED, end, "the verdict stands")

#define SUPERVISOR_EVENTS(X) /* name, meaning */                                                   \
    X(STARTED, "a rank was started")                                                               \
    X(START_FAILED, "a rank could not be started")                                                 \
    X(EXITED, "a rank ended, or does so and cannot be called back")                                \
    X(JOINED, "a rank has joined the others of its generation")                                    \
    X(ASKED, "a rank has left its generation, and asks for the next one")                          \
    X(ABORTED, "a rank has called MPI_Abort, and waits in it until other nodes know")              \
    X(EMPTY, "the last descendant ended")                                                          \
    X(SIGNAL, "ddprun received a signal")                                                          \
    X(TIME, "the deadline has come")                                                               \
    X(TIMEOUT, "the time that the whole job was given is over")                                    \
    X(SPAWNER_LOST, "the spawner is gone or does not answer")                                      \
    X(SWEPT, "ddprun has killed what was below it")                                                \
    X(DRAINED, "the last output was passed on, or its reader is gone")                             \
    /* orders */                                                                                   \
    X(NEXT, "the next generation is to be started")                                                \
    X(ORDER_STOP, "the ranks are to be stopped, for a reason that is not here")                    \
    X(ORDER_KILL, "the ranks are to be killed now")                                                \
    X(FINISH, "the job is over; how, is known")

enum supervisor_state {
#define X(name, on_entry, meaning) SUPERVISOR_##name,
    SUPERVISOR_STATES(X)
#undef X
        SUPERVISOR_N_STATES
};

enum supervisor_event_type {
#define X(name, meaning) SUPERVISOR_EV_##name,
    SUPERVISOR_EVENTS(X)
#undef X
        SUPERVISOR_N_EVENTS
};

/* What a generation's ranks have achieved, where --restart-after-progress or --no-progress asks for
 * it. */
struct supervisor_progress {
    uint64_t n_steps;     /* the most that a rank has completed in it */
    uint64_t total_steps; /* together with those before it */
    uint64_t output_ms;   /* when a rank last wrote to its standard output; 0: never */
};

/* Whose word ended the job, for this node. */
enum supervisor_ender {
    ENDED_BY_ROSTER, /* its verdict */
    ENDED_BY_STOP,   /* ours: a signal to this ddprun, or its --timeout */
    ENDED_BY_LOSS,   /* ours: nothing can be started here any more */
    ENDED_BY_HEALTH, /* the roster's: this node, the only one, was not fit for too long */
};

enum supervisor_start_stage { SUPERVISOR_START_INTERNAL, SUPERVISOR_START_EXEC };

struct supervisor_event {
    enum supervisor_event_type type;
    uint64_t now_ms;
    int rank;   /* STARTED, START_FAILED, EXITED, JOINED, ASKED, ABORTED; local */
    pid_t pid;  /* STARTED */
    int status; /* EXITED: as waitpid() has it, ABORTED: as it will; START_FAILED: the errno; SWEPT:
                   0, or some hang */
    enum supervisor_start_stage stage; /* START_FAILED */
    bool recovers;                     /* JOINED: it is recoverable */
    bool empty;       /* EXITED, START_FAILED: and nothing is left below the spawner */
    bool was_ending;  /* EXITED: before the first signal of ours came, if one did */
    bool lost_peer;   /* EXITED: it knew of another one's end before its own */
    bool was_failing; /* EXITED: it had printed an error of its own before our first signal came */
    bool aborts;      /* EXITED: it had called MPI_Abort, and other nodes take part */
    bool blames; /* EXITED: it ended because `culprit` died, whose own end may be seen later: a rank
                    with much memory takes long to die, and the others know at once */
    int culprit;
    uint64_t held_ms;                    /* EXITED: it happened so long before now_ms */
    struct supervisor_progress progress; /* EXITED, ABORTED: the generation's, by now */
    bool some_run;       /* TIME: something that was killed runs; the kernel takes it apart */
    int sig;             /* SIGNAL; FINISH: that of which this ddprun is to die, or 0 */
    uint32_t generation; /* NEXT: its number */
    int n_ranks;         /* NEXT: so many of this node are in it, see supervisor_n_next() */
    bool gently;         /* ORDER_STOP: they have the time of a signal, else that of a failure */
    bool may_park;       /* ORDER_STOP: it is their generation that ends; they may live on */
    bool for_failure;    /* ORDER_STOP: a rank has failed elsewhere */
    int exit_code;       /* FINISH: what the whole job's end means */
    bool is_stuck;       /* FINISH: by --no-progress */
    enum supervisor_ender ender; /* FINISH */
};

/* What is known of a rank's end. */
struct supervisor_exit {
    int rank;
    int status; /* as it counts: from waitpid(), or what the rank has reported by MPI */
    bool empty; /* these as in the event */
    bool was_ending;
    bool lost_peer;
    bool was_failing;
    bool aborts;
    int lost;    /* the rank whose death it has seen in the shared memory; -1: none */
    int aborter; /* the rank that has called MPI_Abort, and does not wait in it; -1: none */
    uint64_t held_ms;
    struct supervisor_progress progress;
};

/* What the caller has to do now; zero and false: nothing. At most one of n_start, recover and
 * signal is asked for besides ending and draining. */
struct supervisor_orders {
    int n_start;        /* start this many ranks more, the next in order */
    bool park;          /* take the ranks out of their generation: those that wait in it are
                         * released */
    bool recover;       /* make what the next generation has of its own while ranks live ... */
    const int *restart; /* ... and start these in it; lent until the next step */
    int n_restart;
    const int *dropped; /* with recover: these are not in it, nor in later ones; lent in the same
                         * way */
    int n_dropped;
    int signal;       /* send it to each rank that runs ... */
    int except;       /* ... apart from this one, which dies already; -1: none */
    bool to_groups;   /* ... to its process group, else to its first process */
    int sweep_signal; /* send it to all that is left */
    bool sweep_alone; /* kill all below ddprun, then feed SWEPT */
    bool drain;       /* pass the last output on, then feed DRAINED */
    bool renew;       /* before n_start: make what each generation has of its own */
    bool ended;       /* the verdict stands */
};

struct supervisor_limits {
    int n_ranks;
    int window;                /* starts that may be unanswered at a time */
    int batch;                 /* ranks asked for together, while so many are left; at most the
                                  window; 0: 1 */
    uint64_t grace_ms;         /* from a signal passed on to SIGKILL */
    uint64_t failure_grace_ms; /* from a failure's SIGTERM to SIGKILL; also what descendants get */
    uint64_t cause_ms;     /* from the failure of a rank that lost a peer to the others' SIGTERM,
                                  if none fails otherwise in that time; 0: none */
    uint64_t stop_signals; /* bit N: signal N ends the job, besides TERM, INT, HUP and QUIT */
    bool to_groups;        /* what is passed on goes to a rank's whole group at once */
    bool has_others;       /* other nodes take part: ranks there may be lost while they live */
    bool recovers;        /* ranks live on when one fails, where they can: that one alone is started
                              again */
    bool drops;           /* with recovers: or is left out */
    uint64_t recovery_ms; /* ranks that are called to the next generation may take so long */
    uint64_t output_after_ms; /* from a generation's start to when output counts as progress */
};

#define SUPERVISOR_KILL_MS                                                                         \
    10000 /* what outlives SIGKILL for this long hangs, or the spawner does ... */
#define SUPERVISOR_TEARDOWN_MS                                                                     \
    120000 /* ... unless it runs: to free 100 GB takes 10 s, and more at a low priority */

/* For cause_ms: less than a lease (LEASE_MS), so that the loss of a node is not seen later. */
#define SUPERVISOR_CAUSE_MS 2000

enum supervisor_join { RANK_NOT_JOINED, RANK_JOINED, RANK_RECOVERABLE };

enum supervisor_phase { RANK_NOT_STARTED, RANK_ASKED, RANK_RUNS, RANK_ENDED, RANK_FAILED_TO_START };

struct supervisor_rank {
    enum supervisor_phase phase;
    pid_t pid;
    bool aborts;        /* it has called MPI_Abort, maybe since it lost a peer */
    int status;         /* ended, or aborts: of waitpid(); failed to start: errno */
    int signaled_first; /* the first and the last signal we sent it before it ended; 0: none */
    int signaled_last;
    int forwarded;    /* the last signal that ddprun got and passed on, which is not one to stop */
    bool lost_peer;   /* ended: what it did then was a consequence of another one's end */
    bool was_failing; /* ended: it had printed an error of its own before our first signal */
    uint64_t started_ms, ended_ms;
    enum supervisor_join joined; /* in any generation */
    bool called;                 /* to the next generation; it has not joined that yet */
    bool is_dropped;             /* ended: the job continues without it */
    bool asks;                   /* for a generation after this one */
};

enum supervisor_outcome {
    OUTCOME_NONE,         /* not over yet */
    OUTCOME_WELL,         /* each rank ended with status 0 */
    OUTCOME_RANK_FAILED,  /* root cause: rank */
    OUTCOME_START_FAILED, /* root cause: rank; the program cannot be executed */
    OUTCOME_SIGNAL,       /* `signal` stopped ddprun */
    OUTCOME_TIMEOUT,      /* the job took longer than it was given */
    OUTCOME_INTERNAL, /* a rank could not be started for want of something, or the spawner died */
    OUTCOME_ORDERED   /* stopped by order */
};

struct supervisor_verdict {
    enum supervisor_outcome outcome;
    int witness;    /* RANK_FAILED: the rank that blamed `rank` before its end was seen; or -1 */
    int rank;       /* RANK_FAILED, START_FAILED; INTERNAL: or -1 */
    int signal;     /* SIGNAL */
    bool recovers;  /* RANK_FAILED: ranks may outlive it, here or on other nodes */
    bool is_parted; /* RANK_FAILED: it lives, and has lost others that also live */
    bool some_hang; /* some processes outlived SIGKILL: they hang in the kernel */
    bool is_final;  /* FINISH has come; the rest is how the last generation ended here */
    int exit_code;  /* is_final: of the whole job */
    bool is_stuck;  /* is_final: another generation was allowed, except by --no-progress */
    bool is_unfit;  /* is_final: alone, and not fit for another generation for too long */
    int die_of;     /* is_final: the signal of which this ddprun dies; 0: none */
};

struct supervisor_replacement { /* the last one */
    int rank;                   /* -1: none */
    struct supervisor_rank was; /* what failed */
    bool is_dropped;            /* no replacement: the others continue without it */
};

struct co_machine;
struct supervisor; /* opaque */

#define SUPERVISOR_EXIT_TIMEOUT 124

/* Nothing runs, and NEXT is waited for.
 *
 * returns   NULL without memory */
struct supervisor *supervisor_create(const struct supervisor_limits *limits);
void supervisor_destroy(struct supervisor *s); /* NULL is fine */

/* EXITED, of all that is known. What is fed is this, and nothing changes it. */
struct supervisor_event supervisor_exit_event(const struct supervisor_exit *x);

/* Feed one event. An event that means nothing in this state is ignored. */
void supervisor_step(struct supervisor *s, const struct supervisor_event *e,
                     struct supervisor_orders *ret);

enum supervisor_state supervisor_get_state(const struct supervisor *s);
uint64_t supervisor_deadline_ms(const struct supervisor *s); /* CO_NEVER_MS: feed no TIME */
const struct supervisor_rank *supervisor_get_rank(const struct supervisor *s, int rank);
int supervisor_n_ranks(const struct supervisor *s);

/* So many of this node's ranks would be in the next generation, if one follows: all of them, except
 * those that are dropped while others live on. 1 or more. */
int supervisor_n_next(const struct supervisor *s);

/* A rank's place among those of this node that are not dropped; for one that is: after how many. */
int supervisor_place_of(const struct supervisor *s, int rank);
uint32_t supervisor_generation(const struct supervisor *s);
uint64_t supervisor_generation_ms(const struct supervisor *s); /* since when it is under way */
const struct supervisor_verdict *supervisor_get_verdict(const struct supervisor *s);

/* The rank that waits in MPI_Abort, and is the cause for all that is known: no rank is being
 * stopped yet. Other nodes are to know before their ranks lose it, and fail as well; -1: none. */
int supervisor_get_aborter(const struct supervisor *s);
const struct supervisor_replacement *supervisor_get_replacement(const struct supervisor *s);

/* Has the generation made progress? A completed step of libddp is progress: ranks have exchanged
 * gradients, which no start-up does. Standard output also counts if it arrives late enough after
 * the start: programs that fail at their start greet before they do. Standard error does not count,
 * since failures themselves are reported there. */
bool supervisor_has_progressed(const struct supervisor *s);

/* The most steps that a rank of this node has completed since the job began, as far as its ranks
 * report them; by the last end of a rank in this generation. */
uint64_t supervisor_total_steps(const struct supervisor *s);

/* What is to end this node's part in the job, whatever its ranks do: the roster is to know. */
int supervisor_stop_signal(const struct supervisor *s); /* the first that asks for a stop; 0:
                                                         * none */
bool supervisor_timed_out(const struct supervisor *s);  /* before any such signal */
bool supervisor_is_alone(const struct supervisor *s);   /* without the spawner: nothing starts */

/* The exit status that the verdict means: 0; a rank's status or 128 + its signal, or 1 if it was
 * failing and died of our signal; 126, 127 (not executable, not found); 128 + the signal that
 * stopped us; 124 the job's time was over; 70 internal. */
int supervisor_exit_code(const struct supervisor *s);
bool supervisor_is_of_ours(const struct supervisor_rank *r); /* ended: it died of our signal */
int supervisor_die_of(const struct supervisor *s); /* the signal that stopped us; 0: none */
int supervisor_code_of_status(int status);         /* of a rank's, as waitpid() has it */

const char *supervisor_state_name(enum supervisor_state state);
const char *supervisor_event_name(enum supervisor_event_type type);

/* The table, for its drawing and its tests. */
extern const struct co_machine supervisor_machine;

#endif
