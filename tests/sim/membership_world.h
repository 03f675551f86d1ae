/* membership_world.h - the simulated world of sim_membership.c: connections that are slow and break
 * (membership_links.c), around the real roster (membership_roster.c) and its real members, with
 * simulated processes (membership_nodes.c). sim_membership.c draws the events and their times.
 *
 * Each invariant is checked where it could be violated; a check that fails prints the seed, the
 * time and the invariant, and exits. */
#ifndef DDP_TESTS_SIM_MEMBERSHIP_WORLD_H
#define DDP_TESTS_SIM_MEMBERSHIP_WORLD_H

#include "rendezvous/channel/channel_wire.h"
#include "rendezvous/membership/member.h"
#include "rendezvous/membership/roster.h"

#include "tests/support/chance.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_NODES = 10, /* that ever are, one after the other too */
    N_DOMAINS = 3,  /* with terms.segment */
    MAX_LINKS = 64, /* at a time */
    MAX_MAILS = 64, /* on their way in one direction */
    MAX_GENERATIONS = 512,
    MAX_STEPS = 200000,
    FAULTS_END_MS = 30000,
    STOP_MS = 2000,       /* the maximum that a node states */
    CHECK_MS = 400,       /* the same, of a check of its health */
    CONSEQUENCE_CODE = 1, /* with which ranks fail of another one's end */
    REJECTED_CODE = 77,   /* of a link that another process answers */
};

enum direction { TO_ROSTER, TO_NODE };

struct mail {
    uint64_t at_ms;
    uint8_t *bytes; /* owned; NULL: the connection ends */
    size_t len;
};

struct queue {
    struct mail mails[MAX_MAILS];
    int n;
};

struct link {
    uint64_t id; /* 0: this place is free */
    int node;
    bool has_end[2]; /* by direction: the end that hears is open */
    bool is_dead;    /* nothing arrives any more, without an error */
    struct queue queues[2];
};

enum ranks_phase { RANKS_NONE, RANKS_OPENING, RANKS_RUN, RANKS_DONE };

struct node {
    bool exists; /* the machine */
    bool is_up;  /* ddprun */
    struct member *member;
    char name[16], domain[16];
    struct message_hello hello;
    uint64_t starts_at_ms, leaves_at_ms, killed_at_ms, dies_at_ms, ends_job_at_ms, restarts_at_ms;
    uint64_t frozen_until_ms, blocked_until_ms, reset_at_ms;
    struct link *link;
    uint64_t connect_at_ms; /* the attempt's answer */

    enum ranks_phase phase;
    bool runs;            /* rank processes */
    bool may_park, parks; /* they live on, in no generation */
    uint32_t generation;
    bool has_place;          /* it was given one: */
    uint32_t sealed_in;      /* the newest generation in which it was given a place ... */
    uint32_t sealed_at;      /* ... the one with this index */
    uint32_t welcomed_after; /* so many moves of the roster, the last time */
    uint64_t lease_end_ms;   /* as the spawner knows it */
    uint64_t open_at_ms, fail_at_ms, done_at_ms, gone_at_ms, yield_at_ms;
    uint64_t check_at_ms;  /* the result of a check of its health */
    bool is_fit;           /* it was, since the last generation */
    bool fails_for_others; /* what comes at fail_at_ms is another node's fault */
    uint32_t n_failures;   /* of its ranks, that it does not call another one's fault */
    bool is_stuck;
    bool was_welcome; /* at any roster */

    bool has_ended;
    uint64_t ended_at_ms;
    struct member_end end;
};

struct generation {
    uint16_t port; /* 0: no node has started */
    int leader;
    uint32_t world_size, n_nodes;
    bool started[MAX_NODES];
    bool has_own_failure; /* a rank failed by itself ... */
    bool own_is_heard;    /* ... and the roster heard it in time */
    bool is_doomed;       /* some ranks will fail by themselves */
    uint64_t lasts_ms;
};

struct over {
    bool is_over;
    uint8_t exit_code;
};

