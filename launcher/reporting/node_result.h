/* node_result.h - what became of this node's ranks, as a MESSAGE_RESULT, and how the job ended. */
#ifndef DDP_LAUNCHER_REPORTING_NODE_RESULT_H
#define DDP_LAUNCHER_REPORTING_NODE_RESULT_H

#include "job_report.h"
#include "launcher/supervisor/goodput.h"
#include "rendezvous/membership/message.h"

struct node_result {
    bool is_made;
    bool has_cause;                    /* the job's root cause was on this node */
    struct message message;            /* lends: */
    struct message_result_rank *ranks; /* owned */
    char *cause;                       /* owned */
    char host[MESSAGE_HOST_BYTES];
    struct goodput_sums goodput;
    struct job_report_end end; /* texts are lent by the report's */
};

/* What of the report is not about its ranks. */
struct node_result_place {
    const char *run_id;
    bool takes_part; /* in this generation: */
    uint32_t generation;
    uint32_t node_index;
    int64_t n_restarts; /* -1: not known */
};

/* Where other nodes take part the cause is cut to MESSAGE_CAUSE_BYTES: the beginning of its
 * standard error first.
 *
 * returns   0, -ENOMEM */
int node_result_make(const struct report *r, const struct node_result_place *place,
                     struct node_result *ret);
void node_result_fini(struct node_result *n);

#endif
