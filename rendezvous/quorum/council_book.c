/* council_book.c - what a council knows besides records: what was decided, where processes listen,
 * and which of them are ready to vote. All of it has a bound: what no record names is
 * replaced. */
#include "council_priv.h"

/* --- decisions --- */

static bool is_value_needed(const struct council *c, uint64_t value)
{
    return value != 0 && (value == c->voter.record.value || value == c->proposer.newest.value ||
                          value == c->proposer.next.value);
}

const struct elector_record *council_find_decision(const struct council *c, uint64_t value)
{
    for (uint32_t i = 0; value != 0 && i < COUNCIL_KEPT; i++)
        if (c->kept[i].value == value)
            return &c->kept[i].record;
    return NULL;
}

void council_keep_decision(struct council *c, uint64_t value, const struct elector_record *record)
{
    if (value == 0 || council_find_decision(c, value) != NULL)
        return;
    for (uint32_t i = 0; i < COUNCIL_KEPT; i++)
        if (!is_value_needed(c, c->kept[i].value)) {
            c->kept[i] = (struct council_decision){.value = value, .record = *record};
            return;
        }
}

/* --- addresses --- */

static bool is_named(const struct council *c, uint64_t id)
{
    return quorum_record_names(&c->voter.record, id) ||
           quorum_record_names(&c->proposer.newest, id) ||
           quorum_record_names(&c->proposer.next, id);
}

const struct elector_address *council_find_address(const struct council *c, uint64_t id)
{
    if (id == c->id)
        return &c->own;
    for (uint32_t i = 0; i < COUNCIL_BOOK; i++)
        if (c->book[i].id == id)
            return &c->book[i].at;
    return NULL;
}

static struct ballot_voter *find_page(struct council *c, uint64_t id)
{
    for (uint32_t i = 0; i < COUNCIL_BOOK; i++)
        if (c->book[i].id == id)
            return &c->book[i];
    return NULL;
}

/* In turn, since the record that names an address is stored after the address. */
static struct ballot_voter *replace_page(struct council *c)
{
    struct ballot_voter *page = find_page(c, 0);
    for (uint32_t i = 0; page == NULL && i < COUNCIL_BOOK; i++) {
        struct ballot_voter *next = &c->book[c->book_turn++ % COUNCIL_BOOK];
        if (!is_named(c, next->id))
            page = next;
    }
    return page;
}

void council_note_address(struct council *c, uint64_t id, const struct elector_address *at)
{
    struct ballot_voter *page = id != 0 ? find_page(c, id) : NULL;
    if (id == 0 || id == c->id || (page != NULL && elector_same_address(&page->at, at)))
        return;
    if (page == NULL)
        page = replace_page(c);
    if (page == NULL)
        return;
    *page = (struct ballot_voter){.id = id, .at = *at};
    c->orders.voters = true;
}

bool council_next_stray(struct council *c, struct elector_address *ret)
{
    for (uint32_t i = 0; i < COUNCIL_BOOK; i++) {
        const struct ballot_voter *next = &c->book[c->stray_turn++ % COUNCIL_BOOK];
        if (next->id == 0 || quorum_record_names(&c->proposer.newest, next->id))
            continue;
        *ret = next->at;
        return true;
    }
    return false;
}

/* --- records, with what belongs to them --- */

void council_learn(struct council *c, const struct ballot_entry *entry)
{
    council_keep_decision(c, entry->record.value, &entry->decided);
    for (uint32_t i = 0; i < entry->n; i++)
        council_note_address(c, entry->voters[i].id, &entry->voters[i].at);
}

static void add_voters(const struct council *c, const struct quorum_list *l,
                       struct ballot_entry *ret)
{
    for (uint32_t i = 0; i < l->n; i++) {
        const struct elector_address *at = council_find_address(c, l->ids[i]);
        bool has = at == NULL;
        for (uint32_t k = 0; k < ret->n; k++)
            has |= ret->voters[k].id == l->ids[i];
        if (!has && ret->n < QUORUM_MAX_ASKED)
            ret->voters[ret->n++] = (struct ballot_voter){.id = l->ids[i], .at = *at};
    }
}

void council_fill(const struct council *c, const struct quorum_record *r, struct ballot_entry *ret)
{
    const struct elector_record *decided = council_find_decision(c, r->value);
    *ret = (struct ballot_entry){.record = *r};
    if (decided != NULL)
        ret->decided = *decided;
    add_voters(c, &r->voters, ret);
    add_voters(c, &r->before, ret);
}

