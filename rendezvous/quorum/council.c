/* council.c - ballots and the time, and what follows from them.
 *
 * Read council_take() first. A question goes to this process' voter, whose answer is returned; a
 * record of another coordinator makes a roster here obsolete. An answer goes to the proposer. Then,
 * as at each deadline, council_go_on() does what is due. */
#include "council.h"

#include "council_priv.h"

#include "common/clock.h"

#include <string.h>

const struct council_limits council_usual_limits = {
    .quorum = {.lease_ms = 1000, .margin_ms = 250, .claim_ms = 400},
    .doubt_ms = 600,
    .keep_ms = 200,
    .again_ms = 100,
    .claim_ms = 600,
    .turn_ms = 100,
    .deaf_ms = 1000,
    .resign_ms = 1500,
};

/* The promise ends as it usually does, where no host is silent. */
struct council_limits council_limits_with(uint64_t host_ms)
{
    struct council_limits l = council_usual_limits;
    const uint64_t usual_ms = l.quorum.lease_ms + l.quorum.margin_ms;
    l.quorum.lease_ms = l.doubt_ms = host_ms;
    l.quorum.margin_ms = council_host_margin_ms(host_ms);
    const uint64_t least_ms = l.quorum.lease_ms + l.quorum.margin_ms;
    l.quorum.stay_ms = usual_ms > least_ms ? usual_ms - least_ms : 0;
    l.keep_ms = l.again_ms = host_ms / 5;
    return l;
}

uint64_t council_host_margin_ms(uint64_t host_ms)
{
    return host_ms / 4;
}

/* The question is asked often enough before the claim ends. */
void council_limits_set_alone(struct council_limits *l)
{
    const uint64_t most_ms = l->claim_ms / (COUNCIL_ALONE_ASKS + 1);
    l->quorum.alone = true;
    if (l->again_ms > most_ms)
        l->again_ms = most_ms;
}

/* --- orders --- */

static void begin_step(struct council *c)
{
    c->orders = (struct council_orders){0};
}

static void end_step(struct council *c, uint64_t now_ms, struct council_orders *ret)
{
    council_go_on(c, now_ms);
    *ret = c->orders;
}

/* --- questions to this process --- */

static enum quorum_ask_type quorum_type(enum ballot_type type)
{
    return type == BALLOT_CLAIM ? QUORUM_CLAIM : type == BALLOT_WRITE ? QUORUM_WRITE : QUORUM_KEEP;
}

static struct quorum_ask ask_of(const struct ballot *b, enum ballot_type type)
{
    struct quorum_ask ask = {
        .type = quorum_type(type), .term = b->term, .settled = b->settled, .asked_ms = b->asked_ms};
    if (type == BALLOT_WRITE)
        ask.record.index = b->index;
    else
        ask.index = b->index;
    if (type == BALLOT_WRITE && b->has_entry)
        ask.record = b->entry.record;
    return ask;
}

/* Only the coordinator of the term itself may do that. */
static void hear_free(struct council *c, const struct ballot *b, uint64_t now_ms)
{
    if (b->from != b->term.owner || quorum_term_compare(&b->term, &c->voter.promised) != 0)
        return;
    quorum_voter_free(&c->voter);
    council_take_turn(c, now_ms);
}

static void follow(struct council *c, const struct quorum_record *r)
{
    const struct elector_address *at = council_find_address(c, r->term.owner);
    c->orders.merges |= c->limits.quorum.alone && c->has_roster && c->known != r->value;
    council_step_down(c);
    c->orders.voters = true;
    c->orders.follow = at != NULL;
    if (at != NULL)
        c->orders.leader = *at;
}

/* A record that names other processes than before, or comes from another coordinator, is news. */
static void hear_write(struct council *c, const struct ballot *b, uint64_t now_ms,
                       struct quorum_vote *ret)
{
    const struct quorum_record was = c->voter.record;
    const struct quorum_ask ask = ask_of(b, BALLOT_WRITE);
    council_learn(c, &b->entry);
    quorum_voter_ask(&c->voter, &ask, now_ms, ret);
    if (!ret->yes)
        return;
    const struct quorum_record *is = &c->voter.record;
    c->orders.voters |= !quorum_list_is_same(&was.voters, &is->voters);
    if (is->term.owner != c->id && (was.term.owner != is->term.owner || was.voters.n == 0))
        follow(c, is);
}

/* A process that belongs to no job comes to one by a record that names it, or by a claim: the
 * claimant has such a record, which this process may have missed. */
static bool may_answer(struct council *c, const struct ballot *b)
{
    const bool is_named =
        b->type == BALLOT_WRITE && b->has_entry && quorum_list_has(&b->entry.record.voters, c->id);
    if (c->job == 0 && (is_named || b->type == BALLOT_CLAIM))
        c->job = b->job;
    return c->job != 0 && b->job == c->job;
}

