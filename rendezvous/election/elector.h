/* elector.h - selects the node that has a job's roster, through etcd. Pure.
 *
 * Each node has one. The caller carries its requests to etcd, one at a time, feeds the answers and
 * the time, and carries out its orders: look for the roster there, make one here, give it up.
 *
 * Two keys at etcd. The *leader's* belongs to the node that has the roster, and disappears with its
 * lease: it is created only if it does not exist. The *record* holds what the next leader has to
 * know. Only the holder of the leader's key writes it, which etcd compares in the same transaction,
 * so that a deposed leader writes nothing. docs/design/etcd.md has the states, and what is
 * promised. */
#ifndef DDP_RENDEZVOUS_ELECTION_ELECTOR_H
#define DDP_RENDEZVOUS_ELECTION_ELECTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    ELECTOR_HOST_BYTES = 256, /* with the NUL */
    ELECTOR_TEXT_BYTES = 512,
    ELECTOR_NAME_BYTES = 128,
    ELECTOR_EXCLUDED_MAX = 8,
    ELECTOR_MISSING_MAX = 8,
};

#define ELECTOR_NO_GENERATION UINT32_MAX

struct elector_excluded {          /* a node that takes no part any more */
    char name[ELECTOR_NAME_BYTES]; /* printable ASCII without blanks */
    uint8_t exit_code;
};

/* The generation that nodes know if they have not received a place in the newest one. */
struct elector_before {
    uint32_t generation; /* ELECTOR_NO_GENERATION: unknown */
    uint32_t n_nodes;    /* in it, of which these have no place in the newest one: */
    uint8_t n_missing;
    uint32_t missing[ELECTOR_MISSING_MAX];
};

struct elector_address {
    char host[ELECTOR_HOST_BYTES]; /* printable ASCII without blanks */
    uint16_t port;
};

