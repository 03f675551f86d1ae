/* quorum_world.h - the processes of a job, each with a council, on virtual time: their clocks,
 * links, generations, and faults. sim_quorum.c draws the faults and checks.
 *
 * Councils, voters and proposers are the real ones. A process with a roster begins generations at
 * random; those without one offer to vote to the process that coordinates. */
#ifndef DDP_TESTS_SIM_QUORUM_WORLD_H
#define DDP_TESTS_SIM_QUORUM_WORLD_H

#include "schedules.h"

#include "rendezvous/quorum/council.h"

#include "tests/support/chance.h"

enum {
    MAX_PROCESSES = 6,
    MAX_MAILS = 512,
    MAX_DECISIONS = 4096,
    DRIFT_PERCENT = 6,
    HOST_MIN_MS = 300,  /* a host that does not answer for so long ... */
    HOST_MAX_MS = 1000, /* ... up to so long is silent */
    FAULTS_END_MS = 60000,
};

enum kind {
    MAJORITY,    /* any faults, several at a time */
    ALONE_WHOLE, /* limits.quorum.alone; the network is whole, and the next fault waits until all
                    processes that run vote again */
    ALONE_CUT,   /* limits.quorum.alone, and any faults */
    BEGUN_AGAIN, /* the first process is killed, and started again, also while the network is cut:
                    it begins the job once more. A generation needs min_nodes */
};

enum mutant {
    NO_MUTANT,
    NOT_RESERVED,
    ANSWERED_EARLY,
    NOT_STORED,
    FREED_EARLY,
    REPLACED_EARLY,
    DOES_NOT_WAIT, /* this and the next ones: of ALONE_WHOLE */
    NOT_AGREED,
    NOT_ANSWERED,
    N_MUTANTS
};

struct mail {
    uint64_t at_ms;
    uint32_t from, to;
    struct ballot ballot;
};

struct process {
    bool is_up, has_left;
    struct council council;
    uint64_t rate_percent, offset_ms; /* of its clock */
    uint64_t stopped_until_ms;        /* real time, as below */
    uint64_t offers_at_ms;
    uint64_t in_job, led_ms; /* BEGUN_AGAIN: its node's job, and when it reached the coordinator */

    bool has_roster; /* what its orders have come to: */
    uint64_t certain_until_ms;
    bool lacks_lease;            /* its node; the process itself may be stopped */
    uint64_t lease_due_ms;       /* when the council is obeyed about it; CO_NEVER_MS */
    struct elector_record knows; /* n_nodes 0: no generation yet */
    bool is_committing;
};

struct world {
    uint64_t seed, now_ms;
    struct chance chance;
    enum kind kind;
    uint32_t n;
    struct process processes[MAX_PROCESSES];
    bool is_cut[MAX_PROCESSES][MAX_PROCESSES]; /* from, to */
    struct mail mails[MAX_MAILS];
    uint32_t n_mails;
    uint32_t decided[MAX_DECISIONS]; /* marks of generations, in order */
    uint32_t n_decisions, n_marks;
    uint64_t loses_one_in;
    uint64_t host_ms; /* 0: no host is reported as silent */
    uint64_t job;     /* the first one, of those that were begun */
    uint32_t min_nodes, n_begun;
    bool stands;   /* BEGUN_AGAIN: a lost coordinator is replaced: 2 * min_nodes > n, or `once` */
    bool is_split; /* ALONE_CUT: a generation has not followed the last one */
    enum mutant mutant;
    const char *broken; /* a mutant, or a documented split */
};

struct totals {
    uint64_t n_leaders, n_decisions, n_killed, n_left, n_hand_overs, n_changes, n_early, n_unleased,
        n_silent, n_merged, n_split, n_moved;
};

extern struct world world;
extern struct totals totals;

uint64_t world_draw(struct world *w, uint64_t below);

/* `what` has happened. Ends the run of a mutant, and otherwise the program. */
void world_check(const struct world *w, bool holds, const char *what);

void world_init(struct world *w, uint64_t seed, enum kind kind, enum mutant mutant);

uint64_t world_clock_ms(const struct world *w, const struct process *p);
bool world_is_awake(const struct world *w, const struct process *p);
bool world_leads(const struct world *w, const struct process *p);
uint32_t world_n_up(const struct world *w);
const struct process *world_find_leader(const struct world *w);

/* Processes of its job that this one reaches, with itself: nodes of its next generation. */
uint32_t world_n_reached(const struct world *w, const struct process *p);

void world_deliver(struct world *w);                    /* messages that are due */
void world_live_on(struct world *w, struct process *p); /* what is due at a process that is awake */

/* Faults. Nothing where one does not apply. */
void world_kill(struct world *w, struct process *p); /* others notice it, or only the silence */
void world_leave(struct world *w, struct process *p);
void world_begin_again(struct world *w);         /* the first process, which was killed */
void world_part(struct world *w, uint32_t last); /* the processes up to this one from the others */
void world_mend(struct world *w);                /* all links */

#endif
