/* message.h - the messages between a node and the roster: their content, not the bytes.
 *
 * roster.h and member.h take and make them; channel_wire.h turns them into bytes and back. Within a
 * process they are handed over as they are. Texts and lists are lent: by the sender until its next
 * step, by the decoder as long as the frame's bytes exist. docs/design/membership.md describes
 * which side sends which message when.
 *
 * Each message can arrive twice, and the one before it may have been lost with a connection.
 * Therefore a message describes a state, not a change, and all except those that open a connection
 * name their generation, so that the receiver can detect a late one. */
#ifndef DDP_RENDEZVOUS_MEMBERSHIP_MESSAGE_H
#define DDP_RENDEZVOUS_MEMBERSHIP_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MESSAGE_TYPES(X) /* name, meaning */                                                       \
    /* a node to the roster */                                                                     \
    X(HELLO, "the first on a connection: which node it is, and what it requests")                  \
    X(KEEP_ALIVE, "the node runs, and requests the renewal of its lease")                          \
    X(READY, "the generation's store is open (the node with rank 0)")                              \
    X(FAILED, "a rank of this node failed, or could not be started")                               \
    X(SUCCEEDED, "all ranks of this node succeeded")                                               \
    X(STOPPING, "STOP has arrived; until this answer the node may be lost")                        \
    X(STOPPED, "nothing of this node takes part any more; how many ranks it has for the next one") \
    X(SAVED, "the ranks have saved their state: the generation may end")                           \
    X(LEAVE, "the node leaves on purpose")                                                         \
    X(END, "the job is to end with this verdict")                                                  \
    /* the roster to a node */                                                                     \
    X(WELCOME, "the node is known; its lease begins")                                              \
    X(REFUSED, "the node is not admitted; why, and whether it may try again")                      \
    X(SEALED, "a generation is sealed, and this is the node's place in it")                        \
    X(MEMBERS, "some of the addresses of the generation's nodes (to the node with rank 0)")        \
    X(CHECKPOINT_REQUEST, "a node waits for admission: ask the ranks to save their state")         \
    X(STOP, "the generation ends: stop its ranks, or take them out of it")                         \
    X(LEASE, "answer to KEEP_ALIVE: the lease runs from when that was sent")                       \
    X(VERDICT, "the job is over")                                                                  \
    /* a node to the roster */                                                                     \
    X(RESTART, "a user requested on this node that all ranks of the job start again")              \
    /* both ways, without the roster and the member: rendezvous/jobs/results.h */                  \
    X(RESULT, "what became of a node's ranks, for the job's report")                               \
    /* both ways, without the roster and the member: rendezvous/jobs/figures.h */                  \
    X(FIGURES, "how a node's ranks are, for the pages of the first node")                          \
    /* both ways */                                                                                \
    X(HEALTH, "whether a node may take part in the next generation, and why not")                  \
    /* both ways, without the roster and the member: rendezvous/jobs/heartbeats.h */               \
    X(HEARTBEAT, "the first on a connection, and its answer: what follows are heartbeats")

enum message_type {
#define X(name, meaning) MESSAGE_##name,
    MESSAGE_TYPES(X)
#undef X
        MESSAGE_N_TYPES
};

