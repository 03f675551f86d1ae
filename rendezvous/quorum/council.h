/* council.h - one process of a job that takes part in the quorum: when it votes, claims, decides,
 * renews, changes the voters, and gives up.
 *
 * Pure. Around voter.h and proposer.h; docs/design/quorum.md has the rules. The caller carries
 * ballots and feeds the time; it carries out the orders: make a roster, doubt it, drop it, follow
 * that of another process. A roster in this process begins nothing before the record of it is
 * committed, and renews leases of nodes only until certain_until_ms.
 *
 * A process begins as an outsider: it knows no record. It becomes the first voter and the
 * coordinator by council_found(); or it offers itself to the coordinator, which makes it a voter
 * by writing a record that names it. */
#ifndef DDP_RENDEZVOUS_QUORUM_COUNCIL_H
#define DDP_RENDEZVOUS_QUORUM_COUNCIL_H

#include "ballot.h"
#include "proposer.h"

enum {
    COUNCIL_MAX_OFFERS = 8, /* that a coordinator keeps; more are not needed */
    COUNCIL_KEPT = 4,       /* decisions: of the voter, and of the proposer before, now and next */
    COUNCIL_BOOK = 2 * QUORUM_MAX_ASKED,
    /* With limits.quorum.alone: so often the other voter is asked. Counted, as a process that was
     * stopped may find a time over, and answers that it has not read. */
    COUNCIL_ALONE_ASKS = 5,
    COUNCIL_UNREACHED = 5,  /* a process that offers so often, and never answers, is not reached */
    COUNCIL_APART_MS = 500, /* offers that come sooner after each other count as one: this process
                                 was stopped, or busy */
    COUNCIL_OFFERS_MS = 2500, /* it still offers: it has done so within this time */
};

struct council_limits {
    struct quorum_limits quorum;
    uint64_t doubt_ms;  /* a coordinator is certain for so long after it sent what was answered;
                           less than its lease */
    uint64_t keep_ms;   /* it renews its lease at this interval */
    uint64_t again_ms;  /* a question is repeated after this time */
    uint64_t claim_ms;  /* a claim ends after this time */
    uint64_t turn_ms;   /* each voter claims so much later than the one before it in the list */
    uint64_t deaf_ms;   /* a voter that has not answered for so long is replaced */
    uint64_t resign_ms; /* giving up in an orderly way takes so long at most */
};

/* Those of ddprun: docs/design/quorum.md. A lease of nodes is longer than a takeover. The simulator
 * searches these. */
extern const struct council_limits council_usual_limits;

/* The same where a host that does not answer for host_ms is lost: a coordinator acts for a shorter
 * time, and its voters obey it as long as usual unless its host is silent. */
struct council_limits council_limits_with(uint64_t host_ms);
uint64_t council_host_margin_ms(uint64_t host_ms);

/* Of two voters one takes over alone. The same on all processes of a job. */
void council_limits_set_alone(struct council_limits *l);

enum council_state {
    COUNCIL_OUTSIDE,   /* it knows no record */
    COUNCIL_FOLLOWING, /* it votes, or has voted; another process coordinates, or none */
    COUNCIL_CLAIMING,  /* it asks the voters to obey it */
    COUNCIL_LEADING,   /* it coordinates, by its own clock */
    COUNCIL_DOUBTING,  /* it has a roster, and its lease is over: it claims again */
    COUNCIL_RESIGNING, /* it writes its last record, and frees its voters */
    COUNCIL_ENDED,     /* it asks nothing any more; it still votes */
};

/* Does the spawner of this process' node have to kill the ranks when the lease of the node is over?
 * Where nothing can be decided without this process, no other one relies on that. */
enum council_lease {
    COUNCIL_LEASE_ON,      /* it does */
    COUNCIL_LEASE_OFF,     /* it need not: the voter here carries each list that may count, and
                              obeys no other process */
    COUNCIL_LEASE_AWAITED, /* as OFF, and a list is to be written that others carry without this
                              process: council_note_leased() has to come before */
};

/* What the caller is to do; false: nothing. In this order. */
struct council_orders {
    bool give_up; /* the roster here is not the job's any more: drop it */
    bool doubt;   /* it may not be the job's any more */
    bool certain; /* it is, until certain_until_ms: then, without another order, it is in doubt */
    uint64_t certain_until_ms;
    bool make;     /* be the roster ... */
    bool has_past; /* ... and continue from `past` */
    struct elector_record past;
    bool committed; /* the record that was given last is stored */
    bool follow;    /* the roster is at `leader` */
    struct elector_address leader;
    bool ask;    /* send council_question() to those that council_asked() names, now */
    bool read;   /* send READ to those that council_offers() names */
    bool repeat; /* send council_record() to `missed`: that voter has missed it */
    struct ballot_voter missed;
    bool voters; /* the list of voters, or an address of one, has changed */
    bool merges; /* with give_up: another process has taken over alone, and decided what the roster
                    here does not know: what this one has begun since then does not count */
    bool lease;  /* council_get_lease() has changed */
    bool over;   /* it has resigned */
};

struct council_offer {
    struct ballot_voter who; /* id 0: a free place */
    uint32_t order;
    uint64_t heard_ms; /* its last answer; 0: none yet */
    uint32_t n_offers; /* apart from each other */
    uint64_t last_ms;  /* the last one that counted */
};