static void hear_question(struct council *c, const struct ballot *b, uint64_t now_ms,
                          struct quorum_vote *ret)
{
    *ret = (struct quorum_vote){.promised = c->voter.promised};
    if (b->type == BALLOT_OFFER && (b->job == 0 || b->job == c->job)) {
        if (b->alone == c->limits.quorum.alone)
            council_note_offer(c, &(struct ballot_voter){.id = b->from, .at = b->at}, b->order,
                               now_ms);
    } else if (!may_answer(c, b)) {
        return;
    } else if (b->type == BALLOT_FREE) {
        hear_free(c, b, now_ms);
    } else if (b->type == BALLOT_WRITE) {
        if (b->has_entry && quorum_term_compare(&b->entry.record.term, &b->term) == 0)
            hear_write(c, b, now_ms, ret);
    } else if (b->type == BALLOT_CLAIM || b->type == BALLOT_KEEP) {
        const struct quorum_ask ask = ask_of(b, b->type);
        quorum_voter_ask(&c->voter, &ask, now_ms, ret);
    }
}

/* A promise to a candidate does not count: the coordinator of the record may have ended. */
bool council_obeys(const struct council *c, uint64_t now_ms)
{
    return now_ms < c->voter.until_ms && c->voter.promised.owner == c->voter.record.term.owner;
}

static void answer(struct council *c, const struct ballot *b, uint64_t now_ms, struct ballot *ret)
{
    struct quorum_vote vote;
    hear_question(c, b, now_ms, &vote);
    *ret = (struct ballot){.type = BALLOT_VOTE,
                           .job = c->job,
                           .from = c->id,
                           .asked = b->type,
                           .term = b->term,
                           .index = b->index,
                           .settled = b->settled,
                           .asked_ms = b->asked_ms,
                           .yes = vote.yes,
                           .promised = vote.promised,
                           .left_ms = vote.left_ms,
                           .is_bound = council_obeys(c, now_ms),
                           .has_entry = c->voter.record.voters.n > 0};
    if (ret->has_entry)
        council_fill(c, &c->voter.record, &ret->entry);
}

/* --- answers --- */

/* Another process has been obeyed since this one led; or both lead, where one has taken over alone:
 * then the newer record is that of the job, also for the voter here. */
static void follow_newer(struct council *c, const struct quorum_record *r, uint64_t now_ms)
{
    const bool alone = c->limits.quorum.alone;
    if (!c->has_roster || (council_leads(c, now_ms) && !alone) || r->term.owner == c->id ||
        quorum_record_compare(r, &c->proposer.newest) <= 0)
        return;
    if (alone)
        quorum_voter_adopt(&c->voter, r);
    follow(c, r);
}

/* Where one of two may be alone, a process that a newer list does not name could not lead, and its
 * claims would only keep the voters of that list from being free. */
static void leave_newer(struct council *c, const struct quorum_record *r)
{
    if (c->limits.quorum.alone && !c->has_roster && !quorum_record_names(r, c->id) &&
        quorum_record_compare(r, &c->voter.record) > 0)
        quorum_voter_adopt(&c->voter, r);
}

/* A voter that has nothing to keep has missed the record, which others have stored. */
static void repeat_if_missed(struct council *c, const struct ballot *b, uint64_t now_ms)
{
    const struct quorum_record *newest = &c->proposer.newest;
    const struct elector_address *at = council_find_address(c, b->from);
    const bool has_missed = !b->has_entry || quorum_record_compare(&b->entry.record, newest) < 0;
    if (b->asked != BALLOT_KEEP || b->yes || !has_missed || at == NULL ||
        !council_leads(c, now_ms) || c->proposer.phase != QUORUM_LEADING)
        return;
    c->orders.repeat = true;
    c->orders.missed = (struct ballot_voter){.id = b->from, .at = *at};
}

static void take_vote(struct council *c, const struct ballot *b, uint64_t now_ms)
{
    if (c->job == 0 || (b->job != c->job && b->job != 0))
        return;
    council_note_heard(c, b->from, now_ms);
    repeat_if_missed(c, b, now_ms);
    const bool is_vote = b->asked >= BALLOT_CLAIM && b->asked <= BALLOT_KEEP;
    if (b->job == 0 || (!is_vote && !c->limits.quorum.alone))
        return;
    const struct quorum_ask ask = ask_of(b, b->asked);
    struct quorum_vote vote = {.yes = b->yes, .promised = b->promised, .left_ms = b->left_ms};
    if (b->has_entry) {
        council_learn(c, &b->entry);
        vote.record = b->entry.record;
        follow_newer(c, &b->entry.record, now_ms);
        leave_newer(c, &b->entry.record);
    }
    if (!is_vote)
        return;
    council_hear(c, &ask, b->from, &vote, now_ms);
}

