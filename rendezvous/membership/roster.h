/* roster.h - which nodes take part in the job, in which generation, with which ranks. Only the
 * roster decides this.
 *
 * Pure. The caller feeds what happens in, each with the time, and carries out the actions that come
 * back; it feeds TIME at roster_deadline_ms(). One roster is one job, of any number of nodes. Two
 * callers: a ddprun of one node, which hands messages over to its member.h as they are; and the
 * daemon, which has a roster per run id and a connection per node. docs/design/membership.md has
 * the rules and why; docs/design/roster.dot is the drawing, made from the table in roster.c and
 * compared with it by a test.
 *
 * Terms:
 *   link         one connection of a node. The caller numbers them, and never uses a number twice
 *   session      of a node, from its first HELLO until it leaves or is lost. A new link with the
 *                same instance id continues it
 *   here         present: it has a link and is not leaving. It counts for the next generation
 *   away         its link ended less than return_ms ago
 *   lost         it did not connect again, or sent nothing for longer than its lease
 *   member       a node of the current generation; `unassigned` until its place was sent to it
 *   spare        here, but all places are taken
 *   leader       the member with rank 0: it opens the store before the others get their places
 *   absent       a member of a generation that another roster has made, no message from it here yet
 *                (roster_resume(), or adopted: struct roster_input.max_absent)
 *   fit          its last check of its health succeeded, or it makes none. A node that checks its
 *                health is not fit from its HELLO and from its STOPPED until it reports it; one
 *                that is not does not count as here
 *   excluded     it takes no part any more, nor does a node of the same name: its ranks failed too
 *                often */
#ifndef DDP_RENDEZVOUS_MEMBERSHIP_ROSTER_H
#define DDP_RENDEZVOUS_MEMBERSHIP_ROSTER_H

#include "message.h"

struct co_error;
struct co_machine;
struct roster; /* opaque */

#define ROSTER_STATES(X) /* name, on entry, meaning */                                             \
    X(GATHERING, begin_gathering, "fewer nodes than the minimum are present")                      \
    X(OPEN, open_window, "enough nodes are present; the join window is open")                      \
    X(RUNNING, give_ranks, "ranks are assigned, workers run")                                      \
    X(STOPPING, stop_ranks, "the generation ends; waiting for its last rank")                      \
    X(CLOSED, send_verdict, "the job is over, no node may join")

#define ROSTER_EVENTS(X) /* name, meaning */                                                       \
    X(JOIN, "a node joins")                                                                        \
    X(ADOPT, "a member of a generation of an earlier coordinator sends HELLO")                     \
    X(DISCONNECTED, "the connection of a node has ended")                                          \
    X(LOST, "a node is lost")                                                                      \
    X(LEAVE, "a node leaves on purpose")                                                           \
    X(UNFIT, "a node without ranks is found not healthy")                                          \
    X(CONFIRMED, "the generation may begin: the back end has confirmed it")                        \
    X(READY, "the leader has opened the store")                                                    \
    X(FAILED, "a rank of a member failed")                                                         \
    X(SUCCEEDED, "all ranks of a member succeeded")                                                \
    X(STOPPING, "a member has received STOP")                                                      \
    X(STOPPED, "nothing of the generation runs on a member")                                       \
    X(SAVED, "the ranks of a member have saved their state")                                       \
    X(ALL_STOPPED,                                                                                 \
      "nothing of the generation runs on any node: its cause does not change any more")            \
    X(RESTART, "a user requested on a member that all ranks start again")                          \
    X(PAUSE_OVER, "nothing of the generation runs on any node, and no pause is left")              \
    X(DEADLINE, "the deadline of the state has passed")                                            \
    X(END, "a node or the caller ends the job")

enum roster_state {
#define X(name, on_entry, meaning) ROSTER_##name,
    ROSTER_STATES(X)
#undef X
        ROSTER_N_STATES
};

enum roster_event_type { /* of the table; what the caller feeds is an enum roster_input_type */
#define X(name, meaning) ROSTER_EV_##name,
                         ROSTER_EVENTS(X)
#undef X
                             ROSTER_N_EVENTS
};

enum roster_input_type {
    ROSTER_MESSAGE, /* `message` came on `link`; the first one is a HELLO, the only one that makes
                       a link known. What comes on an unknown link is ignored */
    ROSTER_GONE,    /* `link` has ended, whichever side closed it */
    ROSTER_TIME,   /* roster_deadline_ms() has come; earlier is harmless. Feed all that was received
                       before: a caller that slept must not call its nodes silent */
    ROSTER_ASLEEP, /* the caller knows that it slept or has only now taken over: silence until now
                      means nothing, each node gets a whole lease again */
    ROSTER_END,    /* end the job with `message`'s verdict, an END that came from elsewhere */
    ROSTER_CONFIRMED, /* where limits.confirm_ms is set: what `generation` began with is decided, in
                         `term`, and it may begin; in CLOSED: its verdict is, and nodes get it */
    ROSTER_HURRY,     /* a pause before a restart is over */
    ROSTER_DOUBT,     /* another roster may have taken this one's place, or not: nothing is begun,
                         and leases are renewed only while all members are heard */
    ROSTER_CERTAIN,   /* no longer in doubt; until_ms: for so long */
    ROSTER_SILENT,  /* the host of `instance` has not answered for silent_ms, so that its ranks are
                         suspended: it is lost, if nothing came on its link for so long either */
    ROSTER_ENDED,   /* the process of the absent member `node_index` of `generation` has certainly
                         ended, and its ranks with it: it is lost. Nothing if it is not absent */
    ROSTER_REPLACED /* another roster continues the job without what this one has begun: each linked
                          node stops its ranks and joins again. `text`: why */
};

