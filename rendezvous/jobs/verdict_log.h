/* verdict_log.h - the nodes that have received the verdict of a job that is over.
 *
 * A run ID is used again: a job fails, its script is corrected, and the job starts once more under
 * the same name. A node that arrives late at the job that is over receives its verdict. A node that
 * has received it and comes again starts the job again. A ddprun that was started again has its
 * node's name and another instance ID. */
#ifndef DDP_RENDEZVOUS_JOBS_VERDICT_LOG_H
#define DDP_RENDEZVOUS_JOBS_VERDICT_LOG_H

#include "rendezvous/membership/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct verdict_log_node {
    uint8_t instance[MESSAGE_INSTANCE_BYTES];
    char name[MESSAGE_NAME_BYTES];
};

struct verdict_log {                /* zeroed: no node */
    struct verdict_log_node *nodes; /* owned */
    size_t n, cap;
};

/* Limited to MESSAGE_MAX_NODES, and to the available memory: a node that is left out receives the
 * verdict once more. */
void verdict_log_add(struct verdict_log *l, const uint8_t instance[MESSAGE_INSTANCE_BYTES],
                     const char *name);

/* returns   whether another process of this node, and not this one, has received the verdict */
bool verdict_log_missed(const struct verdict_log *l, const uint8_t instance[MESSAGE_INSTANCE_BYTES],
                        const char *name);

void verdict_log_fini(struct verdict_log *l);

#endif
