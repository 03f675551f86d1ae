/* council_lead.c - to claim, to coordinate, to renew, to resign.
 *
 * Read council_go_on() first: it looks at what is due, and asks. An answer comes to council_hear(),
 * which looks at what the proposer made of it. This process' own voter is asked on the spot. */
#include "council_priv.h"

#include "common/clock.h"
#include "common/hash.h"

static void note_carried(struct council *c, enum quorum_phase was, uint64_t now_ms);

/* --- asking --- */

void council_hear(struct council *c, const struct quorum_ask *ask, uint64_t from,
                  const struct quorum_vote *vote, uint64_t now_ms)
{
    struct quorum_proposer *p = &c->proposer;
    const enum quorum_phase was = p->phase;
    const uint64_t end_ms = p->end_ms;
    quorum_proposer_hear(p, ask, from, vote);
    if (p->phase == QUORUM_LEADING && (was != QUORUM_LEADING || p->end_ms != end_ms))
        note_carried(c, was, now_ms);
    if (p->phase != was)
        c->asks_at_ms = now_ms;
}

static bool has_question(const struct council *c)
{
    struct quorum_ask ask;
    return quorum_proposer_question(&c->proposer, &ask);
}

/* This process' own voter answers at once. If it carries the record alone, a claim is over in two
 * rounds, and the others still get the last question: they are to know the record. */
static void ask_all(struct council *c, uint64_t now_ms)
{
    struct quorum_vote vote;
    struct quorum_ask ask;
    c->n_asks++;
    for (int i = 0; i < 3 && quorum_proposer_question(&c->proposer, &ask); i++) {
        const enum quorum_phase was = c->proposer.phase;
        c->asking = ask;
        c->orders.ask = true;
        if (quorum_proposer_asks(&c->proposer, c->id)) {
            quorum_voter_ask(&c->voter, &ask, now_ms, &vote);
            council_hear(c, &ask, c->id, &vote, now_ms);
        }
        if (c->proposer.phase == was)
            break;
    }
    c->asks_at_ms = now_ms + c->limits.again_ms;
}

/* --- to lead --- */

/* This process' roster does not know what was decided since: it drops it, and makes another one. */
static void make_roster(struct council *c)
{
    const struct elector_record *past = council_find_decision(c, c->proposer.newest.value);
    c->orders.give_up |= c->has_roster;
    c->has_roster = true;
    c->commit_waits = false;
    c->known = c->asked = c->proposer.newest.value;
    c->orders.make = true;
    c->orders.has_past = past != NULL;
    if (past != NULL)
        c->orders.past = *past;
}

/* What was to be written may have been stored, or not. */
static void continue_roster(struct council *c)
{
    if (c->proposer.newest.value == c->known)
        c->commit_waits |= c->asked != c->known;
    else
        c->orders.committed = !c->commit_waits;
    c->known = c->asked = c->proposer.newest.value;
}

static void begin_to_lead(struct council *c, uint64_t now_ms)
{
    const uint64_t value = c->proposer.newest.value;
    council_expect_voters(c, now_ms);
    c->keeps_at_ms = c->reads_at_ms = now_ms;
    c->orders.voters = true;
    if (c->has_roster && (value == c->known || value == c->asked))
        continue_roster(c);
    else
        make_roster(c);
}

static void note_written(struct council *c, uint64_t now_ms)
{
    if (c->proposer.newest.value != c->known) {
        c->known = c->proposer.newest.value;
        c->orders.committed = !c->commit_waits;
    }
    if (!c->proposer.newest.settled) {
        c->keeps_at_ms = now_ms;
        c->orders.voters = true;
    }
}

/* Voters that carry the record have answered. An answer that comes after the lease, since this
 * process was stopped, counts for nothing: another one may have decided since. */
static void note_carried(struct council *c, enum quorum_phase was, uint64_t now_ms)
{
    if (!council_leads(c, now_ms))
        return;
    if (was == QUORUM_REWRITING)
        begin_to_lead(c, now_ms);
    else if (was == QUORUM_WRITING)
        note_written(c, now_ms);
    const uint64_t until_ms = council_certain_until_ms(c);
    if (now_ms < until_ms) {
        c->doubts = false;
        c->orders.certain = true;
        c->orders.certain_until_ms = until_ms;
    }
}

static bool begin_write(struct council *c, uint64_t value, const struct quorum_list *voters,
                        uint64_t now_ms)
{
    if (!quorum_proposer_write(&c->proposer, value, voters, now_ms))
        return false;
    c->asked = value;
    ask_all(c, now_ms);
    return true;
}

/* A number that no other write of any process has. */
static uint64_t new_value(const struct council *c)
{
    const struct quorum_term *t = &c->proposer.term;
    uint64_t value = co_hash_number(CO_HASH_START, c->job);
    value = co_hash_number(co_hash_number(value, t->owner), t->number);
    value = co_hash_number(value, c->proposer.newest.index + 1);
    return value != 0 ? value : 1;
}