/* Bounds; the NUL counts. */
enum {
    MESSAGE_INSTANCE_BYTES = 16,
    MESSAGE_RUN_ID_BYTES = 256,
    MESSAGE_NAME_BYTES = 128, /* of a node */
    MESSAGE_DOMAIN_BYTES = 128,
    MESSAGE_HOST_BYTES = 256,
    MESSAGE_TEXT_BYTES = 1024,
    MESSAGE_HEALTH_BYTES = 200,  /* of the reason in a HEALTH; a longer one is cut */
    MESSAGE_CAUSE_BYTES = 24576, /* of a struct message_result */
    MESSAGE_MAX_LOCAL = 1024,    /* ranks of a node */
    MESSAGE_MAX_ADDRESSES = 16,
    MESSAGE_MAX_MEMBERS = 2048, /* addresses in one MEMBERS */
    MESSAGE_MAX_NAMES = 8,      /* in a struct message_progress */
    MESSAGE_MAX_NODES = 65536,
    MESSAGE_MAX_RESTARTS = 1000000,
    MESSAGE_MAX_STRIKES = 16,            /* failures after which a node is excluded */
    MESSAGE_MAX_GENERATION = 1000000000, /* in which a node may claim that it took part */
};
#define MESSAGE_MAX_MS        1000000000000u /* of any duration: 10^9 s */
#define MESSAGE_MAX_TERM      INT64_MAX
#define MESSAGE_MAX_CLOCK_MS  INT64_MAX
#define MESSAGE_NO_GENERATION UINT32_MAX
#define MESSAGE_NO_RANK       (-1)
#define MESSAGE_MAX_STEPS     (UINT64_MAX / 2)

enum message_admit_at { MESSAGE_ADMIT_NOW, MESSAGE_ADMIT_AT_CHECKPOINT };

/* What the whole job agreed to on its command line. Those of the first node that joins hold. */
struct message_terms {
    uint32_t min_nodes, max_nodes; /* 1 <= min <= max <= MESSAGE_MAX_NODES; the same on all nodes */
    uint64_t window_ms;            /* wait for late nodes once min_nodes have joined */
    uint64_t start_timeout_ms;     /* until the first generation; 0 is not allowed */
    uint64_t rejoin_timeout_ms;    /* too few are left: wait so long for others */
    uint32_t max_restarts;      /* failures of ranks, of the whole job; <= MESSAGE_MAX_RESTARTS */
    uint64_t restart_window_ms; /* of so many last ms; 0: ever */
    uint8_t no_restart_on[32];  /* bit N of them: exit status N ends the job */
    enum message_admit_at admit_at;
    uint64_t admit_timeout_ms;  /* AT_CHECKPOINT: wait so long for it; 0: as long as it takes */
    uint32_t exclude_after;     /* a node of which so many ranks have failed; 0: none, at most
                                   MESSAGE_MAX_STRIKES */
    uint64_t exclude_window_ms; /* in so many last ms; 0: ever */
    uint32_t spares; /* nodes that wait for a place, besides max_nodes; <= MESSAGE_MAX_NODES. With
                        some, a generation that lost a node gives its place to a node that returns
                        rather than to a spare */
    uint32_t no_progress; /* end after so many generations without a new step; 0: never; <=
                                   MESSAGE_MAX_RESTARTS */
    uint32_t segment; /* only whole segments of so many nodes of one domain take part, the nodes of
                         a domain one after the other; min_nodes and max_nodes are multiples of it.
                         0: domains do not matter; <= max_nodes. The same on all nodes */
};

struct message_address {
    uint8_t family;    /* 4 or 6 */
    uint8_t bytes[16]; /* in network order; of an IPv4 address the first 4, the others 0 */
};

struct message_place {
    uint32_t n_nodes, node_index;             /* GROUP_WORLD_SIZE, GROUP_RANK */
    uint32_t world_size, first_rank, n_local; /* this node has first_rank .. first_rank + n_local
                                                 - 1 */
    uint32_t n_restarts; /* the restarts charged to the budget before, so that another roster can
                            continue from them; <= MESSAGE_MAX_RESTARTS */
    uint64_t term;       /* DDP_TERM: of the coordinator that began the generation; <=
                            MESSAGE_MAX_TERM */
    bool leads;          /* it has rank 0: it opens the store, then sends READY */
    bool agent_store;    /* as READY had it; in the leader's: false */
    const char *host;    /* MASTER_ADDR; in the leader's: empty */
    uint16_t port;       /* MASTER_PORT; in the leader's: 0 */
    bool relayed;        /* as READY had it: then they are DDP_MASTER_HOST and a port for links */
};

/* The last generation that a node took part in, if it still has something of it, or has reported
 * that it has not. A roster that takes over identifies the nodes by it. */