void council_take(struct council *c, const struct ballot *b, uint64_t now_ms, struct ballot *ret,
                  struct council_orders *orders)
{
    begin_step(c);
    if (b->type == BALLOT_VOTE)
        take_vote(c, b, now_ms);
    else
        answer(c, b, now_ms, ret);
    end_step(c, now_ms, orders);
}

void council_time(struct council *c, uint64_t now_ms, struct council_orders *ret)
{
    begin_step(c);
    end_step(c, now_ms, ret);
}

/* --- what the caller wants --- */

void council_commit(struct council *c, const struct elector_record *record, uint64_t now_ms,
                    struct council_orders *ret)
{
    begin_step(c);
    c->commit_waits = c->has_roster;
    c->committing = *record;
    end_step(c, now_ms, ret);
}

void council_resign(struct council *c, const struct elector_record *last, uint64_t now_ms,
                    struct council_orders *ret)
{
    begin_step(c);
    if (!c->is_over) {
        council_set_lease(c, COUNCIL_LEASE_ON); /* no rank runs here any more */
        c->resigns = true;
        c->resign_until_ms = now_ms + c->limits.resign_ms;
        c->has_roster = c->commit_waits = false;
        c->has_resigned = last == NULL; /* nothing to write, and none to free */
        if (last != NULL)
            c->last = *last;
        else
            quorum_proposer_give_up(&c->proposer);
    }
    end_step(c, now_ms, ret);
}

void council_note_ended(struct council *c, const struct elector_address *at, uint64_t now_ms,
                        struct council_orders *ret)
{
    const uint64_t owner = c->voter.promised.owner;
    const struct elector_address *leader = council_find_address(c, owner);
    begin_step(c);
    if (owner != c->id && leader != NULL && leader->port == at->port &&
        strcmp(leader->host, at->host) == 0 && now_ms < c->voter.until_ms) {
        quorum_voter_free(&c->voter);
        council_take_turn(c, now_ms);
    }
    for (uint32_t i = 0; i < COUNCIL_MAX_OFFERS; i++)
        if (c->offers[i].who.at.port == at->port && strcmp(c->offers[i].who.at.host, at->host) == 0)
            council_drop_offer(c, c->offers[i].who.id);
    end_step(c, now_ms, ret);
}

void council_note_silent(struct council *c, bool is_silent, uint64_t now_ms,
                         struct council_orders *ret)
{
    const uint64_t owner = c->voter.promised.owner;
    begin_step(c);
    c->silent = is_silent && owner != c->id ? owner : 0;
    end_step(c, now_ms, ret);
}

enum council_lease council_get_lease(const struct council *c)
{
    return c->lease;
}

void council_note_leased(struct council *c, uint64_t now_ms, struct council_orders *ret)
{
    begin_step(c);
    if (c->lease == COUNCIL_LEASE_AWAITED)
        council_set_lease(c, COUNCIL_LEASE_ON);
    end_step(c, now_ms, ret);
}

/* --- what is to be sent, and to which processes --- */

void council_question(const struct council *c, struct ballot *ret)
{
    const struct quorum_ask *ask = &c->asking;
    const bool is_write = ask->type == QUORUM_WRITE;
    *ret = (struct ballot){.type = BALLOT_FREE, .job = c->job, .from = c->id, .term = ask->term};
    if (c->is_over)
        return;
    ret->type = is_write ? BALLOT_WRITE : ask->type == QUORUM_CLAIM ? BALLOT_CLAIM : BALLOT_KEEP;
    ret->index = is_write ? ask->record.index : ask->index;
    ret->settled = ask->settled;
    ret->asked_ms = ask->asked_ms;
    ret->has_entry = is_write;
    if (is_write)
        council_fill(c, &ask->record, &ret->entry);
}

void council_record(const struct council *c, struct ballot *ret)
{
    const struct quorum_record *r = &c->proposer.newest;
    *ret = (struct ballot){.type = BALLOT_WRITE,
                           .job = c->job,
                           .from = c->id,
                           .term = r->term,
                           .index = r->index,
                           .has_entry = true};
    council_fill(c, r, &ret->entry);
}

static uint32_t take_addresses(const struct council *c, const struct ballot_entry *e,
                               struct ballot_voter ret[QUORUM_MAX_ASKED])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->n; i++)
        if (e->voters[i].id != c->id)
            ret[n++] = e->voters[i];
    return n;
}

static void fill_named(const struct council *c, const struct quorum_record *r,
                       struct ballot_entry *ret)
{
    struct quorum_record named = *r;
    if (named.settled)
        named.before.n = 0;
    council_fill(c, &named, ret);
}