static void begin_commit(struct council *c, const struct elector_record *record,
                         const struct quorum_list *voters, uint64_t now_ms)
{
    const uint64_t value = new_value(c);
    const struct quorum_list list = *voters;
    council_keep_decision(c, value, record);
    begin_write(c, value, &list, now_ms);
}

/* One that is not answered yet is repeated for a while: its answers would not count for another. */
static void keep_on(struct council *c, uint64_t now_ms)
{
    const uint64_t until_ms = c->proposer.asked_ms + c->limits.quorum.lease_ms / 2;
    if (now_ms < c->keeps_at_ms || (c->proposer.keeps && now_ms < until_ms))
        return;
    c->keeps_at_ms = now_ms + c->limits.keep_ms;
    quorum_proposer_keep(&c->proposer, now_ms);
    ask_all(c, now_ms);
}

/* --- to resign --- */

static void end_resigning(struct council *c)
{
    quorum_proposer_give_up(&c->proposer);
    c->is_over = c->orders.over = true;
}

static struct quorum_list others_of(const struct council *c)
{
    const struct quorum_list *l = &c->proposer.newest.voters;
    struct quorum_list others = {0};
    for (uint32_t i = 0; i < l->n; i++)
        if (l->ids[i] != c->id)
            others.ids[others.n++] = l->ids[i];
    return others;
}

/* The last record names only other voters. When that is settled they are freed. */
static void resign_on(struct council *c, uint64_t now_ms)
{
    const struct quorum_list others = others_of(c);
    if (!c->proposer.newest.settled) {
        keep_on(c, now_ms);
    } else if (c->has_resigned) {
        c->orders.ask = true;
        end_resigning(c);
    } else if (others.n == 0) {
        end_resigning(c);
    } else {
        c->has_resigned = true;
        begin_commit(c, &c->last, &others, now_ms);
    }
}

/* --- what a coordinator does --- */

static void read_offers(struct council *c, uint64_t now_ms)
{
    if (now_ms < c->reads_at_ms)
        return;
    c->reads_at_ms = now_ms + c->limits.keep_ms;
    c->orders.read = true;
}

/* --- the lease of this process' node --- */

void council_set_lease(struct council *c, enum council_lease lease)
{
    c->orders.lease |= c->lease != lease;
    c->lease = lease;
    quorum_voter_reserve(&c->voter, lease != COUNCIL_LEASE_ON);
}

/* One voter, or the first of two: no set carries the list without it, unless the other one of two
 * takes over alone. */
static bool carries_alone(const struct council *c, const struct quorum_list *l)
{
    const struct quorum_set self = {.n = 1, .ids = {c->id}};
    return quorum_carries(&self, l) && !c->limits.quorum.alone;
}

/* Others decide with this list, also without this process: the lease comes first. */
static bool may_write(struct council *c, const struct quorum_list *voters)
{
    if (c->lease == COUNCIL_LEASE_ON || carries_alone(c, voters))
        return true;
    council_set_lease(c, COUNCIL_LEASE_AWAITED);
    return false;
}

/* The voters of the list before do not count any more. */
static void end_lease(struct council *c)
{
    const struct quorum_record *newest = &c->proposer.newest;
    if (c->lease == COUNCIL_LEASE_ON && newest->settled && carries_alone(c, &newest->voters) &&
        quorum_term_compare(&c->voter.promised, &c->proposer.term) == 0)
        council_set_lease(c, COUNCIL_LEASE_OFF);
}

static void lead_on(struct council *c, uint64_t now_ms)
{
    if (c->proposer.phase != QUORUM_LEADING)
        return;
    if (c->resigns) {
        resign_on(c, now_ms);
        return;
    }
    read_offers(c, now_ms);
    if (c->commit_waits) {
        c->commit_waits = false;
        begin_commit(c, &c->committing, &c->proposer.newest.voters, now_ms);
        return;
    }
    const struct quorum_list voters = council_choose_voters(c, now_ms);
    const bool changes = !quorum_list_is_same(&voters, &c->proposer.newest.voters);
    if (!changes)
        end_lease(c);
    if (!changes || !c->proposer.newest.settled || !may_write(c, &voters) ||
        !begin_write(c, c->proposer.newest.value, &voters, now_ms))
        keep_on(c, now_ms);
}

/* --- to claim --- */

/* So much later than those before it in the list: each claims in another rhythm, so that one of
 * them finds the others free. */
static uint64_t turn_ms(const struct council *c)
{
    const struct quorum_list *l = &c->voter.record.voters;
    uint32_t at = 0;
    while (at < l->n && l->ids[at] != c->id)
        at++;
    return at * c->limits.turn_ms;
}

/* The coordinator is gone for good, and does not claim. */
void council_take_turn(struct council *c, uint64_t now_ms)
{
    const struct quorum_record *own = &c->voter.record;
    const bool is_first = own->voters.n > 0 && own->voters.ids[0] == own->term.owner;
    c->claims_at_ms = now_ms + turn_ms(c) - (is_first && turn_ms(c) > 0 ? c->limits.turn_ms : 0);
}

/* One that does not stand still takes over from a coordinator that has resigned: the last record of
 * that one does not name it any more. */
