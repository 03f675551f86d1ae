/* roster_priv.h - the roster's inside, for its own files. Each calls only those after it:
 *   roster_input.c   inputs, turned into events
 *   roster.c         the table: what an event does in which state
 *   roster_past.c    taking another roster's place
 *   roster_send.c    messages to nodes, and answers to the caller
 *   roster_nodes.c   the nodes that are known
 * A simulator that compares whole states may also use it. */
#ifndef DDP_RENDEZVOUS_MEMBERSHIP_ROSTER_PRIV_H
#define DDP_RENDEZVOUS_MEMBERSHIP_ROSTER_PRIV_H

#include "restart_policy.h"
#include "roster.h"
#include "roster_index.h"
#include "roster_order.h"

/* How far a node is in the current generation. */
enum roster_part {
    PART_NONE,       /* it does not take part */
    PART_UNASSIGNED, /* it has a place, and waits for the leader's READY */
    PART_ASSIGNED,   /* it knows its place: its ranks may run */
    PART_HALTING,    /* it knows that its ranks are to stop, or reported it itself */
    PART_STOPPED,    /* nothing of the generation runs there */
    PART_N
};

/* Lists of nodes by since_ms, through their prev and next, the oldest first. */
enum roster_list_name {
    LIST_NONE,  /* a local node is never silent */
    LIST_HEARD, /* those with a link */
    LIST_AWAY,
    LIST_ABSENT,
    LIST_N
};

struct roster_list {
    uint32_t first, last;
};

enum roster_health { ROSTER_FIT, ROSTER_UNCHECKED, ROSTER_UNFIT };

/* Nodes of a domain, with terms.segment. */
enum roster_count {
    COUNT_HERE,     /* for the next generation */
    COUNT_LEFT,     /* those away too */
    COUNT_JOINABLE, /* members, and those here: if a running generation were ended for them */
    COUNT_N
};

enum { ROSTER_NO_DOMAIN = UINT32_MAX };

struct roster_domain {
    char name[MESSAGE_DOMAIN_BYTES];
    uint32_t n_nodes; /* 0: free */
    uint32_t n[COUNT_N];
    uint32_t next_free;
};

struct roster_known {
    uint32_t generation; /* MESSAGE_NO_GENERATION: none */
    uint32_t n_nodes, index;
};

struct roster_node {
    bool used;
    uint8_t instance[MESSAGE_INSTANCE_BYTES];
    char name[MESSAGE_NAME_BYTES];
    int32_t node_rank, expected;
    uint32_t n_local; /* ranks in the newest generation, if it takes part ... */
    uint32_t n_next;  /* ... and in the next one */
    uint64_t stop_ms;
    bool local, keeps_rank_0;
    uint32_t domain; /* ROSTER_NO_DOMAIN: none, or unknown */
    size_t n_addresses;
    struct message_address *addresses; /* owned */
    uint64_t arrival;

    uint64_t link;     /* 0: away */
    uint64_t since_ms; /* when the last message arrived; away: since when */
    enum roster_list_name in;
    uint32_t prev, next;
    bool leaves;
    bool condemned; /* given up; it stays until its lease is over */
    bool absent;    /* only its seat is known */

    bool checks; /* its health; what is known of it now: */
    enum roster_health health;
    char unfit[MESSAGE_HEALTH_BYTES]; /* why not, as other nodes know it; "": they know nothing */
    uint64_t check_ms;

    enum roster_part part;
    bool done, saved;
    bool is_left_out; /* it had a place, and gets none: its segment is not whole any more */
    int32_t seat;     /* place in the newest generation; ROSTER_ORDER_NONE: takes no part */
    struct roster_known known; /* the newest generation in which its place was sent to it */
    uint32_t first_rank;
    struct restart_strikes strikes; /* failures of its ranks that ended generations */
};

enum {
    ROSTER_MAX_EXCLUDED = 64, /* names that are kept: the last ones */
    ROSTER_MAX_GONE = 8,      /* in a step; of more, other nodes do not hear */
};

/* What ended the generation, or is about to. */
struct roster_cause {
    enum message_why why;
    uint32_t node;                  /* FAILURE: the slot that reported it; ROSTER_NO_SLOT: it is
                                       gone */
    bool for_good;                  /* FAILURE: no restart follows it */
    bool charged;                   /* FAILURE: the budget was */
    bool consequence;               /* FAILURE: the consequence of one that was not reported yet */
    bool struck;                    /* FAILURE: it was counted as its node's */
    bool recovers;                  /* FAILURE: other ranks live on meanwhile */
    struct restart_failure failure; /* FAILURE */
};