struct roster_input {
    enum roster_input_type type;
    uint64_t now_ms; /* monotonic; never less than before */
    uint64_t link;   /* MESSAGE, GONE; not 0 */
    bool local;      /* HELLO: the node is in this process: it is never silent, and when it leaves
                        for good, the job cannot continue (the roster ends with it) */
    const struct message *message; /* MESSAGE, END; borrowed for the call */
    uint32_t generation;           /* CONFIRMED, ENDED */
    uint64_t term;                 /* CONFIRMED: of the coordinator; <= MESSAGE_MAX_TERM */
    uint32_t node_index;           /* ENDED */
    const uint8_t *instance;       /* SILENT: MESSAGE_INSTANCE_BYTES; borrowed for the call */
    uint64_t silent_ms;            /* SILENT */
    const char *text;              /* REPLACED; borrowed for the call */
    uint64_t
        until_ms; /* CERTAIN: from then on no lease begins or is renewed, whatever is fed, until
                          the next CERTAIN; 0: never */
    uint32_t max_absent; /* HELLO of a member of a generation that a roster before this one made,
                            which is gone: a roster that has made none adopts it, of so many nodes
                            at most. 0: none */
};

enum roster_action_type {
    ROSTER_SEND,    /* `message` on `link` */
    ROSTER_CLOSE,   /* `link`, when what was sent on it is out; feed no GONE for it, or do */
    ROSTER_CHANGED, /* the state: `from` is the previous one; roster_change() returns the rest */
};

struct roster_action {
    enum roster_action_type type;
    uint64_t link;
    enum roster_state from, to;
    struct message message; /* what it lends is the roster's, valid until the next step */
};

struct roster_actions {                /* in this order */
    const struct roster_action *items; /* the roster's, valid until the next step */
    size_t n;
};

struct roster_limits {
    uint32_t max_nodes;     /* here at a time, spares too; 0: MESSAGE_MAX_NODES */
    uint64_t keep_alive_ms; /* 0: LEASE_KEEP_ALIVE_MS, and so on */
    uint64_t lease_ms;
    uint64_t margin_ms;
    uint64_t return_ms;
    uint64_t ready_ms; /* the leader opens the store within; 0: ROSTER_READY_MS */
    uint64_t
        slack_ms; /* a node stops its ranks within its own stop_ms and this; 0: ROSTER_SLACK_MS */
    uint64_t confirm_ms; /* a generation is not announced to any node before ROSTER_CONFIRMED, which
                            must come within this time, or the job ends; 0: no confirmation is
                            needed */
    uint64_t verdict_ms; /* with confirm_ms: a verdict that is not confirmed within this time is
                            announced if no other coordinator can end the job differently; 0: a
                            lease without a keep-alive */
    uint64_t absent_ms;  /* roster_resume(): the members come within; 0: as a silent one */
};

enum {
    ROSTER_PAST_EXCLUDED = 8, /* if there are more, the last ones are passed on */
    ROSTER_PAST_MISSING = 8,  /* if there are more, nothing is passed on of the generation before */
};

struct roster_past_excluded {
    char name[MESSAGE_NAME_BYTES];
    uint8_t exit_code; /* of its last failure */
};

/* What nodes know before they receive a place in the newest generation: the one before, or an older
 * one if none of these nodes received a place in those between. */
struct roster_before {
    uint32_t generation; /* MESSAGE_NO_GENERATION: unknown */
    uint32_t n_nodes;    /* in it; all have a place in the newest generation, except ... */
    uint32_t n_missing, missing[ROSTER_PAST_MISSING]; /* ... those with these indexes */
};

/* What a roster has to know of the one that it replaces. The nodes report the rest, except which
 * nodes are excluded, because those are gone. */
struct roster_past {
    uint32_t generation; /* the newest that was confirmed */
    uint32_t n_nodes;    /* in it, 1 or more */
    uint32_t world_size;
    uint32_t n_restarts; /* that the budget was charged with */
    int32_t gone;        /* the node with this node_index has left with the old roster; -1: none */
    struct roster_before before;
    uint32_t n_excluded;                                        /* ROSTER_PAST_EXCLUDED at most */
    struct roster_past_excluded excluded[ROSTER_PAST_EXCLUDED]; /* in the order of time */
};

#define ROSTER_READY_MS 10000
#define ROSTER_SLACK_MS 5000

