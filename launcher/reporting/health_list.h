/* health_list.h - the nodes of a job that were found unhealthy: which, why, and how often. For the
 * status, the report, and the launching ddprun. */
#ifndef DDP_LAUNCHER_REPORTING_HEALTH_LIST_H
#define DDP_LAUNCHER_REPORTING_HEALTH_LIST_H

#include "rendezvous/membership/message.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { HEALTH_LIST_MAX = 64 }; /* nodes; more are not kept */

struct health_list_node {
    char name[MESSAGE_NAME_BYTES];
    char reason[MESSAGE_HEALTH_BYTES]; /* the newest */
    uint32_t n_times;                  /* that it became unhealthy */
    bool is_bad;                       /* now */
};

struct health_list {                /* zeroed: empty */
    struct health_list_node *nodes; /* owned */
    uint32_t n;
};

void health_list_fini(struct health_list *l);

/* What is known of a node now. Without memory, it is not kept.
 *
 * text      UNFIT: the reason
 * returns   whether that is new: it became unhealthy, or healthy again, or has another reason */
bool health_list_note(struct health_list *l, const char *name, enum message_fitness fitness,
                      const char *text);

/* Those that are unhealthy now: node, reason. returns a list */
json_t *health_list_json_now(const struct health_list *l);

/* All that ever were: node, reason, times, unhealthy. */
json_t *health_list_json_all(const struct health_list *l);

#endif