struct roster {
    struct roster_limits limits;
    struct message_terms terms;
    bool final_codes[256];
    struct restart_policy budget;
    enum roster_state state;
    uint64_t deadline_ms;        /* of the state */
    uint64_t gather_deadline_ms; /* not put off by OPEN */
    uint64_t entered_ms;         /* the state */

    /* the nodes */
    struct roster_node *nodes; /* owned; by slot */
    uint32_t n_slots, cap_slots;
    uint32_t *free_slots; /* owned; a stack of n_free */
    uint32_t n_free;
    struct roster_index by_link, by_instance, by_node_rank;
    struct roster_list lists[LIST_N];
    uint64_t n_arrivals;
    uint32_t n_nodes, n_here, n_away; /* n_away: that do not leave */
    uint32_t n_part[PART_N];
    uint32_t n_done, n_saved; /* members */
    uint32_t n_health_changes;
    uint32_t n_unchecked;                    /* members that have stopped, and check their health */
    uint64_t unchecked_until_ms;             /* each of them has reported it by then, or is unfit */
    struct roster_past_excluded *excluded;   /* owned; a ring; NULL: no node can be excluded */
    uint32_t n_excluded;                     /* ever */
    char newly_excluded[MESSAGE_NAME_BYTES]; /* since the last generation began to end */
    char founder[MESSAGE_NAME_BYTES];        /* whose terms hold */
    char keeper[MESSAGE_NAME_BYTES];         /* that keeps rank 0; empty: none is known */

    /* their domains, with terms.segment */
    struct roster_domain *domains; /* owned; by number, cap_slots */
    uint32_t n_domains;            /* ever used at a time */
    uint32_t free_domain;          /* the first of a list; ROSTER_NO_DOMAIN: none */
    uint32_t keeper_domain;        /* ROSTER_NO_DOMAIN: no node keeps rank 0 */
    uint32_t n_segments[COUNT_N];  /* whole ones */
    struct roster_index by_domain;

    /* names of the expected nodes */
    char **expected; /* owned */
    uint32_t n_expected;
    uint32_t *came; /* owned; by place: so many of that name are known */
    struct roster_index by_expected;

    /* the generation */
    uint32_t generation;
    uint64_t begun_ms;
    uint32_t leader;           /* slot; ROSTER_NO_SLOT: lost */
    bool confirmed;            /* it may begin ... */
    uint64_t term;             /* ... as decided in this term of a coordinator; 1 or more */
    bool ready;                /* its store is open */
    bool pending;              /* the members were asked to save ... */
    uint64_t pending_since_ms; /* ... then */
    bool is_ending;            /* all ranks of a member have exited with 0 */
    char host[MESSAGE_HOST_BYTES];
    uint16_t port;
    bool agent_store, relayed;
    uint32_t n_members, world_size;
    uint64_t stop_ms; /* the slowest member's */
    uint64_t pause_until_ms;
    uint64_t last_call_until_ms; /* 0: over, or not begun */
    struct roster_cause cause;
    struct roster_restart restart;
    uint64_t most_steps; /* that a rank is known to have completed, ever */
    bool has_advanced;   /* and more of them since the generation began */

    /* another roster may have taken our place, or ours is the other one's */
    bool doubts;
    bool lost_in_doubt; /* a member */
    uint64_t certain_until_ms;
    bool join_waits;  /* a node joined that could not be admitted then */
    bool has_adopted; /* the generation, from its members */
    uint32_t n_absent;
    uint64_t hold_until_ms;   /* members of another roster's generation may come until then; 0 */
    uint32_t next_generation; /* the next one's number at least: another roster made those before */

    struct roster_before before;

    struct roster_order_seat *seats; /* owned; of the newest generation, cap_slots */
    uint32_t n_seats;
    struct roster_order_entry *entries; /* owned; to sort, cap_slots */
    struct message_address *addresses;  /* owned; of all members, for MEMBERS */
    uint32_t n_addresses, cap_addresses;
    uint32_t n_all_addresses; /* of all nodes that are known */

    /* the end, or what will be it if nothing better is known */
    bool has_informed_all; /* CLOSED: the verdict was sent to all connected nodes */
    struct message_verdict verdict;
    char verdict_node[MESSAGE_NAME_BYTES];
    char verdict_text[MESSAGE_TEXT_BYTES];

