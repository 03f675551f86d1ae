/* voter.h - one of the few processes that store the record of a job and promise to obey one
 * coordinator at a time.
 *
 * Pure. A question and the time go in, the answer comes out; all is in memory, since a process that
 * was restarted is another voter. Questions may be lost, late, repeated, and in any order. A
 * promise counts from when the question was *received*; the proposer counts its own time from when
 * it sent it, which is earlier, and for a shorter time: so it stops before the voter is free. */
#ifndef DDP_RENDEZVOUS_QUORUM_VOTER_H
#define DDP_RENDEZVOUS_QUORUM_VOTER_H

#include "quorum.h"

enum quorum_ask_type {
    QUORUM_CLAIM, /* promise to obey no lower term, and report the newest record */
    QUORUM_WRITE, /* store `record`, unless a higher term was promised */
    QUORUM_KEEP,  /* the record of `term` and `index` is still the newest; `settled`: it is */
};

struct quorum_ask {
    enum quorum_ask_type type;
    struct quorum_term term;
    uint64_t index;              /* KEEP */
    bool settled;                /* KEEP */
    uint64_t asked_ms;           /* the proposer's clock: which of several KEEPs it is */
    struct quorum_record record; /* WRITE: of `term` */
};

struct quorum_vote {
    bool yes;
    struct quorum_term promised;
    uint64_t left_ms;            /* no, to CLAIM: so long the promise to another one lasts */
    struct quorum_record record; /* the newest; voters.n 0: none */
};

struct quorum_limits {
    uint64_t lease_ms;  /* a coordinator may act for so long after it sent what was answered */
    uint64_t margin_ms; /* a voter obeys it for lease_ms and margin_ms after it heard it ... */
    uint64_t stay_ms;   /* ... and so much longer, unless its host is silent */
    uint64_t claim_ms;  /* and a candidate for so long, or until one with a higher term claims */
    bool alone;         /* of two voters one takes over without an answer of the other one. Both may
                           do so, where neither hears the other */
};

struct quorum_voter {
    struct quorum_limits limits;
    uint64_t id;
    struct quorum_term promised;
    uint64_t until_ms; /* no other one is promised anything before ... */
    bool is_claimed;   /* ... but a higher term is, since only a candidate was promised it */
    uint64_t heard_ms; /* the last WRITE or KEEP */
    bool is_reserved;  /* it obeys no process but that of `promised`, whatever the time */
    struct quorum_record record;
};

/* record   that it begins with; NULL: none, as one has that is to be written to it */
void quorum_voter_init(struct quorum_voter *v, const struct quorum_limits *limits, uint64_t id,
                       const struct quorum_record *record);

void quorum_voter_ask(struct quorum_voter *v, const struct quorum_ask *ask, uint64_t now_ms,
                      struct quorum_vote *ret);

/* Obey no other process than the one that was promised last, until this is taken back. Also a voter
 * that is free. */
void quorum_voter_reserve(struct quorum_voter *v, bool is_reserved);

/* The host of the process that it obeys is silent: others may claim when the lease of that process
 * is over. returns when; 0: now, and they may */
uint64_t quorum_voter_free_silent(struct quorum_voter *v, uint64_t now_ms);

/* Store a record that was not written to this voter, if it is a newer one, and obey no lower term.
 * A process has taken over alone (limits.alone), without this voter. */
void quorum_voter_adopt(struct quorum_voter *v, const struct quorum_record *record);

/* The process that it obeys has certainly ended, or has given up: others may claim at once. It
 * still obeys no lower term. */
void quorum_voter_free(struct quorum_voter *v);

#endif
