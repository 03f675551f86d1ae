/* small_world.h - a roster, three members and all between them, as one value: it can be copied, and
 * hashed by all that decides what can follow. For sim_membership_all.c. */
#ifndef TESTS_SIM_SMALL_WORLD_H
#define TESTS_SIM_SMALL_WORLD_H

#include "rendezvous/membership/member_priv.h"
#include "rendezvous/membership/roster_priv.h"

enum {
    N_NODES = 3,
    MAX_LINKS = 3, /* of a node at a time: one, and those whose end was not seen yet */
    MAX_MAILS = 12,
    MAX_GENERATIONS = 16,
};

enum direction { TO_ROSTER, TO_NODE };

#define NO_LEASE_MS 1000000000u

#define MAIL_END MESSAGE_N_TYPES /* in place of a message: the connection ends here */

/* A message without what is the same in all of them. */
struct mail {
    uint8_t type, why, code;
    bool flag;
    uint32_t generation;
    uint32_t numbers[5];
    uint16_t port;
    uint64_t sent_ms;
};

struct queue {
    struct mail mails[MAX_MAILS];
    int n;
};

struct link {
    uint64_t id; /* 0: free */
    bool has_end[2];
    struct queue queues[2];
};

/* So many of each event may happen. RENEW: a requested restart. MOVE: the roster is lost, and
 * another one takes over. SICK: a check finds a node not healthy. */
enum fault { KILL, RESET, FAIL, LEAVE, RENEW, SILENCE, SLOW, MOVE, SICK, N_FAULTS };

/* The newest generation's, where the roster may be lost: written, then confirmed. */
enum record_phase { RECORD_WANTED, RECORD_WRITTEN, RECORD_CONFIRMED };

struct config {
    const char *name;
    bool is_quick;
    uint32_t min_nodes, max_nodes, max_restarts;
    enum message_admit_at admit_at;
    bool leases;
    int budget[N_FAULTS];
    bool tells;    /* ranks that fail after another's end report so, as in libddp */
    bool recovers; /* ranks outlive the end of a generation, as those of ddp_run() do */
    int steps;     /* that all of its ranks may complete, together, in all of the job */
    bool drops; /* with recovers: ranks that die are not replaced where others of their node live */
    bool checks; /* all nodes check their health */
};

struct node {
    struct member *member; /* NULL: not started yet, or gone */
    uint64_t version;      /* of the member: world_new_version() */
    bool was_started, is_gone, is_silent;
    int link; /* index; -1: none */
    bool is_connecting, opens, runs, stops, breaks, yields;
    bool may_park;    /* with stops: they may live on */
    bool parks;       /* they do, in no generation */
    bool recovers;    /* they have been connected once: they can survive */
    bool has_met;     /* they hold the state of the generation in which they run */
    bool is_broken;   /* they know that it is over: they complete no step of it any more */
    uint8_t n_steps;  /* that they have completed, those that they were given included */
    uint32_t history; /* of these steps: the generations in which they were completed */
    bool fails;       /* by itself; ddprun has not seen it yet */
    bool is_fit;      /* a check has succeeded since its ranks ran */
    uint32_t n_ranks; /* of its ranks those that would be in the next generation */
    uint8_t
        n_late; /* so many of those that were parked have died since they left a generation ... */
    bool all_late; /* ... and none is left */
    uint32_t generation;
    uint32_t sealed_in; /* the newest generation in which it was given a place */
    bool ended_by_roster;
    int exit_code;
    uint64_t reset_ms;            /* 0: never */
    struct link links[MAX_LINKS]; /* the last of all: of these, a copy has only what is used */
};

struct world {
    const struct config *config; /* borrowed */
    uint64_t now_ms, n_links;
    uint16_t n_ports;
    struct roster *roster;
    uint64_t version; /* of the roster */
    int budget[N_FAULTS];
    uint16_t ports[MAX_GENERATIONS];
    uint8_t n_steps[MAX_GENERATIONS]; /* the last step that a rank has completed in it */
    bool own_failure[MAX_GENERATIONS];
    bool has_past;
    int past_code, being_code; /* the exit status of the job in its record; -1: it has not ended */
    enum record_phase phase;
    uint32_t inherited; /* the generation that the roster has taken over */
    uint32_t told;      /* when the newest one was sealed: the newest that one of its nodes had
                           received a place in */
    struct node nodes[N_NODES];
    struct roster_past past, being_written; /* the record; nothing without MOVE */
};

/* A job that no node has joined. Calls abort() if out of memory, like all functions here. */
void world_init(struct world *w, const struct config *config);
void world_fini(struct world *w); /* a zeroed one is fine */

/* *to is a world already, or zeroed. A member or a roster that has the same version in both is not
 * copied again. */
void world_copy(struct world *to, const struct world *from);

/* For a member or a roster that is about to change: nothing else has this version. */
uint64_t world_new_version(void);

/* Times and generations as seen from now: two worlds with one digest have the same future. */
uint64_t world_digest(const struct world *w);

/* What a node reports about itself; the texts are constant. */
struct message_hello world_hello(const struct world *w, int node);

struct mail mail_pack(const struct world *w, const struct message *m);
struct message mail_unpack(const struct world *w, int node, const struct mail *p);

#endif