struct world {
    uint64_t seed, now_ms;
    struct chance chance;
    struct message_terms terms;
    struct roster *roster;
    uint64_t roster_frozen_until_ms, state_since_ms;
    bool roster_slept;
    struct node nodes[MAX_NODES];
    int n_nodes;
    struct link links[MAX_LINKS];
    uint64_t n_links;
    uint16_t n_ports;
    struct generation generations[MAX_GENERATIONS];
    struct channel_wire_scratch scratch;
    uint64_t resets_at_ms, freezes_roster_at_ms;
    struct roster_limits limits;
    bool is_blind;                         /* a roster that takes over knows nothing */
    uint64_t adopted_at_ms;                /* blind: a roster has learned of a generation; 0 */
    uint64_t replaced_at_ms;               /* blind: the last time that a roster took over; 0 */
    uint64_t moves_at_ms;                  /* the roster is lost; CO_NEVER_MS */
    bool is_moving;                        /* it is, until roster_frozen_until_ms */
    uint64_t writes_at_ms, confirms_at_ms; /* the newest generation's record */
    bool has_past;
    struct roster_past past, being_written; /* the record ... */
    struct over past_end, being_end;        /* ... and whether the job has ended */
    uint32_t n_moves, n_adopted, n_untold;  /* untold: see check_move() */
    uint32_t n_closed_moves;                /* after the verdict */
    uint32_t n_reported_ended;
    uint32_t inherited; /* the generation that was taken over with a record */
    uint32_t
        told; /* when the newest was sealed: the newest that one of its nodes knew a place in */
    bool recovers;         /* ranks outlive the end of a generation */
    bool checks;           /* some nodes check their health */
    uint64_t n_unfit;      /* results */
    uint64_t n_left_out;   /* nodes whose segment was not whole any more */
    uint32_t n_own_before; /* blind: failures in generations whose numbers came again */
    uint64_t n_messages;
    uint64_t most_steps;     /* that was reported to the roster ... */
    uint32_t advanced_after; /* ... first of this generation, plus 1 */
    bool has_node_ranks;
    bool loses_nodes;      /* some are killed, cut off or leave */
    bool tells;            /* ranks that fail after another's end report so */
    bool has_home;         /* the roster is in the ddprun of the first node, and stops with it */
    bool home_needs_lease; /* another process could take over */
    bool home_is_leased;   /* ... and the node has answered */
    uint64_t lease_turns_at_ms; /* that changes */
};

/* --- Chance, and giving up --- */

static inline uint64_t draw(struct world *w, uint64_t below)
{
    return chance_draw(&w->chance, below);
}

static inline bool chance(struct world *w, uint64_t one_in)
{
    return draw(w, one_in) == 0;
}

static inline void give_up(const struct world *w, const char *what)
{
    fprintf(stderr, "seed %" PRIu64 ", at %" PRIu64 " ms in %s: %s\n", w->seed, w->now_ms,
            roster_state_name(roster_get_state(w->roster)), what);
    exit(1);
}

static inline void check(const struct world *w, bool holds, const char *what)
{
    if (!holds)
        give_up(w, what);
}

static inline uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline bool is_home(const struct world *w, const struct node *n)
{
    return w->has_home && n == w->nodes;
}

static inline const char *message_name(enum message_type type)
{
    static const char *const names[] = {
#define X(name, meaning) #name,
        MESSAGE_TYPES(X)
#undef X
    };
    return names[type];
}

/* --- Connections --- */

void queue_clear(struct queue *q);
void queue_put(struct world *w, struct queue *q, uint8_t *bytes, size_t len); /* takes bytes */
struct mail queue_take(struct queue *q); /* its first; hands the bytes over */

struct link *link_by_id(struct world *w, uint64_t id); /* NULL: no such link. 0: a free place */
void link_send(struct world *w, struct link *l, enum direction to, const struct message *m);

/* The owner closes the end that receives in this direction; the other end is notified. */
void link_close(struct world *w, struct link *l, enum direction heard);
void link_reset(struct world *w, struct link *l); /* both ends are notified */
void link_free_if_over(struct world *w, struct link *l);

/* --- The roster, and the members --- */

void roster_feed(struct world *w, struct roster_input in); /* at now_ms */
void node_feed(struct world *w, struct node *n, struct member_input in);
void node_take_time(struct world *w, struct node *n);
void node_turn_lease(struct world *w, struct node *n); /* the home */
void node_make_hello(struct world *w, struct node *n, int i);
bool node_is_excluded(const struct node *n); /* as it has heard */

/* --- What can happen to a node, by number --- */

enum { NODE_N_HAPPENINGS = 14 };

uint64_t node_happens_at_ms(const struct node *n, size_t i); /* CO_NEVER_MS: it does not */
void node_happen(struct world *w, struct node *n, size_t i);

#endif