struct message_was {
    bool is_known;
    uint32_t generation;
    struct message_place place; /* the leader's has the store's host and port, once it is open */
};

struct message_hello {
    uint8_t instance[MESSAGE_INSTANCE_BYTES]; /* random, new for each run of ddprun */
    const char *run_id;
    const char *name;   /* for people, and the order of ranks: the host's name. Printable ASCII
                            without blanks, not empty */
    int32_t node_rank;  /* --node-rank; MESSAGE_NO_RANK: none */
    uint32_t n_local;   /* ranks on this node, 1 .. MESSAGE_MAX_LOCAL, that would take part in a
                            generation */
    uint32_t resumes;   /* the generation whose ranks or store this node still has;
                            MESSAGE_NO_GENERATION: none */
    bool keeps_rank_0;  /* MASTER_ADDR is this node's, by the command line: it is the first */
    bool reports;       /* it may write the job's report (--report) */
    uint64_t stop_ms;   /* from a STOP to nothing left this node takes so long at most */
    uint64_t sent_ms;   /* as in KEEP_ALIVE */
    size_t n_addresses; /* 0 .. MESSAGE_MAX_ADDRESSES: from which its ranks connect to the store */
    const struct message_address *addresses;
    struct message_terms terms;
    bool returns; /* a roster has welcomed this session: other nodes may have ranks from it */
    struct message_was was;
    bool checks;        /* this node checks its health: it takes part in no generation before a
                          HEALTH that it is fit, nor after a STOPPED before the next one */
    uint64_t check_ms;  /* such a check takes so long at most; 0 without checks */
    const char *domain; /* with terms.segment: which nodes are close to this one. Printable ASCII
                           without blanks, not empty; else empty, or NULL */
};

struct message_keep_alive { /* and LEASE, which gives it back */
    uint64_t sent_ms;       /* by the node's clock; the roster only returns it */
};

/* What the roster waits for; the waiting node prints it on its terminal. */
enum message_wait {
    MESSAGE_WAIT_NODES,      /* fewer than the minimum have joined; names: missing, if known */
    MESSAGE_WAIT_WINDOW,     /* enough have joined, more may join */
    MESSAGE_WAIT_STORE,      /* a generation is made; names: the node that opens the store */
    MESSAGE_WAIT_STOP,       /* the generation before is being stopped; names: those that stop */
    MESSAGE_WAIT_PAUSE,      /* before a restart */
    MESSAGE_WAIT_PLACE,      /* all places are taken: this node is a spare */
    MESSAGE_WAIT_CHECKPOINT, /* the job will make a place free at its next checkpoint */
    MESSAGE_WAIT_NOTHING,    /* the generation runs */
    MESSAGE_WAIT_HEALTH,     /* nodes check their health before the next generation; names: those */
    MESSAGE_N_WAITS,
};

struct message_progress {
    enum message_wait wait;
    uint32_t n_here, n_wanted; /* nodes; wanted: the minimum, or the maximum in the window */
    uint64_t elapsed_ms;       /* so long in this wait */
    uint64_t left_ms;          /* until it ends at the latest; UINT64_MAX: open */
    uint32_t n_all_names;      /* how many there are; the first of them: */
    uint32_t n_names;          /* <= MESSAGE_MAX_NAMES */
    const char *names[MESSAGE_MAX_NAMES];
};

struct message_welcome {
    uint64_t sent_ms;       /* of the HELLO */
    uint64_t keep_alive_ms; /* send one at this interval */
    uint64_t lease_ms;      /* the lease is over so long after the answered KEEP_ALIVE was sent */
    bool resumed;           /* this session continues; else it has just begun */
    const char *note;       /* which of the terms differ from those that hold; empty: none do */
    bool replaced; /* resumed: by a new roster, which has learned of the generation from its
                      members */
    bool elects;   /* another process may take its place: its decisions are confirmed elsewhere */
    uint64_t clock_ms; /* the time of day there, in ms since 1970; 0: not stated */
};

struct message_lease {
    uint64_t sent_ms;                        /* of the KEEP_ALIVE */
    const struct message_progress *progress; /* lent; NULL: nothing is waited for */
};

