/* council_priv.h - the council's inside, for its own files. Each calls only those after it:
 *   council.c         ballots and the time: what follows from them
 *   council_lead.c    what a process does that coordinates, or wants to
 *   council_book.c    decisions and addresses that records name; processes that offer to vote */
#ifndef DDP_RENDEZVOUS_QUORUM_COUNCIL_PRIV_H
#define DDP_RENDEZVOUS_QUORUM_COUNCIL_PRIV_H

#include "council.h"

/* --- council_lead.c --- */

/* All that is due at this time. */
void council_go_on(struct council *c, uint64_t now_ms);

/* An answer to the proposer's question. */
void council_hear(struct council *c, const struct quorum_ask *ask, uint64_t from,
                  const struct quorum_vote *vote, uint64_t now_ms);

/* Another process coordinates. */
void council_step_down(struct council *c);

/* Write it in the state; the voter here is reserved unless it is ON. */
void council_set_lease(struct council *c, enum council_lease lease);

/* Claim in this process' turn, since its voter is free. */
void council_take_turn(struct council *c, uint64_t now_ms);

/* When a voter here that obeys a process whose host is silent may obey another one; CO_NEVER_MS: no
 * host is. */
uint64_t council_silence_ends_ms(const struct council *c);

static inline bool council_leads(const struct council *c, uint64_t now_ms)
{
    return now_ms < quorum_proposer_end_ms(&c->proposer);
}

/* 0: it is not. */
static inline uint64_t council_certain_until_ms(const struct council *c)
{
    const uint64_t end_ms = quorum_proposer_end_ms(&c->proposer);
    return end_ms == 0 ? 0 : end_ms - c->limits.quorum.lease_ms + c->limits.doubt_ms;
}

/* --- council_book.c --- */

void council_keep_decision(struct council *c, uint64_t value, const struct elector_record *record);
const struct elector_record *council_find_decision(const struct council *c, uint64_t value);

void council_note_address(struct council *c, uint64_t id, const struct elector_address *at);
const struct elector_address *council_find_address(const struct council *c, uint64_t id);

void council_learn(struct council *c, const struct ballot_entry *entry);
void council_fill(const struct council *c, const struct quorum_record *r, struct ballot_entry *ret);

void council_note_offer(struct council *c, const struct ballot_voter *who, uint32_t order,
                        uint64_t now_ms);
void council_note_heard(struct council *c, uint64_t id, uint64_t now_ms);
void council_drop_offer(struct council *c, uint64_t id);

/* Those that are voters were heard, as far as is known. */
void council_expect_voters(struct council *c, uint64_t now_ms);

/* This process first, then present voters that are heard, then others. */
struct quorum_list council_choose_voters(const struct council *c, uint64_t now_ms);

#endif
