/* nodes.h - nodes of one job on virtual time: real roster, members, roster agents and
 * supervisors, put together as launcher/node/node_roster.c does it. Test doubles are what lies
 * around them: the connections (whole, or silent), the spawner (ranks start at once and die when
 * they are told), the clock. */
#ifndef DDP_TESTS_SUPPORT_NODES_H
#define DDP_TESTS_SUPPORT_NODES_H

#include "launcher/membership/roster_agent.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/membership/roster.h"

#include <stdbool.h>
#include <stdint.h>

enum { NODES_MAX = 4, NODES_LOCAL = 2 }; /* ranks of each node */

struct nodes; /* opaque */

struct nodes *nodes_create(const struct message_terms *terms);
void nodes_destroy(struct nodes *w);

/* ddprun is started on a node, which is called "n0" and so on. */
void nodes_start(struct nodes *w, int node, bool ends_job);

/* The same, where nothing gets through to the roster. */
void nodes_start_cut(struct nodes *w, int node);

/* Let things happen until nothing more does at this moment. Each call below does it. */
void nodes_settle(struct nodes *w);
void nodes_advance(struct nodes *w, uint64_t ms);

void nodes_exit_rank(struct nodes *w, int node, int rank, int status);

/* It has left its generation, since it cannot reach a rank elsewhere, and asks for the next one. */
void nodes_part_rank(struct nodes *w, int node, int rank);

/* It had completed a step before. */
void nodes_exit_after_progress(struct nodes *w, int node, int rank, int status);

/* It ended since another one's end was seen, which it had told. */
void nodes_exit_consequence(struct nodes *w, int node, int rank, int status);

/* It has ended, which is seen when the next signal is sent to it, if it does not die of that. */
void nodes_exit_unseen(struct nodes *w, int node, int rank, int status);

/* All ranks of all nodes. */
void nodes_exit_ranks_at_once(struct nodes *w, int status);

/* It ended because another local one is dying, whose end is seen right after. */
void nodes_exit_witness(struct nodes *w, int node, int rank, int status, int culprit,
                        int culprit_status);
void nodes_signal(struct nodes *w, int node, int sig);
void nodes_time_out(struct nodes *w, int node);
void nodes_ask_restart(struct nodes *w, int node); /* as ddpctl does */
void nodes_kill(struct nodes *w, int node); /* the machine: everything is gone, and it is seen */

/* From now on nothing comes through, and nobody notices. */
void nodes_cut(struct nodes *w, int node);
void nodes_lose_spawner(struct nodes *w, int node);
void nodes_fail_starts(struct nodes *w, int node, int error); /* of the next ranks */

/* From now on its spawner has no CPU when it is to report: what ranks say comes before that. */
void nodes_slow_spawner(struct nodes *w, int node, uint64_t report_ms);

/* Each rank says that it has saved its state. Counts only where they were asked. */
void nodes_save(struct nodes *w, int node);
void nodes_keep_ranks(struct nodes *w, int node); /* they ignore SIGTERM, and come to no generation
                                                     behind their first */

/* From now on ranks outlive others, as those of ddp_run() do, and each node's ddprun lets them. */
void nodes_recover(struct nodes *w);

/* The same; and a rank that dies is not replaced where others of its node live. */
void nodes_shrink(struct nodes *w);

/* From now on a node that is started gives its ranks so long to fail by themselves when one that
 * had lost a peer has failed. */
void nodes_await_cause(struct nodes *w, uint64_t ms);

/* What can be looked at. */
struct nodes_view {
    const struct supervisor *supervisor;
    const struct member *member;
    bool ended;
    int exit_code, die_of;
    int n_running;
    bool is_parked; /* its ranks live on between two generations, or are stopped there */
    int n_starts;   /* of ranks, on this node */
    /* of the ranks that were started last, or called to a generation: */
    uint32_t generation, first_rank, n_local, world_size;
    uint16_t port;
    bool is_asked;            /* they were asked to save */
    int n_sigterm, n_sigkill; /* signals that its ranks were sent, of the whole job */
};
struct nodes_view nodes_look(const struct nodes *w, int node);
const struct roster *nodes_roster(const struct nodes *w);
uint64_t nodes_now_ms(const struct nodes *w);

#endif