static inline bool elector_same_address(const struct elector_address *a,
                                        const struct elector_address *b)
{
    return a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* Which member of the generation is the node of the leader that wrote the record. If no process
 * listens at its address any more, that process has ended, and its ranks with it. */
struct elector_host {
    uint32_t node;             /* its index */
    struct elector_address at; /* port 0: the leader's node has no place, or none is known */
};

/* What the next leader has to know. The nodes report the rest. */
struct elector_record {
    uint32_t generation, n_nodes, world_size, n_restarts;
    int32_t gone;      /* the node with this index has left together with the leader; -1 */
    bool is_over;      /* the job is, with this code */
    uint8_t exit_code; /* 0 .. 255 */
    uint8_t n_excluded;
    struct elector_excluded excluded[ELECTOR_EXCLUDED_MAX];
    struct elector_before before;
    struct elector_host host;
};

#define ELECTOR_STATES(X) /* name, on entry, meaning */                                            \
    X(LOOKING, nothing, "no leader is known; the elector asks etcd for one")                       \
    X(FOLLOWING, nothing, "another node leads")                                                    \
    X(PREPARING, nothing, "no node leads; the elector requests leases")                            \
    X(CLAIMING, nothing, "the elector requests the leader's key")                                  \
    X(LEADING, nothing, "this node leads, confirmed by etcd within the lease")                     \
    X(IN_DOUBT, report_doubt, "this node led, and its lease may have expired")                     \
    X(RESIGNING, write_last, "the last write is in progress")                                      \
    X(ENDED, finish, "no more requests")

#define ELECTOR_EVENTS(X) /* name, meaning */                                                      \
    X(NO_LEADER, "etcd reports that no node leads")                                                \
    X(OTHER_LEADS, "etcd reports that another node leads")                                         \
    X(THIS_LEADS, "etcd reports that this node leads")                                             \
    X(GRANTED, "etcd granted a lease")                                                             \
    X(RENEWED, "etcd renewed the lease")                                                           \
    X(EXPIRED, "etcd does not know the lease any more")                                            \
    X(WRITTEN, "etcd wrote the record")                                                            \
    X(DEPOSED, "etcd refused a write, since the leader's key is not ours")                         \
    X(FAILED, "etcd did not answer, or answered with an error")                                    \
    X(LAPSED, "the lease is over by our clock")                                                    \
    X(RESIGNED, "etcd has answered the last write, or not in time")                                \
    X(RESIGN, "this node stops leading, and stops asking for the leader")

enum elector_state {
#define X(name, on_entry, meaning) ELECTOR_##name,
    ELECTOR_STATES(X)
#undef X
        ELECTOR_N_STATES
};

enum elector_event_type {
#define X(name, meaning) ELECTOR_EV_##name,
    ELECTOR_EVENTS(X)
#undef X
        ELECTOR_N_EVENTS
};

/* What etcd is asked. */
enum elector_request_type {
    ELECTOR_READ,    /* both keys, in one transaction */
    ELECTOR_GRANT,   /* a lease of `ttl_s` */
    ELECTOR_CLAIM,   /* if there is no leader's key: put it, with `lease`; and both keys */
    ELECTOR_KEEP,    /* renew `lease` */
    ELECTOR_WRITE,   /* if the leader's key is of `create_revision`: put `record`, with `lease` */
    ELECTOR_GIVE_UP, /* if ...: delete the leader's key, and put or delete the record */
};

struct elector_request {
    enum elector_request_type type;
    int64_t lease; /* GIVE_UP: of the record */
    int64_t create_revision;
    uint32_t ttl_s;
    bool has_record; /* WRITE; GIVE_UP: else the record is deleted */
    struct elector_record record;
    struct elector_address address; /* CLAIM */
};

/* How it answered. */
struct elector_answer {
    bool failed;      /* no answer, or an error: `text` has the reason. Nothing else counts */
    bool lacks_lease; /* failed: a lease that was named is not known */
    char text[ELECTOR_TEXT_BYTES];
    bool succeeded;              /* CLAIM, WRITE, GIVE_UP: the condition held */
    int64_t revision;            /* of the whole of etcd */
    int64_t lease;               /* GRANT, KEEP */
    uint32_t ttl_s;              /* the same; 0: there is no such lease */
    bool has_leader, has_record; /* READ, CLAIM */
    int64_t leader_create_revision, leader_lease;
    struct elector_address leader;
    int64_t record_mod_revision, record_lease;
    struct elector_record record;
};

struct elector_limits {
    uint32_t ttl_s;        /* of the leader's lease; etcd may give more */
    uint32_t record_ttl_s; /* the record outlives the last leader by so much */
    uint64_t ask_ms;       /* between two questions which node leads */
    uint64_t hurry_ms;     /* the same, while no node leads, or the leader is silent */
    uint64_t prefer_ms;    /* a follower also waits so long if etcd has lost the record: the node
                              that still has the roster is to lead again */
    bool never_leads;
};

enum elector_input_type {
    ELECTOR_ANSWER, /* `answer`, to the request that is out */
    ELECTOR_TIME,   /* elector_deadline_ms() has come */
    ELECTOR_HURRY,  /* `hurries`: the leader is not heard, or it is again */
    ELECTOR_COMMIT, /* LEADING: write `record`; a newer one takes the place of one that waits */
    ELECTOR_STOP    /* it ends; a pending request is dropped for another one. `record`: to be left
                       for the next leader; NULL: no leader follows */
};

struct elector_input {
    enum elector_input_type type;
    uint64_t now_ms; /* monotonic */
    const struct elector_answer *answer;
    const struct elector_record *record;
    bool hurries;
};

/* What the caller is to do; false: nothing. In this order. */
struct elector_orders {
    bool give_up; /* the roster here is not the job's any more: drop it */
    bool doubt;   /* the roster here may not be the job's any more */
    bool certain; /* it is */
    bool make;    /* be the roster; has_past: continue from `past` */
    bool has_past;
    bool vacant;    /* etcd reports that no node leads, asked at asked_ms */
    bool follow;    /* the roster is at `leader`: new, or reported again */
    bool committed; /* the record given last is written */
    bool request;   /* ask etcd; feed ANSWER, failed too, within a bounded time */
    bool over;      /* RESIGN is done */
    struct elector_record past;
    uint64_t asked_ms;
    struct elector_address leader;
    struct elector_request ask;
};

struct co_machine;
struct elector; /* opaque */

/* Nothing is asked before the first TIME. returns NULL: out of memory */
struct elector *elector_create(const struct elector_limits *limits);
void elector_destroy(struct elector *e); /* NULL is fine */

/* Where others reach a roster in this process. Without one this node does not claim to lead. */
void elector_set_address(struct elector *e, const struct elector_address *address);

void elector_step(struct elector *e, const struct elector_input *in, struct elector_orders *ret);

uint64_t elector_deadline_ms(const struct elector *e); /* CO_NEVER_MS: feed no TIME */
enum elector_state elector_get_state(const struct elector *e);

/* How long the leader's lease is, as etcd has granted it; LEADING. In s. */
uint32_t elector_ttl_s(const struct elector *e);

/* Why etcd did not answer the last request, or "". Lent until the next step. */
const char *elector_trouble(const struct elector *e);

const char *elector_state_name(enum elector_state state);

/* The table, for its drawing and its tests. */
extern const struct co_machine elector_machine;

#endif
