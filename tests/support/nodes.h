/* nodes.h - nodes of one job on virtual time: real roster, members, roster agents and
 * supervisors, connected as in launcher/node/node_roster.c. The parts around them are test doubles:
 * the connections (intact or silent), the spawner (ranks start at once and exit on a signal), and
 * the clock. */
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

/* Start ddprun on a node. Nodes are called "n0" and so on. */
void nodes_start(struct nodes *w, int node, bool ends_job);

/* The same on a node whose messages do not reach the roster. */
void nodes_start_cut(struct nodes *w, int node);

/* Process events until none is left at this moment. Each call below does so. */
void nodes_settle(struct nodes *w);
void nodes_advance(struct nodes *w, uint64_t ms);

void nodes_exit_rank(struct nodes *w, int node, int rank, int status);

/* It has left its generation, since it cannot reach another node's rank, and requests the next. */
void nodes_part_rank(struct nodes *w, int node, int rank);

/* It had completed a step before. */
void nodes_exit_after_progress(struct nodes *w, int node, int rank, int status);

/* It ended because it had detected and reported the end of another rank. */
void nodes_exit_consequence(struct nodes *w, int node, int rank, int status);

/* It has ended, which is detected with the next signal to it, unless that signal kills it. */
void nodes_exit_unseen(struct nodes *w, int node, int rank, int status);

/* It calls MPI_Abort, and ends with this status when its node knows that the roster has ended the
 * generation, or if that is not awaited. */
void nodes_abort_rank(struct nodes *w, int node, int rank, int status);

/* All ranks of all nodes. */
void nodes_exit_ranks_at_once(struct nodes *w, int status);

/* It ended because another local rank is dying, whose end is detected right after. */
void nodes_exit_witness(struct nodes *w, int node, int rank, int status, int culprit,
                        int culprit_status);
void nodes_signal(struct nodes *w, int node, int sig);
void nodes_time_out(struct nodes *w, int node);
void nodes_ask_restart(struct nodes *w, int node); /* as ddpctl does */
void nodes_kill(struct nodes *w, int node);        /* the machine fails, and the others detect it */

/* From now on no message of the node arrives, which is not detected. */
void nodes_cut(struct nodes *w, int node);
void nodes_lose_spawner(struct nodes *w, int node);
void nodes_fail_starts(struct nodes *w, int node, int error); /* of the next ranks */

/* From now on its spawner gets no CPU for its reports: messages of ranks arrive before them. */
void nodes_slow_spawner(struct nodes *w, int node, uint64_t report_ms);

/* Each rank reports that it has saved its state. Has an effect only after a request to save. */
void nodes_save(struct nodes *w, int node);
void nodes_keep_ranks(struct nodes *w, int node); /* they ignore SIGTERM, and join no generation
                                                     after their first */

/* From now on ranks survive others, as with ddp_run(), and each node's ddprun lets them. */
void nodes_recover(struct nodes *w);

/* The same, and a rank that dies is not replaced if other ranks of its node live. */
void nodes_shrink(struct nodes *w);

/* From now on a node that is started waits so long for its ranks to fail by themselves after a rank
 * that had lost a peer has failed. */
void nodes_await_cause(struct nodes *w, uint64_t ms);

/* What tests can inspect. */
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
