/* proposer.h - asks the voters: to become the coordinator, to write a record, to stay.
 *
 * Pure. One per process that may coordinate. The caller sends proposer's question to all voters
 * that quorum_proposer_asks() names, feeds their answers, and asks again or gives up when it has
 * waited long enough: each question may be repeated at will, and an answer to an older one means
 * nothing.
 *
 * A new coordinator first writes the newest record that voters reported once more, in its own term
 * and otherwise unchanged (REWRITING): its lease counts from when voters have stored a record of
 * its term. A list of voters changes only when the last change is settled. */
#ifndef DDP_RENDEZVOUS_QUORUM_PROPOSER_H
#define DDP_RENDEZVOUS_QUORUM_PROPOSER_H

#include "voter.h"

enum quorum_phase {
    QUORUM_IDLE,      /* it asks nothing */
    QUORUM_CLAIMING,  /* it has asked for promises */
    QUORUM_REWRITING, /* they carry the newest record, which it writes again */
    QUORUM_LEADING,   /* its record is stored: it may decide, until quorum_proposer_end_ms() */
    QUORUM_WRITING,   /* LEADING, and its next record is being stored */
    QUORUM_OUTBID,    /* LEADING, and a voter has promised to obey a higher term: claim again */
};

struct quorum_proposer {
    struct quorum_limits limits;
    uint64_t id;
    enum quorum_phase phase;
    struct quorum_term term;
    struct quorum_term highest;  /* that was seen */
    struct quorum_record newest; /* CLAIMING: that voters reported; later its own */
    struct quorum_record next;   /* WRITING */
    struct quorum_set yes;       /* to the present question */
    uint64_t asked_ms;           /* when that was sent first */
    uint64_t end_ms;             /* LEADING: it may act until then */
    bool keeps;                  /* LEADING: the question is KEEP */
    bool has_answer;             /* CLAIMING: another voter has answered, with yes or no */
    bool is_alone;               /* in this term the vote of the other one of two is not needed */
};

/* record   that this process' own voter has */
void quorum_proposer_init(struct quorum_proposer *p, const struct quorum_limits *limits,
                          uint64_t id, const struct quorum_record *record);

/* Ask for promises, in a term above all that were seen. From any phase: a coordinator that claims
 * again remains one until its lease is over, since its voters obey no other before. */
void quorum_proposer_claim(struct quorum_proposer *p, uint64_t now_ms);

/* The other one of two voters has been asked often enough. If it has not answered this claim, its
 * vote is not needed in this term. Nothing without limits.alone, and with more voters. */
void quorum_proposer_stand_alone(struct quorum_proposer *p, uint64_t now_ms);

/* Ask nothing more: a claim that takes too long, or a lease that is over, would only keep voters
 * from obeying another one. */
void quorum_proposer_give_up(struct quorum_proposer *p);

/* LEADING: write a value, with these voters.
 *
 * voters    the first is this process
 * returns   whether it is asked: not while another write is under way, or with other voters before
 *           the last change of them is settled */
bool quorum_proposer_write(struct quorum_proposer *p, uint64_t value,
                           const struct quorum_list *voters, uint64_t now_ms);

/* LEADING: renew, and settle what is written. Nothing in other phases. */
void quorum_proposer_keep(struct quorum_proposer *p, uint64_t now_ms);

/* The question, and whether this voter is to get it. returns whether there is one */
bool quorum_proposer_question(const struct quorum_proposer *p, struct quorum_ask *ret);
bool quorum_proposer_asks(const struct quorum_proposer *p, uint64_t id);

/* An answer to `ask`. */
void quorum_proposer_hear(struct quorum_proposer *p, const struct quorum_ask *ask, uint64_t from,
                          const struct quorum_vote *vote);

/* Until when this process is the coordinator, by its own clock. 0: it is not. */
uint64_t quorum_proposer_end_ms(const struct quorum_proposer *p);

#endif
