/* failover_link_priv.h - the inside of failover_link.h, for its own files. Each calls only those
 * after it, and those before it by struct failover_calls:
 *   failover_link.c        the link of the node: up, down, messages; its beginning and end
 *   failover_council.c     libuv around the council: ballots, deadlines, orders; the listener
 *   failover_roster.c      the roster here, or the way to that of another process
 *   failover_hunt.c        which process coordinates: asked while the coordinator is not heard
 *   failover_heartbeats.c  heartbeats of this node
 *   failover_reach.c       which processes this one has reached, and which it cannot reach; what
 *                          all files need */
#ifndef DDP_LAUNCHER_MEMBERSHIP_FAILOVER_LINK_PRIV_H
#define DDP_LAUNCHER_MEMBERSHIP_FAILOVER_LINK_PRIV_H

#include "close_group.h"
#include "endpoint.h"
#include "local_roster.h"
#include "port_probe.h"
#include "roster_link.h"

#include "launcher/job/job_spec.h"

#include "rendezvous/ballots/ballot_links.h"
#include "rendezvous/jobs/channel_link.h"
#include "rendezvous/jobs/jobs.h"
#include "rendezvous/jobs/jobs_page.h"
#include "rendezvous/quorum/council.h"

enum {
    FAILOVER_TEXT_BYTES = 1024,
    FAILOVER_EXIT_TOO_FEW = 75,
    FAILOVER_MAX_OFFERED = 8, /* nodes with a lower index offer to vote */
    FAILOVER_REACHED = 4,     /* coordinators that are kept: this one, and those before */
};

struct failover_link;

/* What files call in those before them; failover_link.c sets it. */
struct failover_calls {
    /* failover_link.c: of a roster in this process, and elsewhere */
    struct channel_link_callbacks local, remote;
    void (*go_down_in)(struct failover_link *l, uint64_t in_ms,
                       const char *why); /* from the loop */
    void (*close_parts)(struct failover_link *l);

    /* failover_council.c */
    void (*commit)(struct failover_link *l); /* l->record */
    void (*take_ballot)(struct failover_link *l, const struct ballot *b, struct ballot *answer);
    void (*note_ended)(struct failover_link *l, const struct elector_address *at);
    void (*note_silent)(struct failover_link *l, bool is_silent); /* the coordinator's host */
    void (*yield)(struct failover_link *l,
                  const struct elector_address *leader); /* another coordinator has this job */
    void (*change_job)(struct failover_link *l);

    /* failover_roster.c */
    void (*follow)(struct failover_link *l, const struct elector_address *leader);
    void (*unfollow)(struct failover_link *l);
};

/* A coordinator that has answered. */
struct failover_reached {
    struct elector_address own; /* its address in records; port 0: a free place */
    struct elector_address at;  /* where it was asked, in figures: its name may lead to the machine
                                   that has replaced its own */
};

struct failover_link {
    uv_loop_t *loop;
    const struct job_spec *spec;
    const struct job_world *world; /* of spec */
    struct roster_link_callbacks callbacks;
    struct failover_calls calls;
    struct message_terms terms;

    struct endpoint *endpoint;
    struct ballot_links *ballots;
    struct server *server;  /* our listener; NULL: none yet */
    struct council council; /* zeroed until there is a listener */
    struct ballot ballot;   /* to send */

    bool is_moved;               /* the link is not the endpoint's any more, but: */
    struct channel_link *remote; /* to a roster elsewhere; NULL: none is known */
    struct elector_address leader;
    uint64_t named_ms;               /* a process has named it last */
    struct local_roster *own_roster; /* NULL: none was made by this module */
    struct local_roster *roster;     /* here: own_roster, or the endpoint's; NULL: elsewhere */
    struct jobs_pages pages;

    uint32_t own_index, own_generation; /* this node's place */
    struct elector_record record;       /* what was written last, or is to be; n_nodes 0: nothing */

    bool is_up, wants_link, is_welcome, is_over, leaves, closing, has_closed;
    bool elects;     /* the coordinator that welcomed this node last can be replaced */
    bool is_foreign; /* the process at the endpoint knows no ballots: a ddp-rendezvous */
    char why[FAILOVER_TEXT_BYTES];
    uv_timer_t later; /* reports, from the loop, that the link is down */
    uv_timer_t orders_due, council_due;
    struct council_orders queued;
    uint32_t n_voters;   /* that were reported */
    bool needs_no_lease; /* this node; that was reported */

    struct port_probe *host_probe; /* of the coordinator before, by a new one */
    uint32_t probed_generation, probed_node;

    /* failover_heartbeats.c */
    uint8_t instance[MESSAGE_INSTANCE_BYTES]; /* of this node */
    struct channel_link *heartbeats;          /* while its connection is made */
    uv_timer_t heartbeat_due;
    uint64_t heartbeat_from_ms;
    uint64_t certain_until_ms;          /* as the council has reported last */
    struct elector_address silent_host; /* of a coordinator; port 0: none */

