#include "quorum.h"

bool quorum_list_has(const struct quorum_list *l, uint64_t id)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->ids[i] == id)
            return true;
    return false;
}

bool quorum_list_is_same(const struct quorum_list *a, const struct quorum_list *b)
{
    bool same = a->n == b->n;
    for (uint32_t i = 0; same && i < a->n; i++)
        same = a->ids[i] == b->ids[i];
    return same;
}

bool quorum_set_has(const struct quorum_set *s, uint64_t id)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->ids[i] == id)
            return true;
    return false;
}

void quorum_set_add(struct quorum_set *s, uint64_t id)
{
    if (!quorum_set_has(s, id) && s->n < QUORUM_MAX_ASKED)
        s->ids[s->n++] = id;
}

bool quorum_carries(const struct quorum_set *s, const struct quorum_list *l)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n; i++)
        n += quorum_set_has(s, l->ids[i]);
    return 2 * n > l->n || (2 * n == l->n && l->n > 0 && quorum_set_has(s, l->ids[0]));
}

bool quorum_carries_record(const struct quorum_set *s, const struct quorum_record *r)
{
    return quorum_carries(s, &r->voters) && (r->settled || quorum_carries(s, &r->before));
}

bool quorum_record_names(const struct quorum_record *r, uint64_t id)
{
    return quorum_list_has(&r->voters, id) || (!r->settled && quorum_list_has(&r->before, id));
}

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

int quorum_term_compare(const struct quorum_term *a, const struct quorum_term *b)
{
    int by = compare(a->number, b->number);
    return by != 0 ? by : compare(a->owner, b->owner);
}

int quorum_record_compare(const struct quorum_record *a, const struct quorum_record *b)
{
    int by = quorum_term_compare(&a->term, &b->term);
    return by != 0 ? by : compare(a->index, b->index);
}
