#include "proposer.h"

void quorum_proposer_init(struct quorum_proposer *p, const struct quorum_limits *limits,
                          uint64_t id, const struct quorum_record *record)
{
    *p = (struct quorum_proposer){.limits = *limits, .id = id, .newest = *record};
    p->highest = record->term;
}

static void ask_anew(struct quorum_proposer *p, uint64_t now_ms)
{
    p->yes.n = 0;
    p->asked_ms = now_ms;
    p->keeps = p->has_answer = false;
}

void quorum_proposer_claim(struct quorum_proposer *p, uint64_t now_ms)
{
    p->term = (struct quorum_term){.number = p->highest.number + 1, .owner = p->id};
    p->highest = p->term;
    p->phase = QUORUM_CLAIMING;
    p->is_alone = false;
    ask_anew(p, now_ms);
}

void quorum_proposer_give_up(struct quorum_proposer *p)
{
    p->phase = QUORUM_IDLE;
    p->end_ms = 0;
}

bool quorum_proposer_write(struct quorum_proposer *p, uint64_t value,
                           const struct quorum_list *voters, uint64_t now_ms)
{
    const bool same = quorum_list_is_same(voters, &p->newest.voters);
    if (p->phase != QUORUM_LEADING || (!same && !p->newest.settled))
        return false;
    p->next = p->newest;
    p->next.index++;
    p->next.value = value;
    if (!same) {
        p->next.before = p->newest.voters;
        p->next.voters = *voters;
        p->next.settled = false;
    }
    p->phase = QUORUM_WRITING;
    ask_anew(p, now_ms);
    return true;
}

void quorum_proposer_keep(struct quorum_proposer *p, uint64_t now_ms)
{
    if (p->phase != QUORUM_LEADING)
        return;
    ask_anew(p, now_ms);
    p->keeps = true;
}

/* --- the question --- */

static const struct quorum_record *find_record(const struct quorum_proposer *p)
{
    return p->phase == QUORUM_WRITING ? &p->next : &p->newest;
}

bool quorum_proposer_question(const struct quorum_proposer *p, struct quorum_ask *ret)
{
    *ret = (struct quorum_ask){.term = p->term, .asked_ms = p->asked_ms};
    if (p->phase == QUORUM_CLAIMING) {
        ret->type = QUORUM_CLAIM;
    } else if (p->phase == QUORUM_REWRITING || p->phase == QUORUM_WRITING) {
        ret->type = QUORUM_WRITE;
        ret->record = *find_record(p);
    } else if (p->phase == QUORUM_LEADING && p->keeps) {
        ret->type = QUORUM_KEEP;
        ret->index = p->newest.index;
        ret->settled = true;
    } else {
        return false;
    }
    return true;
}

bool quorum_proposer_asks(const struct quorum_proposer *p, uint64_t id)
{
    return quorum_record_names(find_record(p), id);
}

/* --- which votes are enough --- */

static bool is_small_list(const struct quorum_proposer *p, const struct quorum_list *l)
{
    return l->n <= 2 && quorum_list_has(l, p->id);
}

static bool is_small(const struct quorum_proposer *p, const struct quorum_record *r)
{
    return is_small_list(p, &r->voters) && (r->settled || is_small_list(p, &r->before));
}

static bool carries(const struct quorum_proposer *p, const struct quorum_record *r)
{
    return quorum_carries_record(&p->yes, r) ||
           (p->is_alone && is_small(p, r) && quorum_set_has(&p->yes, p->id));
}

/* The first of two voters may have been away while the other one took over alone. */
static bool must_wait(const struct quorum_proposer *p)
{
    return p->limits.alone && p->newest.voters.n == 2 && p->yes.n < 2 && !p->is_alone;
}

