/* supervisor_world.h - the simulated world of sim_supervisor.c: ranks, the processes that outlive
 * them, and a spawner that carries out the supervisor's orders. sim_supervisor.c draws what happens
 * and when.
 *
 * The world keeps what the supervisor has to decide: the first cause, and whether a restart or a
 * replacement is allowed. A check that fails prints the seed, the time and the state, and exits. */
#ifndef DDP_TESTS_SIM_SUPERVISOR_WORLD_H
#define DDP_TESTS_SIM_SUPERVISOR_WORLD_H

#include "launcher/supervisor/supervisor.h"

#include "tests/support/chance.h"
#include "tests/support/solo_job.h"

#include <stdbool.h>
#include <stdint.h>

enum { MAX_RANKS = 12, MAX_DESCENDANTS = 24 };

enum {
    /* not an exit status: an order ended the generation ... */
    CODE_ORDERED = 1000,
    /* ... or a rank that did not join: its exit status, or 70 if it succeeded */
    CODE_LATE = 1001
};

struct process { /* a rank or a descendant */
    bool runs;
    bool hangs;       /* not even SIGKILL ends it */
    bool ends_slowly; /* SIGKILL does, after long work of the kernel */
    int obeys;        /* this long after SIGTERM it ends, in ms; -1: it ignores all but SIGKILL */
    uint64_t ends_at_ms; /* by itself, or because of a signal */
    int status;
};

struct rank {
    struct process p;
    bool asked, answered;
    uint64_t answer_at_ms;
    int start_error;      /* 0: it starts */
    int n_descendants;    /* that outlive it */
    uint64_t joins_at_ms; /* after its start, and when it is called; CO_NEVER_MS: not */
    bool has_joined;      /* in any generation */
    bool is_called;       /* to a generation that it has not joined yet */
    bool is_plain;        /* it does not outlive others */
    bool is_dropped;      /* it has ended, and its peers continue without it */
    bool loses_peer;      /* if it fails, then since another one was gone */
    bool tells_early;     /* of its error, long before it ends */
};

struct world {
    uint64_t seed;
    struct chance chance;
    uint64_t now_ms;
    struct supervisor *s; /* of the job */
    struct solo_job job;
    struct supervisor_limits limits;
    int max_restarts;
    bool after_progress; /* is not counted */
    bool is_alone;
    bool some_end_slowly; /* or did */
    struct rank ranks[MAX_RANKS];
    struct process descendants[MAX_DESCENDANTS];
    int n_descendants;
    int n_asked, n_unanswered;
    bool draining, ended, spawner_lives, stop_seen;
    int sweep_signal;
    uint64_t spawner_deaf_from_ms; /* it lives, but neither acts nor reports: stopped */
    uint64_t spawner_dies_at_ms, signal_at_ms, last_signal_ms;
    uint64_t stopped_at_ms; /* when the first cause to stop came; CO_NEVER_MS: none */
    int culprit,
        witness_code;    /* a rank that is blamed while it dies; what counts if its end is never
                                  seen. -1: none */
    int expected_code;   /* by the first cause; -1: none yet */
    bool rank_failed;    /* that cause is one after which ranks may be started again */
    bool is_consequence; /* ... and a rank's that had lost a peer: it gives way to another one */
    bool went_alone;
    uint64_t kill_ms; /* the last order to kill */
    int n_restarts, n_counted;
    uint64_t first_step_ms; /* when this generation completes its first; CO_NEVER_MS: none */
    bool failed_after_progress;
    bool has_progressed; /* as reported with the last end of a rank */
    bool was_replaced;   /* the rank that has just ended */
    bool is_late;        /* a rank that was called has not come */
    int stop_code;       /* of what came first and forbids a restart; -1: nothing */
    uint64_t timeout_at_ms;
    uint64_t order_at_ms; /* not alone: the next order; CO_NEVER_MS: none while it runs */
    int n_generations;
    uint32_t generation;
    int final_code; /* as ordered; -1: not yet */
};

static inline uint64_t draw(struct world *w, uint64_t below)
{
    return chance_draw(&w->chance, below);
}

void check(const struct world *w, bool holds, const char *what);

/* The limits, the first generation, and what comes from outside, drawn from the seed. */
void world_init(struct world *w, uint64_t seed);

/* A process that runs until it is ended. */
struct process make_process(struct world *w);

/* Has everything of the generation ended? */
bool is_empty(const struct world *w);

/* Does the spawner act on orders and report? */
bool spawner_acts(const struct world *w);

/* Has rank i, which ends now with a failure, to be replaced? */
bool is_to_be_replaced(const struct world *w, int i);

bool is_between_generations(const struct world *w);

/* The first cause decides; it counts from when the supervisor receives it. */
void note_cause(struct world *w, int code);

/* A rank's end is a cause. */
void note_failure(struct world *w, int code);

/* A rank's end is the cause after all: what was received before it was its consequence, or an order
 * that resulted from it. When the job began to stop does not change. */
void note_cause_behind(struct world *w, int code);

/* What ends the job also where a failure would not. */
void note_stop(struct world *w, int code);

/* Give the supervisor an event, and carry out its orders. */
void feed(struct world *w, struct supervisor_event e);

/* The callback of the world's solo_job: arg is the world. */
void carry_out_of_job(void *arg, const struct supervisor_orders *o);

#endif