static bool may_claim(const struct council *c)
{
    const struct quorum_record *own = &c->voter.record;
    return !c->resigns && quorum_list_has(&own->voters, c->id) &&
           (c->stands || own->term.owner == c->id ||
            !quorum_list_has(&own->voters, own->term.owner));
}

static void claim(struct council *c, uint64_t now_ms)
{
    struct quorum_proposer *p = &c->proposer;
    if (quorum_record_compare(&c->voter.record, &p->newest) > 0)
        p->newest = c->voter.record;
    if (quorum_term_compare(&c->voter.promised, &p->highest) > 0)
        p->highest = c->voter.promised;
    quorum_proposer_claim(p, now_ms);
    c->n_asks = 0;
    c->gives_up_at_ms = now_ms + c->limits.claim_ms;
    c->claims_at_ms = c->gives_up_at_ms + c->limits.turn_ms + turn_ms(c);
    ask_all(c, now_ms);
}

static bool is_bound(const struct council *c, uint64_t now_ms)
{
    return now_ms < c->voter.until_ms;
}

static void stand(struct council *c, uint64_t now_ms)
{
    const bool by_self = c->voter.promised.owner == c->id;
    if (!may_claim(c)) {
        c->claims_at_ms = CO_NEVER_MS;
        return;
    }
    if (c->proposer.phase == QUORUM_OUTBID && by_self && is_bound(c, now_ms))
        c->claims_at_ms = now_ms;
    else if (is_bound(c, now_ms))
        c->claims_at_ms = c->voter.until_ms + turn_ms(c);
    else if (c->claims_at_ms == CO_NEVER_MS)
        c->claims_at_ms = now_ms + turn_ms(c);
    if (now_ms >= c->claims_at_ms)
        claim(c, now_ms);
}

/* --- all together --- */

void council_step_down(struct council *c)
{
    c->orders.give_up |= c->has_roster;
    c->orders.committed = c->orders.certain = c->orders.make = false;
    c->has_roster = c->commit_waits = c->doubts = false;
    council_set_lease(c, COUNCIL_LEASE_ON);
    quorum_proposer_give_up(&c->proposer);
    if (c->resigns)
        c->is_over = c->orders.over = true;
}

static bool is_claiming(const struct council *c)
{
    return c->proposer.phase == QUORUM_CLAIMING || c->proposer.phase == QUORUM_REWRITING;
}

/* What the own voter has promised to this process is of no use any more. Another candidate may have
 * it, in the pause before the next claim. */
static void give_up(struct council *c)
{
    if (c->proposer.phase == QUORUM_IDLE)
        return;
    quorum_proposer_give_up(&c->proposer);
    if (c->voter.promised.owner == c->id)
        quorum_voter_free(&c->voter);
}

static void lapse(struct council *c, uint64_t now_ms)
{
    if (c->has_roster && !c->doubts && now_ms >= council_certain_until_ms(c))
        c->doubts = c->orders.doubt = true;
    if (!council_leads(c, now_ms) && (!is_claiming(c) || now_ms >= c->gives_up_at_ms))
        give_up(c);
}

uint64_t council_silence_ends_ms(const struct council *c)
{
    const struct quorum_limits *l = &c->voter.limits;
    if (c->silent == 0 || c->silent != c->voter.promised.owner || c->voter.until_ms == 0)
        return CO_NEVER_MS;
    return c->voter.heard_ms + l->lease_ms + l->margin_ms;
}

static void free_from_silent(struct council *c, uint64_t now_ms)
{
    if (now_ms < council_silence_ends_ms(c))
        return;
    c->silent = 0;
    if (now_ms < c->voter.until_ms && quorum_voter_free_silent(&c->voter, now_ms) == 0)
        council_take_turn(c, now_ms);
}

/* Some voters have stored the record of this candidate, and others have promised a higher term: it
 * may be that no process has enough of them, and all wait. */
static bool is_crossed(const struct council *c)
{
    const struct quorum_proposer *p = &c->proposer;
    return p->phase == QUORUM_REWRITING && !p->limits.alone &&
           quorum_term_compare(&p->highest, &p->term) > 0;
}

void council_go_on(struct council *c, uint64_t now_ms)
{
    if (c->is_over)
        return;
    free_from_silent(c, now_ms);
    lapse(c, now_ms);
    if (c->resigns && (!council_leads(c, now_ms) || now_ms >= c->resign_until_ms)) {
        end_resigning(c);
        return;
    }
    if (c->proposer.phase == QUORUM_IDLE || c->proposer.phase == QUORUM_OUTBID)
        stand(c, now_ms);
    else if (!is_claiming(c))
        lead_on(c, now_ms);
    if (c->is_over || !has_question(c) || now_ms < c->asks_at_ms)
        return;
    if (is_crossed(c)) {
        claim(c, now_ms);
        return;
    }
    if (c->n_asks >= COUNCIL_ALONE_ASKS)
        quorum_proposer_stand_alone(&c->proposer, now_ms);
    ask_all(c, now_ms);
}