    /* failover_hunt.c */
    uv_timer_t silence, hunt, offer;
    uint64_t silence_ms;
    uint64_t heard_ms, lease_ms; /* the coordinator was heard last; the lease that it gives */
    bool hunts;
    bool asks_also;         /* at the beginning: the other endpoints know of a coordinator? */
    uint64_t asks_until_ms; /* which may not answer */
    uint32_t n_also_left;   /* that have not answered yet */
    bool has_also_answered[JOB_MAX_ENDPOINTS];
    struct port_probe *leader_probe;
    struct elector_address probed_leader;
    uint64_t endpoint_id; /* the process at the endpoint that has coordinated; 0: unknown */
    uint32_t n_known;
    struct elector_address known[QUORUM_MAX_ASKED]; /* voters, as the last answer had them */
    struct ballot seen; /* the last answer of a coordinator, or of one of its voters, with a record;
                           for those that ask a process that does not vote */

    /* failover_reach.c */
    struct failover_reached reached[FAILOVER_REACHED];
    uint32_t reached_turn;
    char lost_text[FAILOVER_TEXT_BYTES]; /* why a process could not be reached last */
    bool has_reported_unreached, has_reported_difference;

    struct close_group close_group; /* also of rosters that were closed */
};

/* --- failover_council.c --- */

/* Messages of this step go out; what concerns a roster follows from the loop. */
void failover_queue_orders(struct failover_link *l, const struct council_orders *o);

void failover_commit(struct failover_link *l);
void failover_take_ballot(struct failover_link *l, const struct ballot *b, struct ballot *answer);
void failover_note_ended(struct failover_link *l, const struct elector_address *at);
void failover_note_silent(struct failover_link *l, bool is_silent);
void failover_tell_lease(struct failover_link *l); /* that of this node, by the council */
void failover_note_leased(struct failover_link *l);
void failover_resign(struct failover_link *l, const struct elector_record *last);
void failover_yield(struct failover_link *l, const struct elector_address *leader);
void failover_change_job(struct failover_link *l); /* without a roster: it votes in the next one */

void failover_listen(struct failover_link *l); /* unless it does */
void failover_on_roster(void *arg, struct local_roster *own);
bool failover_on_endpoint_control(void *arg, int fd, const uint8_t *bytes, size_t len);

/* --- failover_roster.c --- */

void failover_prepare_roster(void *arg, struct jobs_opts *opts);
void failover_drop_roster(struct failover_link *l); /* NULL is fine */

/* Before that: the job continues at `leader`, without what the roster here has begun. */
void failover_end_part(struct failover_link *l, const struct elector_address *leader);

/* r   NULL: no generation has begun */
void failover_lead(struct failover_link *l, const struct elector_record *r);
void failover_follow(struct failover_link *l, const struct elector_address *leader);

/* The link is the endpoint's again: the coordinator elsewhere was never reached, and is gone. */
void failover_unfollow(struct failover_link *l);

/* --- failover_hunt.c --- */

int failover_open_ballots(struct failover_link *l, struct co_error *err);
void failover_hear(struct failover_link *l); /* the coordinator was heard */
/* May the job begin here? Not before the other endpoints have been asked. */
bool failover_may_begin(void *arg);
void failover_hunt_begin(struct failover_link *l, uint64_t in_ms);
void failover_hunt_end(struct failover_link *l);
void failover_hunt_close(struct failover_link *l);
void failover_offer_soon(struct failover_link *l);

/* --- failover_heartbeats.c --- */

void failover_heartbeat_soon(struct failover_link *l, uint64_t in_ms); /* as long as it is needed */
void failover_heartbeat_sign(struct failover_link *l, enum roster_link_sign sign);
void failover_heartbeat_close(struct failover_link *l);

/* The coordinator is in this process: until when the ranks of this node may run. */
void failover_state_end(struct failover_link *l);

/* --- failover_reach.c --- */

__attribute__((format(printf, 3, 4))) void
failover_note(struct failover_link *l, enum co_severity severity, const char *format, ...);
void failover_on_note(void *arg, enum co_severity severity, const char *text);
void failover_on_refused(void *arg, const char *text);

/* Where the link goes, unless the coordinator is in this process. */
struct elector_address failover_coordinator(const struct failover_link *l);

struct elector_address failover_endpoint(const struct failover_link *l);
struct elector_address failover_also(const struct failover_link *l, uint32_t i); /* i < n_also */
bool failover_is_endpoint(const struct failover_link *l, const struct elector_address *at);

/* An answer came from there. */
void failover_note_reached(struct failover_link *l, const struct elector_address *from,
                           const struct ballot *b);

/* Where the process that listens at `own` has answered; NULL: it has not. A refused connection
 * proves its end only if it was accepted before: packet filters also refuse connections. */
const struct elector_address *failover_find_reached(const struct failover_link *l,
                                                    const struct elector_address *own);

/* Called now and then: report, once, which nodes cannot be voters. */
void failover_check_reach(struct failover_link *l);
void failover_on_lost(void *arg, const struct elector_address *at, int code, const char *text);

/* Another endpoint knows no coordinator, or does not run. */
void failover_note_also(struct failover_link *l, const struct elector_address *at);

#endif