/* Its own voter is asked now: the lease counts from that. */
void quorum_proposer_stand_alone(struct quorum_proposer *p, uint64_t now_ms)
{
    if (p->phase != QUORUM_CLAIMING || !p->limits.alone || p->has_answer ||
        !is_small(p, &p->newest))
        return;
    p->is_alone = true;
    ask_anew(p, now_ms);
}

/* --- answers --- */

static void note_highest(struct quorum_proposer *p, const struct quorum_term *term)
{
    if (quorum_term_compare(term, &p->highest) > 0)
        p->highest = *term;
}

/* What was promised does not depend on which record is the newest: promises stay when a newer one
 * is reported, and have to carry that one as well. */
static void hear_promise(struct quorum_proposer *p, const struct quorum_vote *vote)
{
    if (vote->record.voters.n > 0 && quorum_record_compare(&vote->record, &p->newest) > 0)
        p->newest = vote->record;
    else if (quorum_record_compare(&vote->record, &p->newest) == 0)
        p->newest.settled |= vote->record.settled;
    if (!carries(p, &p->newest) || must_wait(p))
        return;
    p->newest.term = p->term;
    p->newest.index = 0;
    p->phase = QUORUM_REWRITING;
    p->yes.n = 0; /* asked_ms stays: what was promised since is not shorter */
}

static void hear_stored(struct quorum_proposer *p)
{
    const struct quorum_record *r = find_record(p);
    if (!carries(p, r))
        return;
    p->newest = *r;
    p->newest.settled = p->newest.settled || p->phase == QUORUM_LEADING;
    p->phase = QUORUM_LEADING;
    p->end_ms = p->asked_ms + p->limits.lease_ms;
    p->keeps = false;
}

/* A late answer to an earlier KEEP is one of a promise that ends sooner than the lease that the
 * present one would give. */
static bool is_present(const struct quorum_proposer *p, const struct quorum_ask *ask)
{
    struct quorum_ask now;
    return quorum_proposer_question(p, &now) && now.type == ask->type &&
           quorum_term_compare(&now.term, &ask->term) == 0 && now.index == ask->index &&
           now.record.index == ask->record.index && now.asked_ms == ask->asked_ms;
}

/* Also by a voter whose answer was not needed: it is to obey again. A candidate may still have
 * enough other voters, which would wait for it if it gave up. */
static bool is_outbid(const struct quorum_proposer *p, const struct quorum_ask *ask,
                      const struct quorum_vote *vote)
{
    const bool asks = (p->phase == QUORUM_REWRITING && p->limits.alone) ||
                      p->phase == QUORUM_WRITING || p->phase == QUORUM_LEADING;
    return asks && !vote->yes && ask->type != QUORUM_CLAIM &&
           quorum_term_compare(&ask->term, &p->term) == 0 &&
           quorum_term_compare(&vote->promised, &p->term) > 0;
}

/* A claim is not alone any more: the answer may report another list. */
static void note_answer(struct quorum_proposer *p)
{
    p->has_answer = true;
    if (p->phase == QUORUM_CLAIMING)
        p->is_alone = false;
}

void quorum_proposer_hear(struct quorum_proposer *p, const struct quorum_ask *ask, uint64_t from,
                          const struct quorum_vote *vote)
{
    note_highest(p, &vote->promised);
    note_highest(p, &vote->record.term);
    if (is_outbid(p, ask, vote))
        p->phase = QUORUM_OUTBID;
    if (!is_present(p, ask))
        return;
    if (from != p->id)
        note_answer(p);
    if (!vote->yes) {
        if (ask->type == QUORUM_CLAIM && quorum_record_compare(&vote->record, &p->newest) > 0)
            p->newest = vote->record; /* a newer list: others are to be asked as well */
        return;
    }
    quorum_set_add(&p->yes, from);
    if (p->phase == QUORUM_CLAIMING)
        hear_promise(p, vote);
    else
        hear_stored(p);
}

uint64_t quorum_proposer_end_ms(const struct quorum_proposer *p)
{
    return p->end_ms;
}
