/* verdict_log.h - who has heard that a job is over.
 *
 * A run id is used again: somebody sees a job fail, fixes the script, and starts it once more under
 * the same name. Who comes late to the job that is over should hear its verdict, but who has heard
 * that already and comes again wants to run. A ddprun that was started again has its node's name
 * and another instance id. Plain data and memory; knows nothing of connections. */
#ifndef DDP_RENDEZVOUS_JOBS_VERDICT_LOG_H
#define DDP_RENDEZVOUS_JOBS_VERDICT_LOG_H

#include "rendezvous/membership/message.h"

struct told_node {
    uint8_t instance[MESSAGE_INSTANCE_BYTES];
    char name[MESSAGE_NAME_BYTES];
};

struct verdict_log {         /* zeroed: nobody */
    struct told_node *nodes; /* owned */
    size_t n, cap;
};

/* Not more than MESSAGE_MAX_NODES, nor than there is memory for: who is left out hears the verdict
 * once more. */
void verdict_log_add(struct verdict_log *t, const uint8_t instance[MESSAGE_INSTANCE_BYTES],
                     const char *name);

/* Has this node heard it, in a stay before this one? */
bool verdict_log_missed(const struct verdict_log *t, const uint8_t instance[MESSAGE_INSTANCE_BYTES],
                        const char *name);

void verdict_log_fini(struct verdict_log *t);

#endif