/* --- processes that are ready to vote --- */

static struct council_offer *find_offer(struct council *c, uint64_t id)
{
    for (uint32_t i = 0; i < COUNCIL_MAX_OFFERS; i++)
        if (c->offers[i].who.id == id)
            return &c->offers[i];
    return NULL;
}

static bool is_heard(const struct council *c, const struct council_offer *o, uint64_t now_ms)
{
    return o->who.id != 0 && o->heard_ms != 0 && now_ms < o->heard_ms + c->limits.deaf_ms;
}

/* One that does not vote, and has not answered lately, is replaced. */
void council_note_offer(struct council *c, const struct ballot_voter *who, uint32_t order,
                        uint64_t now_ms)
{
    struct council_offer *o = find_offer(c, who->id);
    if (who->id == 0 || who->id == c->id)
        return;
    council_note_address(c, who->id, &who->at);
    for (uint32_t i = 0; o == NULL && i < COUNCIL_MAX_OFFERS; i++) {
        struct council_offer *old = &c->offers[i];
        if (old->who.id == 0 ||
            (!is_heard(c, old, now_ms) && !quorum_record_names(&c->proposer.newest, old->who.id))) {
            *old = (struct council_offer){0};
            o = old;
        }
    }
    if (o == NULL)
        return;
    o->who = *who;
    o->order = order;
    if (o->n_offers == 0 || now_ms >= o->last_ms + COUNCIL_APART_MS) {
        o->n_offers++;
        o->last_ms = now_ms;
    }
}

uint32_t council_unreached(const struct council *c, uint64_t now_ms,
                           struct ballot_voter ret[COUNCIL_MAX_OFFERS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < COUNCIL_MAX_OFFERS; i++) {
        const struct council_offer *o = &c->offers[i];
        if (o->who.id != 0 && o->heard_ms == 0 && o->n_offers >= COUNCIL_UNREACHED &&
            now_ms < o->last_ms + COUNCIL_OFFERS_MS)
            ret[n++] = o->who;
    }
    return n;
}

void council_note_heard(struct council *c, uint64_t id, uint64_t now_ms)
{
    struct council_offer *o = id != 0 ? find_offer(c, id) : NULL;
    if (o != NULL)
        o->heard_ms = now_ms;
}

void council_drop_offer(struct council *c, uint64_t id)
{
    struct council_offer *o = id != 0 ? find_offer(c, id) : NULL;
    if (o != NULL)
        *o = (struct council_offer){0};
}

void council_expect_voters(struct council *c, uint64_t now_ms)
{
    const struct quorum_list *l = &c->proposer.newest.voters;
    for (uint32_t i = 0; i < l->n; i++) {
        const struct elector_address *at = council_find_address(c, l->ids[i]);
        if (l->ids[i] == c->id || at == NULL)
            continue;
        council_note_offer(c, &(struct ballot_voter){.id = l->ids[i], .at = *at}, i, now_ms);
        council_note_heard(c, l->ids[i], now_ms);
    }
}

static void add_if_heard(const struct council *c, const struct council_offer *o, uint64_t now_ms,
                         struct quorum_list *l)
{
    if (l->n < QUORUM_MAX_VOTERS && !quorum_list_has(l, o->who.id) && is_heard(c, o, now_ms))
        l->ids[l->n++] = o->who.id;
}

struct quorum_list council_choose_voters(const struct council *c, uint64_t now_ms)
{
    const struct quorum_list *present = &c->proposer.newest.voters;
    struct quorum_list l = {.n = 1, .ids = {c->id}};
    for (uint32_t i = 0; i < present->n; i++)
        for (uint32_t k = 0; k < COUNCIL_MAX_OFFERS; k++)
            if (c->offers[k].who.id == present->ids[i])
                add_if_heard(c, &c->offers[k], now_ms, &l);
    for (uint32_t n = 0; n < COUNCIL_MAX_OFFERS; n++) {
        const struct council_offer *first = NULL;
        for (uint32_t k = 0; k < COUNCIL_MAX_OFFERS; k++) {
            const struct council_offer *o = &c->offers[k];
            if (is_heard(c, o, now_ms) && !quorum_list_has(&l, o->who.id) &&
                (first == NULL || o->order < first->order))
                first = o;
        }
        if (first != NULL)
            add_if_heard(c, first, now_ms, &l);
    }
    return l;
}
