/* fitness.h - --health-check and --health-builtin: this node's checks of its health, and what is
 * known of the health of other nodes. health.h decides when a check is made; this file runs it
 * (health_probe.h, and a child with the command) and passes the result on. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_FITNESS_H
#define DDP_LAUNCHER_MEMBERSHIP_FITNESS_H

#include "rendezvous/membership/member.h"

#include "common/error.h"

#include <stdbool.h>
#include <uv.h>

struct events;
struct health_list;
struct job_spec;
struct supervisor;
struct fitness; /* opaque */

struct fitness_opts { /* all borrowed */
    uv_loop_t *loop;
    const struct job_spec *spec;
    const struct supervisor *supervisor; /* whose generation events have */
    struct events *events;
    const char *name; /* of this node */
    void (*on_note)(void *arg, enum co_severity severity, const char *text);
    /* A check has ended. From the loop. text: why the node is not fit */
    void (*on_result)(void *arg, bool is_fit, const char *text);
    void *arg;
};

/* opts      copied
 * returns   0, -ENOMEM */
int fitness_create(const struct fitness_opts *opts, struct fitness **ret, struct co_error *err);

/* It is freed from the loop. All functions below take NULL, and do nothing. */
void fitness_close(struct fitness *h);

/* The member has made steps: from that state to the one that it has. */
void fitness_note_member(struct fitness *h, enum member_state from, enum member_state to);

/* A HEALTH came from the coordinator. */
void fitness_hear(struct fitness *h, const struct message_health *health);

/* A WELCOME came, and with it the coordinator's time of day. */
void fitness_hear_clock(struct fitness *h, const struct message_welcome *welcome);

/* All nodes that were unhealthy; lent. NULL for NULL. */
const struct health_list *fitness_list(const struct fitness *h);

#endif
