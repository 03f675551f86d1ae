/* member.h - a node's ddprun carries out what the roster decides: the other end of roster.h.
 *
 * Pure. The caller feeds in what comes from the roster, from its own ranks and from the clock, and
 * carries out the orders that come back. docs/design/member.dot is the drawing, made from the table
 * in member.c and compared with it by a test.
 *
 * The member keeps the link to the roster alive and sends HELLO again after each loss of it. Its
 * orders state which generation to run, when to stop and when to kill, and how the job ends. How
 * ranks are stopped (signals, grace, leftovers) is the supervisor's business. */
#ifndef DDP_RENDEZVOUS_MEMBERSHIP_MEMBER_H
#define DDP_RENDEZVOUS_MEMBERSHIP_MEMBER_H

#include "lease.h"
#include "message.h"

struct co_error;
struct co_machine;
struct member; /* opaque */

#define MEMBER_STATES(X) /* name, on entry, meaning */                                             \
    X(JOINING, begin_joining, "the coordinator has not welcomed us; nothing runs on this node")    \
    X(WAITING, nothing, "the coordinator has welcomed us; nothing runs on this node")              \
    X(PARKED, nothing, "the ranks live on between two generations")                                \
    X(OPENING_STORE, open_store, "this node will have rank 0; it opens the generation's store")    \
    X(RUNNING, start_ranks, "the ranks run, or have all succeeded")                                \
    X(STOPPING, stop_ranks, "the generation ends; the ranks are given time for it")                \
    X(KILLING, kill_ranks, "the lease is over, or we were declared lost: the ranks are killed")    \
    X(ENDING, stop_ranks, "the job is over, or we leave it; the ranks are given time for it")      \
    X(ENDED, end_session, "nothing runs on this node, the end is known")

#define MEMBER_EVENTS(X) /* name, meaning */                                                       \
    X(LINK_REFUSED, "a connection to the coordinator is not possible: a retry is useless")         \
    X(WELCOME, "the coordinator knows us")                                                         \
    X(REFUSED, "the coordinator does not admit us, or has declared us lost")                       \
    X(SEALED, "we have a place in a generation")                                                   \
    X(STOP, "the generation is to be stopped")                                                     \
    X(CHECKPOINT_REQUEST, "a node waits for a checkpoint to join")                                 \
    X(VERDICT, "the job is over")                                                                  \
    X(STORE_OPEN, "the generation's store is open")                                                \
    X(RANK_FAILED, "a rank failed, or the generation lacks something that it needs")               \
    X(RANKS_SUCCEEDED, "all ranks succeeded")                                                      \
    X(RANKS_STOPPED, "nothing of the generation runs on this node any more")                       \
    X(RANKS_PARKED, "the ranks have left the generation, and wait for the next one; or fewer do")  \
    X(RANKS_SAVED, "the ranks have saved their state")                                             \
    X(RESTART, "all ranks of the job are to be started again")                                     \
    X(LEAVE, "this node is to leave the job")                                                      \
    X(END_JOB, "the whole job is to end")                                                          \
    X(FIT, "a check found this node healthy, or it is checked no more")                            \
    X(UNFIT, "a check found that this node is not healthy")                                        \
    X(LEASE_EXPIRED, "the lease is over")                                                          \
    X(TIMED_OUT, "the time to find the coordinator is over")

enum member_state {
#define X(name, on_entry, meaning) MEMBER_##name,
    MEMBER_STATES(X)
#undef X
        MEMBER_N_STATES
};

enum member_event_type { /* of the table; what the caller feeds is an enum member_input_type */
#define X(name, meaning) MEMBER_EV_##name,
                         MEMBER_EVENTS(X)
#undef X
                             MEMBER_N_EVENTS
};

