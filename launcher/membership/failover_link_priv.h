/* failover_link_priv.h - the inside of failover_link.h, for its own files:
 *   failover_link.c    the roster here or elsewhere, and what the council orders
 *   failover_hunt.c    which process coordinates: asked while the coordinator is not heard. It
 *                      calls the other one by struct failover_hunter only */
#ifndef DDP_LAUNCHER_MEMBERSHIP_FAILOVER_LINK_PRIV_H
#define DDP_LAUNCHER_MEMBERSHIP_FAILOVER_LINK_PRIV_H

#include "close_group.h"
#include "endpoint.h"
#include "local_roster.h"
#include "port_probe.h"
#include "roster_link.h"

#include "rendezvous/ballots/ballot_links.h"
#include "rendezvous/jobs/channel_link.h"
#include "rendezvous/jobs/jobs.h"
#include "rendezvous/jobs/jobs_page.h"
#include "rendezvous/quorum/council.h"

#include <string.h>

enum {
    FAILOVER_TEXT_BYTES = 1024,
    FAILOVER_EXIT_TOO_FEW = 75,
    FAILOVER_MAX_OFFERED = 8, /* nodes with a lower index offer to vote */
};

struct failover_link;

/* What a hunt comes to. */
struct failover_hunter {
    void (*follow)(struct failover_link *l, const struct elector_address *leader);
    void (*take)(struct failover_link *l, const struct ballot *b, struct ballot *answer);
    void (*note_ended)(struct failover_link *l, const struct elector_address *at);
    void (*yield)(struct failover_link *l); /* another coordinator has this job */
};

struct failover_link {
    uv_loop_t *loop;
    const struct job_spec *spec;
    const struct job_world *world; /* of spec */
    struct roster_link_callbacks callbacks;
    struct message_terms terms;

    struct endpoint *endpoint;
    struct ballot_links *ballots;
    struct server *server;  /* our listener; NULL: none yet */
    struct council council; /* zeroed until there is a listener */
    struct ballot ballot;   /* to send */

    bool is_moved;               /* the link is not the endpoint's any more, but: */
    struct channel_link *remote; /* to a roster elsewhere; NULL: none is known */
    struct elector_address leader;
    struct local_roster *own_roster; /* NULL: none was made by this module */
    struct local_roster *roster;     /* here: own_roster, or the endpoint's; NULL: elsewhere */
    struct jobs_pages pages;

    uint32_t own_index, own_generation; /* this node's place */
    struct elector_record record;       /* what was written last, or is to be; n_nodes 0: nothing */

    bool is_up, wants_link, is_welcome, is_over, leaves, closing, has_closed;
    char why[FAILOVER_TEXT_BYTES];
    uv_timer_t later; /* reports, from the loop, that the link is down */
    uv_timer_t orders_due, council_due;
    struct council_orders queued;
    uint32_t n_voters; /* that were reported */

    struct port_probe *host_probe; /* of the coordinator before, by a new one */
    uint32_t probed_generation, probed_node;

    /* failover_hunt.c */
    struct failover_hunter hunter;
    uv_timer_t silence, hunt, offer;
    uint64_t silence_ms;
    bool hunts;
    struct port_probe *leader_probe;
    struct elector_address probed_leader;
    uint64_t endpoint_id;    /* the process at the endpoint that has coordinated; 0: unknown */
    struct quorum_term term; /* the highest of a coordinator that was followed */
    uint32_t n_known;
    struct elector_address known[QUORUM_MAX_ASKED]; /* voters, as the last answer had them */

    struct close_group close_group; /* also of rosters that were closed */
};

static inline bool failover_is_same(const struct elector_address *a,
                                    const struct elector_address *b)
{
    return a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* --- failover_hunt.c --- */

__attribute__((format(printf, 3, 4))) void
failover_note(struct failover_link *l, enum co_severity severity, const char *format, ...);
int failover_open_ballots(struct failover_link *l, struct co_error *err);
void failover_on_note(void *arg, enum co_severity severity, const char *text);
void failover_hear(struct failover_link *l); /* the coordinator was heard */
void failover_hunt_begin(struct failover_link *l);
void failover_hunt_end(struct failover_link *l);
void failover_hunt_close(struct failover_link *l);
void failover_offer_soon(struct failover_link *l);

#endif