uint32_t council_asked(const struct council *c, struct ballot_voter ret[QUORUM_MAX_ASKED])
{
    const bool is_write = !c->is_over && c->asking.type == QUORUM_WRITE;
    struct ballot_entry entry;
    fill_named(c, is_write ? &c->asking.record : &c->proposer.newest, &entry);
    return take_addresses(c, &entry, ret);
}

uint32_t council_voters(const struct council *c, struct ballot_voter ret[QUORUM_MAX_ASKED])
{
    struct ballot_entry entry;
    fill_named(c, &c->voter.record, &entry);
    return take_addresses(c, &entry, ret);
}

uint32_t council_offers(const struct council *c, struct ballot_voter ret[COUNCIL_MAX_OFFERS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < COUNCIL_MAX_OFFERS; i++)
        if (c->offers[i].who.id != 0 &&
            !quorum_record_names(&c->proposer.newest, c->offers[i].who.id))
            ret[n++] = c->offers[i].who;
    return n;
}

/* --- when, and how it is --- */

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t next_turn_ms(const struct council *c)
{
    const bool waits = c->proposer.phase == QUORUM_IDLE || c->proposer.phase == QUORUM_OUTBID;
    return waits ? c->claims_at_ms : CO_NEVER_MS;
}

uint64_t council_deadline_ms(const struct council *c)
{
    struct quorum_ask ask;
    uint64_t at_ms = next_turn_ms(c);
    if (c->is_over)
        return CO_NEVER_MS;
    if (quorum_proposer_question(&c->proposer, &ask))
        at_ms = sooner(at_ms, c->asks_at_ms);
    if (c->proposer.phase == QUORUM_CLAIMING || c->proposer.phase == QUORUM_REWRITING)
        at_ms = sooner(at_ms, c->gives_up_at_ms);
    if (c->proposer.phase == QUORUM_LEADING && !c->proposer.keeps)
        at_ms = sooner(at_ms, c->commit_waits ? 0 : c->keeps_at_ms);
    if (quorum_proposer_end_ms(&c->proposer) != 0)
        at_ms = sooner(at_ms, quorum_proposer_end_ms(&c->proposer));
    if (c->has_roster && !c->doubts)
        at_ms = sooner(at_ms, council_certain_until_ms(c));
    at_ms = sooner(at_ms, council_silence_ends_ms(c));
    return c->resigns ? sooner(at_ms, c->resign_until_ms) : at_ms;
}

enum council_state council_get_state(const struct council *c, uint64_t now_ms)
{
    if (c->is_over || c->resigns)
        return c->is_over ? COUNCIL_ENDED : COUNCIL_RESIGNING;
    if (c->has_roster)
        return council_leads(c, now_ms) ? COUNCIL_LEADING : COUNCIL_DOUBTING;
    if (c->proposer.phase == QUORUM_CLAIMING || c->proposer.phase == QUORUM_REWRITING)
        return COUNCIL_CLAIMING;
    return c->voter.record.voters.n > 0 ? COUNCIL_FOLLOWING : COUNCIL_OUTSIDE;
}

bool council_has_successor(const struct council *c, uint64_t now_ms)
{
    return council_leads(c, now_ms) && council_choose_voters(c, now_ms).n > 1 &&
           c->proposer.newest.voters.n > 1;
}

bool council_leader(const struct council *c, struct elector_address *ret)
{
    const uint64_t owner = c->voter.record.term.owner;
    const struct elector_address *at = council_find_address(c, owner);
    if (owner == 0 || owner == c->id || at == NULL)
        return false;
    *ret = *at;
    return true;
}

/* --- beginning --- */

void council_init(struct council *c, const struct council_limits *limits, uint64_t id,
                  const struct elector_address *own, bool stands)
{
    *c = (struct council){
        .limits = *limits, .id = id, .own = *own, .stands = stands, .claims_at_ms = CO_NEVER_MS};
    quorum_voter_init(&c->voter, &limits->quorum, id, NULL);
    quorum_proposer_init(&c->proposer, &limits->quorum, id, &c->voter.record);
}

void council_found(struct council *c, uint64_t job, uint64_t now_ms, struct council_orders *ret)
{
    const struct quorum_list self = {.n = 1, .ids = {c->id}};
    const struct quorum_record first = {
        .term = {1, c->id}, .settled = true, .voters = self, .before = self};
    begin_step(c);
    c->job = job;
    quorum_voter_init(&c->voter, &c->limits.quorum, c->id, &first);
    c->voter.promised = first.term;
    quorum_proposer_init(&c->proposer, &c->limits.quorum, c->id, &first);
    end_step(c, now_ms, ret);
}
