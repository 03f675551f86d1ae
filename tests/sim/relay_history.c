#include "relay_history.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { N_SEEN = 1 << 20 };

struct value {
    int64_t number; /* of a key; 0: missing */
    int n_items;
    int64_t items[HISTORY_QUEUE];
};

struct search {
    const struct history_operation *lanes[HISTORY_CLIENTS][HISTORY_OPERATIONS]; /* by client */
    int n_lanes, n_of[HISTORY_CLIENTS], at[HISTORY_CLIENTS];
    uint32_t clients[HISTORY_CLIENTS];
    int n_seen;
    bool is_too_long;
};

static struct search search;
static uint64_t seen[N_SEEN];      /* hashes of positions that lead nowhere; open addressing */
static uint32_t slots[N_SEEN / 2]; /* of it that are in use */

/* Can it be the next one? Then v is what it leaves. */
static bool do_operation(const struct history_operation *o, struct value *v)
{
    const bool knows = o->end != HISTORY_PENDING;
    int64_t result = 0;
    switch (o->kind) {
    case HISTORY_SET:
        v->number = o->a;
        return true;
    case HISTORY_GET:
        result = v->number;
        break;
    case HISTORY_COMPARE_SET:
        if (v->number == o->a)
            v->number = o->b;
        result = v->number != 0 ? v->number : o->a;
        break;
    case HISTORY_DELETE:
        result = v->number != 0;
        v->number = 0;
        break;
    case HISTORY_CHECK:
        result = v->number != 0;
        break;
    case HISTORY_WAIT:
        return v->number != 0 || !knows;
    case HISTORY_ADD:
        v->number += o->a;
        result = v->number;
        break;
    case HISTORY_PUSH:
        if (v->n_items == HISTORY_QUEUE)
            abort();
        v->items[v->n_items++] = o->a;
        return true;
    case HISTORY_POP:
        if (v->n_items > 0) {
            result = v->items[0];
            memmove(v->items, v->items + 1, (size_t)--v->n_items * sizeof v->items[0]);
        }
        break;
    }
    return !knows || result == o->result;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

/* Returns whether this position is new, and can be remembered. */
static bool remember(const struct value *v)
{
    uint64_t hash = mix(1, (uint64_t)v->number);
    for (int i = 0; i < v->n_items; i++)
        hash = mix(hash, (uint64_t)v->items[i]);
    for (int i = 0; i < search.n_lanes; i++)
        hash = mix(hash, (uint64_t)search.at[i]);
    hash |= 1;
    size_t slot = hash % N_SEEN;
    for (; seen[slot] != 0; slot = (slot + 1) % N_SEEN)
        if (seen[slot] == hash)
            return false;
    if (search.n_seen == N_SEEN / 2) {
        search.is_too_long = true;
        return false;
    }
    slots[search.n_seen++] = (uint32_t)slot;
    seen[slot] = hash;
    return true;
}

static const struct history_operation *next_of(int lane)
{
    return search.at[lane] < search.n_of[lane] ? search.lanes[lane][search.at[lane]] : NULL;
}

/* The first end among what is left: an operation that began later has to wait for it. */
static uint64_t first_end(void)
{
    uint64_t first = HISTORY_PENDING;
    for (int i = 0; i < search.n_lanes; i++) {
        const struct history_operation *o = next_of(i);
        if (o != NULL && o->end < first)
            first = o->end;
    }
    return first;
}

static bool find_order(const struct value *v);

static bool try_lane(int lane, const struct value *v)
{
    struct value after = *v;
    if (!do_operation(next_of(lane), &after))
        return false;
    search.at[lane]++;
    const bool is_found = find_order(&after);
    search.at[lane]--;
    return is_found;
}

/* The operation that ends first is tried first: most histories are in that order, nearly. */
static bool find_order(const struct value *v)
{
    const uint64_t end = first_end();
    bool is_tried[HISTORY_CLIENTS] = {false};
    if (end == HISTORY_PENDING) /* all that is known to be done is */
        return true;
    if (!remember(v))
        return false;
    for (;;) {
        int first = -1;
        for (int i = 0; i < search.n_lanes; i++) {
            const struct history_operation *o = next_of(i);
            if (o != NULL && !is_tried[i] && o->begin <= end &&
                (first < 0 || o->end < next_of(first)->end))
                first = i;
        }
        if (first < 0)
            return false;
        is_tried[first] = true;
        if (try_lane(first, v))
            return true;
    }
}

static int lane_of(uint32_t client)
{
    for (int i = 0; i < search.n_lanes; i++)
        if (search.clients[i] == client)
            return i;
    if (search.n_lanes == HISTORY_CLIENTS)
        abort();
    search.clients[search.n_lanes] = client;
    return search.n_lanes++;
}

/* If the client does not know what it got, it may have got anything, at any time. */
static bool matters(const struct history_operation *o)
{
    return o->end != HISTORY_PENDING ||
           (o->kind != HISTORY_GET && o->kind != HISTORY_CHECK && o->kind != HISTORY_WAIT);
}

enum history_answer history_search(const struct history *h, int name)
{
    const struct value nothing = {0};
    memset(&search, 0, sizeof search);
    for (int i = 0; i < h->n; i++) {
        if (h->operations[i].name != name || !matters(&h->operations[i]))
            continue;
        const int lane = lane_of(h->operations[i].client);
        search.lanes[lane][search.n_of[lane]++] = &h->operations[i];
    }
    const bool is_found = find_order(&nothing);
    for (int i = 0; i < search.n_seen; i++)
        seen[slots[i]] = 0;
    return is_found ? HISTORY_HAS_ORDER : search.is_too_long ? HISTORY_TOO_LONG : HISTORY_HAS_NONE;
}
