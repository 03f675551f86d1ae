#include "voter.h"

#include <stddef.h>

void quorum_voter_init(struct quorum_voter *v, const struct quorum_limits *limits, uint64_t id,
                       const struct quorum_record *record)
{
    *v = (struct quorum_voter){.limits = *limits, .id = id};
    if (record != NULL)
        v->record = *record;
}

void quorum_voter_free(struct quorum_voter *v)
{
    v->until_ms = 0;
}

/* Silence of the host proves nothing. What the process did with what was heard last is over, by the
 * arithmetic of a promise. */
uint64_t quorum_voter_free_silent(struct quorum_voter *v, uint64_t now_ms)
{
    const uint64_t over_ms = v->heard_ms + v->limits.lease_ms + v->limits.margin_ms;
    if (now_ms < over_ms)
        return over_ms;
    quorum_voter_free(v);
    return 0;
}

void quorum_voter_adopt(struct quorum_voter *v, const struct quorum_record *record)
{
    if (quorum_record_compare(record, &v->record) > 0)
        v->record = *record;
    if (quorum_term_compare(&record->term, &v->promised) > 0)
        v->promised = record->term;
}

void quorum_voter_reserve(struct quorum_voter *v, bool is_reserved)
{
    v->is_reserved = is_reserved;
}

static bool is_reserved_for_another(const struct quorum_voter *v, const struct quorum_term *term)
{
    return v->is_reserved && term->owner != v->promised.owner;
}

static void promise(struct quorum_voter *v, const struct quorum_term *term, uint64_t until_ms)
{
    v->promised = *term;
    if (until_ms > v->until_ms)
        v->until_ms = until_ms;
}

static void promise_leader(struct quorum_voter *v, const struct quorum_term *term, uint64_t now_ms)
{
    const struct quorum_limits *l = &v->limits;
    v->heard_ms = now_ms;
    v->is_claimed = false;
    promise(v, term, now_ms + l->lease_ms + l->margin_ms + l->stay_ms);
}

/* Two candidates may have promised themselves: that with the lower term votes for the other one. A
 * lease of the process that was promised before may still run: it is waited for, also if that
 * process claims again. Where one of two may be alone, both wait: a claim without an answer counts
 * there. */
static bool is_bound(const struct quorum_voter *v, const struct quorum_term *term, uint64_t now_ms)
{
    return now_ms < v->until_ms && term->owner != v->promised.owner &&
           (!v->is_claimed || v->limits.alone);
}

/* A candidate that is refused leaves no trace: its term is not adopted, so that a node that comes
 * back from a cut with a high term does not depose a coordinator that is heard. A voter
 * that its own record does not name, or not yet, votes like all: the record comes with the answer,
 * and the candidate finds out whose votes count. */
static bool hear_claim(struct quorum_voter *v, const struct quorum_ask *ask, uint64_t now_ms,
                       struct quorum_vote *ret)
{
    if (quorum_term_compare(&ask->term, &v->promised) < 0)
        return false;
    if (is_reserved_for_another(v, &ask->term) || is_bound(v, &ask->term, now_ms)) {
        ret->left_ms = now_ms < v->until_ms ? v->until_ms - now_ms : 0;
        return false;
    }
    v->is_claimed |= now_ms >= v->until_ms;
    promise(v, &ask->term, now_ms + v->limits.claim_ms);
    return true;
}

/* An older write of the same term came late: it changes nothing, and was obeyed. */
static bool hear_write(struct quorum_voter *v, const struct quorum_ask *ask, uint64_t now_ms)
{
    if (quorum_term_compare(&ask->term, &v->promised) < 0 || is_reserved_for_another(v, &ask->term))
        return false;
    if (quorum_record_compare(&ask->record, &v->record) > 0)
        v->record = ask->record;
    promise_leader(v, &ask->term, now_ms);
    return true;
}

/* One that has missed the write has nothing to keep. */
static bool hear_keep(struct quorum_voter *v, const struct quorum_ask *ask, uint64_t now_ms)
{
    if (quorum_term_compare(&ask->term, &v->promised) != 0 ||
        quorum_term_compare(&ask->term, &v->record.term) != 0 || ask->index != v->record.index)
        return false;
    v->record.settled |= ask->settled;
    promise_leader(v, &ask->term, now_ms);
    return true;
}

void quorum_voter_ask(struct quorum_voter *v, const struct quorum_ask *ask, uint64_t now_ms,
                      struct quorum_vote *ret)
{
    *ret = (struct quorum_vote){.yes = false};
    ret->yes = ask->type == QUORUM_CLAIM   ? hear_claim(v, ask, now_ms, ret)
               : ask->type == QUORUM_WRITE ? hear_write(v, ask, now_ms)
                                           : hear_keep(v, ask, now_ms);
    ret->promised = v->promised;
    ret->record = v->record;
}