enum message_refusal {
    MESSAGE_REFUSED_OTHER_JOB, /* no job of this run id here */
    MESSAGE_REFUSED_TERMS,     /* --nnodes is not what the others have */
    MESSAGE_REFUSED_NODE_RANK, /* another node has this --node-rank */
    MESSAGE_REFUSED_LOST,      /* the node was declared lost while it was away: kill the ranks, join
                                  again */
    MESSAGE_REFUSED_FULL,      /* out of memory, or more nodes than this roster takes */
    MESSAGE_REFUSED_NOT_FIRST, /* another node keeps rank 0 */
};

struct message_refused {
    enum message_refusal why;
    bool again; /* in a moment it may be different */
    const char *text;
};

struct message_members {
    uint32_t n_all; /* addresses of all nodes; this message has some */
    uint32_t first; /* the first one's number: 0 begins the list again */
    size_t n;       /* <= MESSAGE_MAX_MEMBERS */
    const struct message_address *addresses;
};

struct message_ready {
    const char *host; /* not empty */
    uint16_t port;
    bool agent_store; /* served by ddprun, not by rank 0 itself */
    bool relayed;     /* the port is for the other nodes' links (relay_hub.h), not for ranks */
};

struct message_failed {
    uint32_t rank;     /* global; of a failed start, the first that was to be started */
    uint8_t exit_code; /* what it means for ddprun: 1 .. 255 */
    bool final;        /* it would fail again: no restart (the program cannot be executed) */
    const char *text;  /* for the other nodes' terminals */
    bool progressed;   /* --restart-after-progress, and there was some here: it is not counted */
    bool consequence;  /* the rank had lost a peer before: another failure is the cause, if known */
    bool recovers;     /* the node's other ranks live on: nothing is gained by a pause */
};

struct message_stopped {
    uint32_t n_local; /* as in a HELLO, from now on: fewer where ranks have failed that are not
                         replaced. Sent again when another one has */
    uint64_t steps;   /* the most that a rank of the node has completed since the job began, those
                         that it reports; 0: none, or --no-progress does not ask for it */
};

enum message_why {
    MESSAGE_WHY_JOIN,
    MESSAGE_WHY_LOST,
    MESSAGE_WHY_LEAVE,
    MESSAGE_WHY_FAILURE,
    MESSAGE_WHY_ORDER,   /* the node itself reported that its ranks were gone */
    MESSAGE_WHY_RESTART, /* all ranks are to be started again, because a restart was requested */
};

struct message_stop {
    enum message_why why;
    const char *text;
};

struct message_leave {
    const char *text; /* "SIGTERM" */
};

enum message_outcome {
    MESSAGE_WELL,        /* each rank ended with 0 */
    MESSAGE_RANK_FAILED, /* and no restart was left, or allowed */
    MESSAGE_TOO_FEW,     /* nodes left */
    MESSAGE_MISSING,     /* nodes did not join before the deadline */
    MESSAGE_ENDED,       /* a node sent END */
    MESSAGE_EXCLUDED,    /* the job continues without this node, whose ranks failed too often */
    MESSAGE_STUCK,       /* --no-progress: it would fail again */
    MESSAGE_N_OUTCOMES,
};

struct message_verdict { /* and END, whose outcome is MESSAGE_ENDED */
    enum message_outcome outcome;
    uint8_t exit_code;
    int32_t rank;     /* of RANK_FAILED; MESSAGE_NO_RANK */
    const char *node; /* where it began; may be empty */
    const char *text;
    uint32_t n_restarts; /* that --max-restarts was charged with */
};

/* The job is over, and its report is written by one process. */
enum message_result_kind {
    MESSAGE_RESULT_ASKED, /* to a node: send yours, when nothing of its ranks runs any more */
    MESSAGE_RESULT_RANKS, /* a node's; and on to the node that writes the report */
    MESSAGE_RESULT_ALL,   /* to a node that `stays`: no more of them come */
};