    /* what is lent to the caller */
    struct roster_action *actions; /* owned */
    size_t n_actions, cap_actions;
    struct roster_action unsent; /* an action that is not sent to any node */
    char change[MESSAGE_TEXT_BYTES];
    char stop_text[MESSAGE_TEXT_BYTES];             /* the cause, as the members receive it */
    char note[MESSAGE_TEXT_BYTES];                  /* of a WELCOME or a REFUSED */
    char farewell[MESSAGE_TEXT_BYTES];              /* to an excluded node */
    char left_out[MESSAGE_TEXT_BYTES];              /* to nodes that had a place and get none */
    char gone[ROSTER_MAX_GONE][MESSAGE_NAME_BYTES]; /* nodes that left this step and were unfit */
    uint32_t n_gone;
    bool had_unfit; /* a node was unfit in this roster; else a join need not look for one */
    struct message_progress progress;
    uint64_t progress_ms; /* when it was made */
    bool progress_stale;
    char progress_names[MESSAGE_MAX_NAMES][MESSAGE_NAME_BYTES];
};

/* --- roster.c --- */

/* What the table is asked about. */
struct roster_event {
    enum roster_event_type type;
    uint64_t now_ms;
    uint32_t slot; /* ROSTER_NO_SLOT: LOST, PAUSE_OVER, DEADLINE, END from elsewhere */
    const struct roster_node *who; /* NULL if no node is meant; LOST: as it was known */
    bool led;                      /* LOST, LEAVE: it is, or was, the leader */
    bool unheard;                  /* its ranks may run, and it has not answered a STOP */
    uint64_t term;                 /* CONFIRMED */
    const char *text;              /* LOST, LEAVE: why */
    const struct message *message; /* FAILED, END */
};

void roster_apply(struct roster *r, const struct roster_event *e);

/* Members whose ranks may run. */
static inline uint32_t roster_n_busy(const struct roster *r)
{
    return r->n_part[PART_ASSIGNED] + r->n_part[PART_HALTING];
}

/* A node that joins now has to wait: a generation that is stopped for it might have no
 * successor. */
static inline bool roster_postpones_join(const struct roster *r)
{
    return r->doubts || r->n_absent > 0;
}

/* --- roster_nodes.c --- */

void roster_nodes_init(struct roster *r);
int roster_nodes_expect(struct roster *r, const char *const *names, size_t n); /* 0, -ENOMEM */
int roster_reserve(struct roster *r, size_t n_addresses); /* for one node more; 0, -ENOMEM */
void roster_nodes_fini(struct roster *r);

uint32_t roster_by_link(const struct roster *r, uint64_t link); /* ROSTER_NO_SLOT: unknown */
uint32_t roster_by_instance(const struct roster *r, const uint8_t *instance);
uint32_t roster_by_node_rank(const struct roster *r, int32_t node_rank);

/* How many nodes a generation could have: those of whole segments, if that matters. The domain of a
 * node that keeps rank 0 must have one. COUNT_JOINABLE: with terms.segment only. */
uint32_t roster_n_usable(const struct roster *r, enum roster_count which);

/* Admit the node that sent this HELLO, and reserve all memory that later steps may need for it.
 *
 * ret_slot   without a link yet
 * returns    0 or -ENOMEM */
int roster_admit(struct roster *r, const struct message_hello *hello, bool local, uint64_t now_ms,
                 uint32_t *ret_slot);
void roster_attach(struct roster *r, uint32_t slot, uint64_t link, uint64_t now_ms);
void roster_detach(struct roster *r, uint32_t slot, uint64_t now_ms); /* it is away */
void roster_cut(struct roster *r, uint32_t slot); /* no link any more, and no message arrives from
                                                     it */
void roster_hear(struct roster *r, uint32_t slot, uint64_t now_ms);
void roster_hear_all(struct roster *r, uint64_t now_ms); /* each silence and absence begins now */
void roster_set_leaving(struct roster *r, uint32_t slot);
void roster_set_part(struct roster *r, uint32_t slot, enum roster_part part);
void roster_set_known(struct roster *r, uint32_t slot); /* its place is sent to it */
void roster_set_health(struct roster *r, uint32_t slot, enum roster_health health);
void roster_set_done(struct roster *r, uint32_t slot);
void roster_set_saved(struct roster *r, uint32_t slot);
void roster_forget(struct roster *r, uint32_t slot);

/* Forget a node, and remember its name.
 *
 * returns   lent until the next one is excluded */
const struct roster_past_excluded *roster_exclude(struct roster *r, uint32_t slot,
                                                  uint8_t exit_code);
const struct roster_past_excluded *roster_find_excluded(const struct roster *r, const char *name);

/* --- roster_past.c --- */

