/* replay.h - the membership history of a job, as its events told it (--events), and what has to be
 * done to make the same happen at the same steps again.
 *
 *     replay_create(&r, &err);
 *     for each record of the file: replay_add(r, &record, &err);
 *     replay_finish(r, &err);
 *     while the job runs: n = replay_look(r, &view, actions);
 *
 * Pure. replay_read.h makes records of a file, node_replay.h carries actions out.
 *
 * A generation of the recording has ended behind some step, since a rank or a node of it went, or a
 * node came. In a replay all ranks wait in the middle of the step behind that one (the hold), and
 * then what went goes: so who goes takes no step along, and the next generation begins where the
 * recorded one did. What is
 * the same in each run of a program is so again: which rank it happens to, behind which step, in
 * which order, and how it ended. What is not: where inside of a step it was, and what came before
 * the ranks had met. */
#ifndef DDP_LAUNCHER_REPORTING_REPLAY_H
#define DDP_LAUNCHER_REPORTING_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct replay; /* opaque */

enum {
    REPLAY_MAX_GENERATIONS = 100000,
    REPLAY_MAX_RECORDS = 10000000,
    REPLAY_MAX_NODES = 65536,
    REPLAY_MAX_RANK = 1 << 26, /* global */
    REPLAY_MAX_LOCAL = 1024,
};
#define REPLAY_MAX_STEPS (UINT64_C(1) << 62)

enum replay_record_type {
    REPLAY_START, /* the job's, on one ddprun: ranks */
    REPLAY_BEGAN, /* a rank was started */
    REPLAY_PLACE, /* a node has a place in a generation */
    REPLAY_EXIT,  /* a rank has ended */
    REPLAY_STOP,  /* the ranks of a node are stopped: why */
    REPLAY_STEPS, /* a generation is over on a node */
    REPLAY_END,   /* of the job, on one ddprun */
};

enum replay_why { /* of a STOP */
                  REPLAY_WHY_OTHER,
                  REPLAY_WHY_FAILURE, /* of `rank` */
                  REPLAY_WHY_SIGNAL,  /* ddprun got `sig` */
                  REPLAY_WHY_RESTART, /* ddpctl asked for it */
};

struct replay_record {
    enum replay_record_type type;
    unsigned line;                /* of the file, from 1, for messages */
    uint32_t generation;          /* < REPLAY_MAX_GENERATIONS */
    uint32_t node;                /* its place in the generation, < REPLAY_MAX_NODES */
    uint64_t stay;                /* PLACE: another number for each ddprun */
    uint32_t n_nodes, world;      /* PLACE; START: world is this node's ranks */
    uint32_t first_rank, n_local; /* PLACE */
    uint32_t rank;                /* BEGAN, EXIT; STOP of a FAILURE; global */
    int status;                   /* EXIT: as waitpid() has it */
    bool lost_peer;               /* EXIT: a consequence of another one's */
    enum replay_why why;          /* STOP */
    int sig;                      /* STOP of a SIGNAL */
    bool is_known;                /* EXIT: `after`; STEPS: `before` */
    uint64_t before, after;       /* STEPS; EXIT: after */
    bool lives;                   /* STEPS */
};

/* returns   NULL without memory */
struct replay *replay_create(void);
void replay_destroy(struct replay *r); /* NULL is fine */

/* Records of one node come in their order, those of several nodes in any.
 *
 * returns   0, -EINVAL (it is out of bounds, or contradicts an earlier one: the text names both
 *           lines, but not the file), -ENOMEM */
int replay_add(struct replay *r, const struct replay_record *record, struct co_error *err);

/* All records are there: find out why each generation has ended. Before it replay_look() is not
 * called.
 *
 * returns   0, -EINVAL (a rank began twice; the records of some nodes are missing; nothing tells
 *           why a generation ended, or behind which step), -ENOMEM */
int replay_finish(struct replay *r, struct co_error *err);

uint32_t replay_n_generations(const struct replay *r);

/* What a generation was.
 *
 * returns   false: the recording has no such */
struct replay_shape {
    unsigned line;           /* which tells of it */
    uint32_t n_nodes, world; /* world 0: not known */
    bool has_before; /* its ranks have met; before: steps of the job that were completed then */
    uint64_t before;
    uint32_t n_joining; /* nodes that come behind it */
};
bool replay_get(const struct replay *r, uint32_t generation, struct replay_shape *ret);

/* Behind which step its ranks wait. returns whether they do */
bool replay_find_hold(const struct replay *r, uint32_t generation, uint64_t *ret_steps);

enum replay_action_type {
    REPLAY_KILL,    /* a rank, which then counts as one that ended with `status` */
    REPLAY_SIGNAL,  /* as if ddprun had got `sig` */
    REPLAY_DIE,     /* this ddprun is killed */
    REPLAY_RESTART, /* as if ddpctl had asked for it */
    REPLAY_AWAIT,   /* nothing: `n_nodes` are to join */
};

struct replay_action {
    enum replay_action_type type;
    uint32_t rank;    /* KILL: its place among those of its node */
    int status;       /* KILL */
    int sig;          /* SIGNAL */
    uint32_t n_nodes; /* AWAIT */
};

struct replay_view { /* of one node's ranks, without those that the job goes on without */
    uint32_t generation, node, first_rank, n_local;
    const bool *held; /* of each: it waits where all wait */
    const bool *runs;
};

enum { REPLAY_MAX_DEEDS = REPLAY_MAX_LOCAL };

/* What is to be done now: each action once. A rank is killed once it waits, all else is done once
 * all that run do.
 *
 * ret       room for REPLAY_MAX_DEEDS
 * returns   how many */
size_t replay_look(struct replay *r, const struct replay_view *view, struct replay_action *ret);

#endif
