/* job_figures.h - how the ranks of the job's other nodes are, as their ddpruns reported last
 * (MESSAGE_FIGURES): for the pages of the first node. Pure.
 *
 * A node that has reported nothing for JOB_FIGURES_STALE_MS is stale: what it reported is history,
 * and its ranks may be in any state. */
#ifndef DDP_LAUNCHER_REPORTING_JOB_FIGURES_H
#define DDP_LAUNCHER_REPORTING_JOB_FIGURES_H

#include "launcher/supervisor/supervisor.h"
#include "rendezvous/membership/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct status;

enum {
    JOB_FIGURES_STALE_MS = 15000,
    JOB_FIGURES_MAX_RANKS = 65536, /* that are kept; the figures of a node beyond are dropped */
};

struct job_figures_node {
    uint64_t heard_ms; /* 0: nothing was */
    char *host;        /* owned; NULL: not known */
    size_t n;
    struct message_figures_rank *ranks; /* owned */
};

struct job_figures { /* zeroed: of no generation */
    uint32_t generation, n_nodes;
    uint64_t begun_ms;
    size_t n_ranks;
    struct job_figures_node *nodes; /* owned; by node index; [0] is this node, and stays empty */
};

/* Forget everything: another generation has begun. returns 0, -ENOMEM */
int job_figures_begin(struct job_figures *f, uint32_t generation, uint32_t n_nodes,
                      uint64_t now_ms);

/* Keep the FIGURES of a node instead of its last ones.
 *
 * returns   0; -ESTALE: of another generation, or no other node of it; -E2BIG; -ENOMEM */
int job_figures_take(struct job_figures *f, const struct message *m, uint64_t now_ms);
void job_figures_fini(struct job_figures *f);

/* Since a node was heard, or since the generation began. */
uint64_t job_figures_age_ms(const struct job_figures *f, uint32_t node, uint64_t now_ms);
bool job_figures_is_stale(const struct job_figures *f, uint32_t node, uint64_t now_ms);

/* "running" */
const char *job_figures_phase_name(enum message_phase phase);
enum message_phase job_figures_phase(enum supervisor_phase phase);

/* The figures of a rank of this node.
 *
 * returns   whether it has any: not one that was dropped, whose number another rank has; *ret is
 *           filled for that too */
bool job_figures_of_rank(const struct status *s, int local_rank, struct message_figures_rank *ret);

#endif