struct message_result_rank {
    uint32_t rank;
    uint16_t local_rank;
    int32_t pid;        /* 0: it was not started */
    bool has_ended;     /* with: */
    uint16_t status;    /* of waitpid() */
    uint8_t stopped_by; /* the first signal that ddprun stopped it with; 0: none */
    bool lost_peer, was_failing;
    uint64_t duration_ms;
};

struct message_result { /* of the message's generation */
    enum message_result_kind kind;
    bool writes; /* ASKED: this node writes the report */
    bool stays;  /* ASKED: its process ends after ALL: it writes the report, or has the roster */
    uint32_t node_index; /* RANKS, as all below */
    const char *host;    /* no control characters */
    const char *cause;   /* a JSON object about the job's root cause, without control characters;
                            empty: it was not here */
    size_t n_ranks;      /* 0 .. MESSAGE_MAX_LOCAL */
    const struct message_result_rank *ranks;
};

/* The first node shows how all ranks are. */
enum message_figures_kind {
    MESSAGE_FIGURES_ASKED, /* of the first node, and on to each other one: send yours */
    MESSAGE_FIGURES_RANKS, /* a node's; and on to the first node */
};

enum message_phase { /* of a rank */
                     MESSAGE_PHASE_NOT_STARTED,
                     MESSAGE_PHASE_ASKED,
                     MESSAGE_PHASE_RUNS,
                     MESSAGE_PHASE_ENDED,
                     MESSAGE_PHASE_FAILED_TO_START,
                     MESSAGE_N_PHASES,
};

struct message_figures_rank {
    uint32_t rank;
    int32_t pid; /* 0: it was not started */
    enum message_phase phase;
    uint16_t status;   /* ENDED: of waitpid() */
    uint32_t restarts; /* how often it was replaced, or started again */
    uint64_t age_ms;   /* since its start, up to its end */
    bool has_steps;    /* it reports them: */
    uint64_t steps;
    uint64_t own_ns;    /* of a step, without the wait for others; 0: not known */
    uint64_t silent_ms; /* since it wrote something; MESSAGE_MAX_MS: not known */
};

struct message_figures { /* of the message's generation */
    enum message_figures_kind kind;
    uint32_t node_index; /* RANKS, as all below; to the first node: as the roster knows it */
    const char *host;    /* no control characters */
    size_t n_ranks;      /* 0 .. MESSAGE_MAX_LOCAL */
    const struct message_figures_rank *ranks;
};

enum message_fitness {
    MESSAGE_FIT,
    MESSAGE_UNFIT,
    MESSAGE_FIT_GONE, /* from the roster only: a node that was unfit has left, or is lost */
    MESSAGE_N_FITNESSES,
};

struct message_health {
    enum message_fitness fitness;
    const char *node; /* from the roster: which one; from a node: "" */
    const char *text; /* UNFIT: why; less than MESSAGE_HEALTH_BYTES, no control characters; else
                         "" */
};

struct message_heartbeat {
    uint8_t instance[MESSAGE_INSTANCE_BYTES]; /* of the node, as in its HELLO */
    const char *run_id;
    uint64_t limit_ms; /* its ranks are suspended when none was acknowledged for so long */
};

struct message {
    enum message_type type;
    uint32_t generation; /* MESSAGE_NO_GENERATION in HELLO, KEEP_ALIVE, LEAVE, END, WELCOME,
                            REFUSED, LEASE, VERDICT, HEALTH, HEARTBEAT */
    union {
        struct message_hello hello;
        struct message_keep_alive keep_alive;
        struct message_ready ready;
        struct message_failed failed;
        struct message_stopped stopped;
        struct message_leave leave;
        struct message_verdict verdict; /* END, VERDICT */
        struct message_welcome welcome;
        struct message_refused refused;
        struct message_place sealed;
        struct message_members members;
        struct message_stop stop;
        struct message_lease lease;
        struct message_result result;
        struct message_figures figures;
        struct message_health health;
        struct message_heartbeat heartbeat;
    };
};

#endif