/* With spares: after the loss of a node, one that returns has so long to be preferred to a spare.
 * The ranks of the others stop meanwhile. */
#define ROSTER_LAST_CALL_MS 50

/* In doubt, a link that ended may belong to a node that has switched to another roster. After this
 * time each node that knows has reported it, or cannot be asked. */
#define ROSTER_DOUBT_RETURN_MS 2000

/* A job that no node has joined yet.
 *
 * limits       copied
 * terms        the job's; copied. For a daemon: those of the first HELLO
 * expected     names of the nodes that are expected, in the order of their ranks (a host file);
 *              copied. NULL: unknown
 * now_ms       the time for nodes to join begins
 * ret_roster   owned by the caller, which calls roster_destroy()
 * returns      0
 *              -EINVAL   limits or terms conflict; err has the reason
 *              -ENOMEM */
int roster_create(const struct roster_limits *limits, const struct message_terms *terms,
                  const char *const *expected, size_t n_expected, uint64_t now_ms,
                  struct roster **ret_roster, struct co_error *err);
void roster_destroy(struct roster *r); /* NULL is fine */

/* A new roster, on which no other function was called yet, continues where another one ended: its
 * generation runs, and its members are absent until they send HELLO with their places in it. The
 * number of restarts is known, but not their times: with a window all count as just made.
 *
 * returns   0
 *           -EINVAL   such a generation is not possible
 *           -ENOMEM */
int roster_resume(struct roster *r, const struct roster_past *past, uint64_t now_ms,
                  struct co_error *err);

/* Feed one input. Never fails: if memory for a node runs out, the node is refused; admission
 * reserves what all later steps with it may need.
 *
 * ret       the actions, lent until the next step */
void roster_step(struct roster *r, const struct roster_input *in, struct roster_actions *ret);

uint64_t roster_deadline_ms(const struct roster *r); /* CO_NEVER_MS: feed no TIME */

/* When its state ends by itself, whatever happens to single nodes. CO_NEVER_MS: never */
uint64_t roster_state_deadline_ms(const struct roster *r);

enum roster_state roster_get_state(const struct roster *r);
uint32_t
roster_generation(const struct roster *r);       /* the newest; MESSAGE_NO_GENERATION: none yet */
uint32_t roster_n_nodes(const struct roster *r); /* known: 0 in CLOSED means that all have received
                                                    the verdict */
uint32_t roster_n_restarts(const struct roster *r); /* that the budget was charged with */

/* What another roster would have to know to take the place of this one; `gone` is -1. Of no
 * generation: MESSAGE_NO_GENERATION. */
void roster_get_past(const struct roster *r, struct roster_past *ret);

/* What followed, or follows after a pause, on the end of the last generation. */
struct roster_restart {
    enum message_why why; /* it has ended */
    uint64_t wait_ms;     /* the pause */
    bool is_free;         /* the budget was not charged */
    uint32_t n_counted;   /* all that were, this one included */
};

/* returns   NULL in CLOSED: nothing follows */
const struct roster_restart *roster_get_restart(const struct roster *r);

/* Is this node of the job, and has it a link? */
bool roster_has_instance(const struct roster *r, const uint8_t instance[MESSAGE_INSTANCE_BYTES]);

/* Why the state last changed, for logs and events: "lost node7: nothing heard for 3500 ms". Lent
 * until the next step. */
const char *roster_change(const struct roster *r);

/* The node that was excluded as the last generation ended, or "". Lent until the next step. */
const char *roster_newly_excluded(const struct roster *r);

/* In CLOSED; before, NULL. */
const struct message_verdict *roster_get_verdict(const struct roster *r);

/* In CLOSED: was it sent? Not before it is confirmed, with limits.confirm_ms. */
bool roster_has_informed_all(const struct roster *r);

/* A node, for status. */
struct roster_node_view {
    const uint8_t *instance; /* MESSAGE_INSTANCE_BYTES */
    const char *name;
    uint32_t n_local;
    uint32_t node_index, first_rank; /* of a member */
    uint64_t link;                   /* 0: away */
    bool here, is_member, is_done, is_stopped, leaves, is_absent;
    bool has_saved;    /* a member whose ranks have all saved their state in this generation */
    bool is_fit;       /* as above */
    const char *unfit; /* why not, as the node has reported; "": it is, or has not reported it */
};

/* Grows when a node becomes unfit, or fit again, or an unfit one leaves. */
uint32_t roster_n_health_changes(const struct roster *r);

/* Nodes have slots, 0 .. roster_n_slots() - 1, some of which are free.
 *
 * returns   whether a node has the slot; else *ret is not written */
uint32_t roster_n_slots(const struct roster *r);
bool roster_view(const struct roster *r, uint32_t slot, struct roster_node_view *ret);

/* The same for the node that has this link. */
bool roster_view_link(const struct roster *r, uint64_t link, struct roster_node_view *ret);

const char *roster_state_name(enum roster_state state);

/* The table, for its drawing and its tests. */
extern const struct co_machine roster_machine;

#endif
