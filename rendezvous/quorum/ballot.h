/* ballot.h - the messages of the quorum between processes of a job.
 *
 * Each ballot but VOTE is a question, and VOTE is the answer to it. All but READ and OFFER are the
 * questions of voter.h, with what a record stands for. */
#ifndef DDP_RENDEZVOUS_QUORUM_BALLOT_H
#define DDP_RENDEZVOUS_QUORUM_BALLOT_H

#include "voter.h"

#include "rendezvous/election/elector.h"

enum ballot_type {
    BALLOT_READ,  /* which process coordinates? */
    BALLOT_OFFER, /* the same; and the sender, which listens at `at`, is ready to vote */
    BALLOT_CLAIM,
    BALLOT_WRITE,
    BALLOT_KEEP,
    BALLOT_FREE, /* the coordinator of `term` has given up: its voters may obey another one */
    BALLOT_VOTE,
    BALLOT_N_TYPES
};

struct ballot_voter {
    uint64_t id;
    struct elector_address at;
};

/* A record, and all that belongs to it. */
struct ballot_entry {
    struct quorum_record record;
    struct elector_record decided;                /* value 0: nothing was decided yet */
    uint32_t n;                                   /* of the next: */
    struct ballot_voter voters[QUORUM_MAX_ASKED]; /* where those that the record names listen */
};

struct ballot {
    enum ballot_type type;
    uint64_t job;  /* of one beginning of a job: drawn by the process that began it; 0: unknown */
    uint64_t from; /* a process; 0: it has no voter */

    /* The question. VOTE gives it back, without `at`. */
    enum ballot_type asked; /* VOTE: its type */
    struct quorum_term term;
    uint64_t index;
    bool settled;
    uint64_t asked_ms;
    struct elector_address at; /* OFFER */
    uint32_t order;            /* OFFER: those with a lower number are preferred as voters */
    bool alone;                /* OFFER: as limits.quorum.alone of the sender's council */

    /* VOTE */
    bool yes, is_bound; /* is_bound: it obeys a coordinator now: that of `entry` */
    struct quorum_term promised;
    uint64_t left_ms;

    bool has_entry; /* WRITE; VOTE: the newest */
    struct ballot_entry entry;
};

#endif