/* Admit a node that this roster does not know, if it is one of the absent.
 *
 * ret_slot   as roster_admit(): it takes part, and has no link yet
 * returns    0; -ENOENT: it is not; -ENOMEM */
int roster_embody(struct roster *r, const struct message_hello *hello, bool local, uint64_t now_ms,
                  uint32_t *ret_slot);

/* A node took part in a generation of another roster: no generation here gets the number of that
 * one or of an older one, and restarts are counted on from there. */
void roster_note_past(struct roster *r, const struct message_was *was, uint64_t now_ms);

/* The absent member with this place; ROSTER_NO_SLOT: it is not absent. */
uint32_t roster_absent_at(const struct roster *r, uint32_t node_index);

/* Has this node a place in the newest generation, without having received it? Then nothing of it
 * takes part in any. */
bool roster_is_from_before(const struct roster *r, const struct message_was *was);

/* May the generation that this HELLO describes be adopted? Reserves memory for its nodes. */
bool roster_can_adopt(struct roster *r, const struct message_hello *hello, uint32_t max_absent);
void roster_adopt(struct roster *r, const struct message_was *was, uint64_t now_ms);

/* May it give a lease? Not when another roster may have taken its place by now. */
static inline bool roster_may_lend(const struct roster *r, uint64_t now_ms)
{
    return now_ms < r->certain_until_ms;
}

/* Are all members connected and heard? Then none is with another roster. */
bool roster_hears_all(const struct roster *r, uint64_t now_ms);

/* May this node's lease be renewed? */
bool roster_may_renew(const struct roster *r, uint32_t slot, uint64_t now_ms);

/* --- roster_nodes.c, for roster_past.c --- */

/* For one more action in this step. Memory for all is reserved as nodes join, so that this finds
 * it. */
int roster_reserve_action(struct roster *r);            /* 0, -ENOMEM */
int roster_reserve_slots(struct roster *r, uint32_t n); /* of a new roster; 0, -ENOMEM */

/* Admit a member of which only the seat is known. Memory for it must be reserved. */
uint32_t roster_admit_absent(struct roster *r, uint32_t seat, uint64_t since_ms);

/* --- roster_nodes.c, places --- */

/* Give places to the nodes that are linked: fills seats, ranks, the leader, and the descriptions of
 * the generation and of the one before. Nodes that had a place and get none are marked. */
void roster_give_places(struct roster *r);

/* Would a spare get a place that the node which had it could still return to? */
bool roster_would_take_spare(const struct roster *r);
void roster_clear_places(struct roster *r); /* the generation is over */

static inline bool roster_is_linked(const struct roster_node *n)
{
    return n->used && n->link != 0 && !n->leaves;
}

/* And fit: it counts for the next generation. */
static inline bool roster_is_here(const struct roster_node *n)
{
    return roster_is_linked(n) && n->health == ROSTER_FIT;
}

static inline bool roster_is_member(const struct roster_node *n)
{
    return n->used && n->part != PART_NONE;
}

/* --- roster_send.c --- */

void roster_add_change(struct roster *r, enum roster_state from);
void roster_send_close(struct roster *r, uint64_t link);
void roster_send_welcome(struct roster *r, uint32_t slot, const struct message_hello *hello,
                         bool resumed, bool replaced);
void roster_send_refused(struct roster *r, uint64_t link, enum message_refusal why, bool again,
                         const char *text);
void roster_send_lease(struct roster *r, uint32_t slot, uint64_t sent_ms, uint64_t now_ms);
void roster_send_leader(struct roster *r); /* its place, and the members' addresses */
void roster_send_place(struct roster *r, uint32_t slot);
void roster_send_checkpoint_request(struct roster *r, uint32_t slot);
void roster_send_stop(struct roster *r, uint32_t slot);
void roster_send_verdict(struct roster *r, uint64_t link);

/* To all other nodes: what a node has reported; or that it has left, if they know it as unfit. */
void roster_send_health(struct roster *r, uint32_t slot, enum message_fitness fitness);
void roster_send_gone(struct roster *r, uint32_t slot);
void roster_send_unfit(struct roster *r, uint32_t slot); /* to one: all that are not fit now */

/* All that matters of the generation, to a node that has come back. */
void roster_send_again(struct roster *r, uint32_t slot);

/* The job's end for one node. */
void roster_send_excluded(struct roster *r, uint64_t link, const struct roster_past_excluded *who);

/* Which of these terms differ from those that hold: into r->note. */
void roster_note_terms(struct roster *r, const struct message_terms *terms);

#endif