enum member_input_type {
    MEMBER_LINK_UP,     /* the connection asked for is there, its token proved. `local`: the roster
                           is in this process, and stays there: no lease. A KEEP_ALIVE is only
                           a question what is waited for */
    MEMBER_LINK_DOWN,   /* it ended or could not be made: `text` has the reason; `final`: a retry is
                           useless, with `exit_code`; `rejected`: by the other end (wrong
                           token), as any process there can do, with `exit_code` */
    MEMBER_MESSAGE,     /* `message` came on it */
    MEMBER_STORE_OPEN,  /* at host:port; answer to open_store */
    MEMBER_RANK_FAILED, /* `rank` (global), `exit_code`, `text`, and what else is known: `final` to
                           `recovers`; also for the store that cannot be opened. A second one
                           corrects the first: its cause was found */
    MEMBER_RANKS_SUCCEEDED, /* each rank ended with 0 */
    /* Answer to stop_ranks or kill_ranks, at once if nothing runs: no rank, no leftover, and the
     * store is closed. All ranks begin again if a generation follows. `hangs`: some processes
     * outlived SIGKILL. */
    MEMBER_RANKS_STOPPED,
    MEMBER_RANKS_PARKED, /* the other answer to stop_ranks, where may_park is set: they live on, but
                           take part in nothing until start_ranks. The store is closed. `n_ranks` of
                           this node are for the next generation: fewer than it began with where
                           some have died and are not replaced. Again when that number changes */
    MEMBER_RANKS_SAVED,  /* every rank has reported it */
    MEMBER_RESTART, /* a request to start all ranks of the job again: stop_ranks follows when the
                       roster has received it, without may_park. In RUNNING only */
    MEMBER_FIT,     /* hello.checks: a check has found this node healthy. Checks begin in JOINING,
                       and again in WAITING and PARKED after each generation */
    MEMBER_UNFIT,   /* ... or not: `text` has the reason, as in struct message_health. Parked ranks
                       are stopped. Both may change while nothing runs */
    MEMBER_LEAVE,   /* this node leaves: a signal, or it cannot work any more. `exit_code`,
                       `signal`, `text` */
    MEMBER_END_JOB, /* the whole job ends: a signal to the ddprun that started the others, or
                          --timeout. As LEAVE */
    /* A back end that replaces its coordinator was asked at asked_ms, and reports that no process
     * has the roster. The lease continues, as if that were the answer to a keep-alive, for at most
     * failover_timeout_ms after the first such report. Feed this input again for each report. */
    MEMBER_COORDINATOR_LOST,
    /* `needed`: whether the spawner has to kill the ranks when the lease is over. It has not while
     * the roster at the other end of the link is in this process, and no other process can take
     * over: ddprun may then be suspended for any time. As long as the link lasts; needed at first.
     * `leased` follows if it is needed. */
    MEMBER_LEASE,
    /* The spawner has suspended the ranks, since the coordinator's host is silent (heartbeat.h):
     * `resume` follows when the coordinator has answered a keep-alive that was sent since. Again if
     * that was too late. */
    MEMBER_SUSPENDED,
    MEMBER_TIME /* member_deadline_ms() has come. Feed all that was received before */
};

struct member_input {
    enum member_input_type type;
    uint64_t now_ms;
    const struct message *message; /* borrowed for the call */
    const char *text;              /* not NULL for the inputs above that name it; borrowed for the
                                      call */
    const char *host;
    uint16_t port;
    bool agent_store, relayed;
    int32_t rank;
    int exit_code;
    int signal;
    uint32_t n_ranks;  /* 1 .. the number in the HELLO */
    uint64_t steps;    /* RANKS_STOPPED, RANKS_PARKED: as in STOPPED */
    uint64_t asked_ms; /* COORDINATOR_LOST; not later than now_ms */
    bool local, final, rejected, progressed, consequence, recovers, hangs, needed;
};

/* What the caller has to do now; false, zero: nothing. In this order. */
struct member_orders {
    bool set_lease;    /* pass it to the spawner: without a newer order it kills all at
                          lease_end_ms */
    bool leased;       /* answer to MEMBER_LEASE, `needed`: the spawner has a lease that runs, once
                          set_lease is carried out, or nothing runs */
    bool resume;       /* answer to MEMBER_SUSPENDED: ask the spawner, with resume_from_ms */
    size_t n_messages; /* to send on the link */
    bool disconnect;   /* close the link when they are out; feed nothing more of it, no LINK_DOWN
                            either */
    bool connect;      /* make a link, feed LINK_UP or LINK_DOWN. One attempt; with a bound */
    bool open_store;   /* of member_get_place(); let member_get_addresses() in; feed STORE_OPEN,
                            or RANK_FAILED with `final` */
    bool start_ranks;  /* the ranks of member_get_place(): as many as it has; parked ones continue
                          in it. It has more than were reported last if that report came too late */
    bool request_checkpoint; /* ask the ranks to save, and feed RANKS_SAVED when all have */
    bool stop_ranks; /* in the time that `why` deserves; close the store; feed RANKS_STOPPED.
                          Asked for again when there is another `why` */
    bool may_park;   /* stop_ranks: or take them out of the generation, and feed RANKS_PARKED */
    bool kill_ranks; /* now; the same */
    bool ended;      /* see member_get_end() */
    const struct message *messages; /* the member's, valid until its next step */
    uint64_t lease_end_ms;          /* CO_NEVER_MS: do not kill any more */
    uint64_t resume_from_ms;        /* when the keep-alive that was answered was sent */
    enum message_why why;           /* of stop_ranks */
};