struct council_decision {
    uint64_t value; /* 0: a free place */
    struct elector_record record;
};

/* Plain data; only the functions below write it. */
struct council {
    struct council_limits limits;
    uint64_t id, job;
    struct elector_address own;
    bool stands;
    struct quorum_voter voter;
    struct quorum_proposer proposer;
    struct quorum_ask asking; /* the question that was sent last */
    uint32_t n_asks;          /* of the present question, and its repetitions */
    uint64_t asks_at_ms, keeps_at_ms, claims_at_ms, gives_up_at_ms, reads_at_ms;

    enum council_lease lease;
    bool has_roster, doubts;
    uint64_t known, asked; /* values: of the record that the roster here knows, and the one that it
                              has tried to write */
    bool commit_waits;
    struct elector_record committing;

    uint64_t silent; /* the process whose host is silent; 0: none */
    bool resigns, has_resigned, is_over;
    bool has_last;
    struct elector_record last;
    uint64_t resign_until_ms;

    struct council_offer offers[COUNCIL_MAX_OFFERS];
    struct council_decision kept[COUNCIL_KEPT];
    struct ballot_voter book[COUNCIL_BOOK]; /* addresses of processes */
    uint32_t book_turn, stray_turn;
    struct council_orders orders; /* of the present step */
};

/* id       not 0, and of this run of this process only
 * own      where other processes reach it
 * stands   it may coordinate */
void council_init(struct council *c, const struct council_limits *limits, uint64_t id,
                  const struct elector_address *own, bool stands);

/* Begin the job, as its only voter. job: not 0 */
void council_found(struct council *c, uint64_t job, uint64_t now_ms, struct council_orders *ret);

/* A ballot has come. answer: to a question; not written for a VOTE */
void council_take(struct council *c, const struct ballot *b, uint64_t now_ms, struct ballot *answer,
                  struct council_orders *ret);

/* council_deadline_ms() has come. */
void council_time(struct council *c, uint64_t now_ms, struct council_orders *ret);
uint64_t council_deadline_ms(const struct council *c); /* CO_NEVER_MS: feed no time */

/* With a roster: write this record; a newer one takes the place of one that waits. */
void council_commit(struct council *c, const struct elector_record *record, uint64_t now_ms,
                    struct council_orders *ret);

/* Stop coordinating, or voting. `over` follows, at once or within resign_ms.
 * last   with a roster: what the next coordinator is to find; NULL: none is to follow */
void council_resign(struct council *c, const struct elector_record *last, uint64_t now_ms,
                    struct council_orders *ret);

/* The process that listened there has certainly ended. If it is the coordinator, its voter here
 * may obey another one at once. */
void council_note_ended(struct council *c, const struct elector_address *at, uint64_t now_ms,
                        struct council_orders *ret);

/* The host of the coordinator that this process obeys does not answer, or it does again. Its voter
 * here may obey another one as soon as the lease is over. */
void council_note_silent(struct council *c, bool is_silent, uint64_t now_ms,
                         struct council_orders *ret);

/* What holds for the node of this process. Obey it as it is when it is obeyed: an older one means
 * nothing. */
enum council_lease council_get_lease(const struct council *c);

/* AWAITED: the spawner has the lease of this process' node. Nothing else before. */
void council_note_leased(struct council *c, uint64_t now_ms, struct council_orders *ret);

/* The present question, for an order to ask. */
void council_question(const struct council *c, struct ballot *ret);

/* The newest record once more, for an order to repeat. */
void council_record(const struct council *c, struct ballot *ret);

/* Which processes get the present question, this one not among them.
 * returns   how many, at most QUORUM_MAX_ASKED */
uint32_t council_asked(const struct council *c, struct ballot_voter ret[QUORUM_MAX_ASKED]);

/* Those that have offered to vote, and do not. returns how many, at most COUNCIL_MAX_OFFERS */
uint32_t council_offers(const struct council *c, struct ballot_voter ret[COUNCIL_MAX_OFFERS]);

/* Those that have offered to vote COUNCIL_UNREACHED times, and have never answered. returns how
 * many, at most COUNCIL_MAX_OFFERS */
uint32_t council_unreached(const struct council *c, uint64_t now_ms,
                           struct ballot_voter ret[COUNCIL_MAX_OFFERS]);

/* The other voters of the newest record that is known here: they know which process coordinates.
 * returns   as above */
uint32_t council_voters(const struct council *c, struct ballot_voter ret[QUORUM_MAX_ASKED]);

/* Where a process listens that has voted, and does not vote now: with limits.quorum.alone it may
 * coordinate another part of the job. Each call names another one, in turn.
 * returns   whether there is one */
bool council_next_stray(struct council *c, struct elector_address *ret);

enum council_state council_get_state(const struct council *c, uint64_t now_ms);

/* Where the other process listens that this one obeys, or has obeyed last.
 * returns   whether it knows one */
bool council_leader(const struct council *c, struct elector_address *ret);

/* Does the voter here obey a coordinator now, that of the newest record that it knows? */
bool council_obeys(const struct council *c, uint64_t now_ms);

/* Could another process take over from this one? */
bool council_has_successor(const struct council *c, uint64_t now_ms);

#endif