struct member_limits {
    uint64_t start_timeout_ms;    /* to find the roster */
    uint64_t failover_timeout_ms; /* see MEMBER_COORDINATOR_LOST */
    uint64_t seek_ms;  /* since the roster was heard last: a member whose lease is over, and whose
                         ranks are dead, looks for one so long before it ends, if another process
                         can take the roster's place; 0: it ends at once */
    bool may_be_spare; /* more nodes than the job needs are started, on purpose */
    bool awaits_rank; /* a process with this --node-rank that the roster still knows ends by itself:
                          the one before on this node */
};

/* How it ended for this node. */
struct member_end {
    int exit_code;
    int signal;     /* 0; else the signal that made this ddprun leave, of which it dies */
    bool by_roster; /* from a VERDICT: all other nodes end with the same status, except those that
                       were not needed */
    bool took_part; /* it had a place in a generation once */
    enum message_outcome outcome;
    int32_t rank;     /* of RANK_FAILED */
    const char *node; /* lent by the member */
    const char *text;
    int64_t n_restarts; /* number of restarts charged to --max-restarts; -1: no VERDICT has
                           arrived */
};

/* What this node has been given. */
struct member_place {
    uint32_t generation;
    struct message_place place; /* host, port, agent_store also at the leader, once it is open */
};

#define MEMBER_EXIT_MISSING  69 /* the roster was not found */
#define MEMBER_EXIT_INTERNAL 70 /* processes that outlive SIGKILL */
#define MEMBER_EXIT_TOO_FEW  75 /* the roster is lost */
#define MEMBER_EXIT_CONFIG   78 /* it refuses for good */

#define MEMBER_QUICK_MS    10   /* between attempts to make a link, for LEASE_RETURN_MS, at most */
#define MEMBER_SOON_MS     20   /* then, */
#define MEMBER_SOON_FOR_MS 1000 /* until so long after the first one */
#define MEMBER_AGAIN_MS    500  /* later, at most */

/* A node that only rejections answer gives up after so long. A shorter time would let any process
 * that has the endpoint's port for a moment end the nodes that join; a wrong token need not wait
 * for the start timeout. */
#define MEMBER_REJECTED_MS 10000

/* hello     copied, texts and addresses too; within the bounds of message.h; `sent_ms` and
 *           `resumes` are the member's to fill in
 * daemon    what to call the roster's end in messages: "node1:29400"; copied
 * returns   0, -ENOMEM */
int member_create(const struct member_limits *limits, const struct message_hello *hello,
                  const char *daemon, struct member **ret_member, struct co_error *err);
void member_destroy(struct member *m); /* NULL is fine */

/* Begin to look for the roster. */
void member_begin(struct member *m, uint64_t now_ms, struct member_orders *ret);

/* Feed one input. A message that makes no sense here and now came late, and is ignored. */
void member_step(struct member *m, const struct member_input *in, struct member_orders *ret);

uint64_t member_deadline_ms(const struct member *m); /* CO_NEVER_MS: feed no TIME */
enum member_state member_get_state(const struct member *m);

/* Of the newest generation; generation MESSAGE_NO_GENERATION: none yet. */
const struct member_place *member_get_place(const struct member *m);

/* On the leader: the addresses that the store admits. Complete when the store is to be opened. */
const struct message_address *member_get_addresses(const struct member *m, uint32_t *ret_n);

/* What the roster waits for, according to its last message; the member owns the names. NULL:
 * unknown. */
const struct message_progress *member_get_progress(const struct member *m);

/* A node that runs nothing looks for the roster: until when. CO_NEVER_MS: it does not. */
uint64_t member_seek_end_ms(const struct member *m);

/* Which of our terms are not the job's, or "": "--max-restarts, --admit-at". */
const char *member_get_note(const struct member *m);

/* Why the last STOP came, or "". */
const char *member_stop_text(const struct member *m);

/* The roster has decided what ends the generation, as far as it is known by now. */
bool member_knows_stop(const struct member *m);

const struct member_end *member_get_end(const struct member *m); /* in ENDED */

const char *member_state_name(enum member_state state);

/* The table, for its drawing and its tests. */
extern const struct co_machine member_machine;

#endif
