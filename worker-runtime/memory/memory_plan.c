#include "memory_plan.h"

static bool is_of(const struct memory_save *s, struct memory_id id, unsigned n)
{
    return s->is_whole != 0 && memory_id_same(s->id, id) && s->world_size == n && s->rank < n;
}

static bool is_older(struct memory_id a, struct memory_id b)
{
    return a.serial < b.serial || (a.serial == b.serial && a.lineage < b.lineage);
}

/* The newest save, of any number of ranks, that is older than `before`. NULL: none */
static const struct memory_save *newest_before(const struct memory_member *members, unsigned n,
                                               struct memory_id before)
{
    const struct memory_save *newest = NULL;
    for (unsigned m = 0; m < n; m++)
        for (unsigned i = 0; i < MEMORY_SLOTS; i++) {
            const struct memory_save *s = &members[m].saves[i];
            if (s->is_whole != 0 && is_older(s->id, before) &&
                (newest == NULL || is_older(newest->id, s->id)))
                newest = s;
        }
    return newest;
}

uint64_t memory_plan_highest(const struct memory_member *members, unsigned n)
{
    uint64_t highest = 0;
    for (unsigned m = 0; m < n; m++)
        for (unsigned i = 0; i < MEMORY_SLOTS; i++)
            if (members[m].saves[i].id.serial > highest)
                highest = members[m].saves[i].id.serial;
    return highest;
}

/* The slot in which a member has it; -1: none */
static int slot_of(const struct memory_member *member, struct memory_id id, unsigned rank,
                   unsigned n)
{
    for (int i = 0; i < MEMORY_SLOTS; i++)
        if (is_of(&member->saves[i], id, n) && member->saves[i].rank == rank)
            return i;
    return -1;
}

/* On how many nodes a state is: 0, 1, or 2 for more. */
static unsigned count_nodes(const struct memory_member *members, unsigned n, struct memory_id id,
                            unsigned rank)
{
    const struct memory_member *first = NULL;
    for (unsigned m = 0; m < n; m++) {
        if (slot_of(&members[m], id, rank, n) < 0)
            continue;
        if (first != NULL && first->node != members[m].node)
            return 2;
        first = &members[m];
    }
    return first != NULL ? 1 : 0;
}

struct memory_id memory_plan_copied(const struct memory_member *members, unsigned n)
{
    const struct memory_id none = {0, 0};
    struct memory_id before = {UINT64_MAX, UINT64_MAX};
    for (;;) {
        const struct memory_save *s = newest_before(members, n, before);
        unsigned rank = 0;
        if (s == NULL)
            return none;
        while (rank < n && count_nodes(members, n, s->id, rank) == 2)
            rank++;
        if (s->id.serial > 0 && rank == n)
            return s->id;
        before = s->id;
    }
}

static bool has_state(const struct memory_member *members, unsigned n, struct memory_id id,
                      unsigned rank, unsigned world_size)
{
    unsigned m = 0;
    while (m < n && slot_of(&members[m], id, rank, world_size) < 0)
        m++;
    return m < n;
}

struct memory_id memory_plan_newest(const struct memory_member *members, unsigned n)
{
    const struct memory_id none = {0, 0};
    struct memory_id before = {UINT64_MAX, UINT64_MAX};
    for (;;) {
        const struct memory_save *s = newest_before(members, n, before);
        unsigned rank = 0;
        if (s == NULL)
            return none;
        if (s->world_size <= n * MEMORY_SLOTS) /* else some states are missing */
            while (rank < s->world_size && has_state(members, n, s->id, rank, s->world_size))
                rank++;
        if (s->id.serial > 0 && s->world_size > 0 && rank == s->world_size)
            return s->world_size == n ? s->id : none;
        before = s->id;
    }
}

int memory_plan_holder(const struct memory_member *members, unsigned n, struct memory_id id,
                       unsigned rank, unsigned *ret_slot)
{
    int holder = -1;
    int slot = slot_of(&members[rank], id, rank, n);
    if (slot >= 0)
        holder = (int)rank;
    for (unsigned m = 0; m < n && holder != (int)rank; m++) {
        const bool is_near = members[m].node == members[rank].node;
        if (holder >= 0 && !is_near)
            continue;
        const int found = slot_of(&members[m], id, rank, n);
        if (found < 0)
            continue;
        holder = (int)m;
        slot = found;
        if (is_near)
            break;
    }
    if (holder >= 0)
        *ret_slot = (unsigned)slot;
    return holder;
}

unsigned memory_plan_distance(const struct memory_member *members, unsigned n)
{
    for (unsigned distance = 1; distance < n; distance++) {
        unsigned r = 0;
        while (r < n && members[r].node != members[(r + distance) % n].node)
            r++;
        if (r == n)
            return distance;
    }
    return 0;
}

static bool stays(const struct memory_save *s, const struct memory_keep *keep)
{
    return memory_id_same(s->id, keep->all[0]) || memory_id_same(s->id, keep->all[1]) ||
           (memory_id_same(s->id, keep->own) && s->rank == keep->rank);
}

int memory_plan_slot(const struct memory_save saves[MEMORY_SLOTS], unsigned n_slots,
                     const struct memory_keep *keep)
{
    int best = -1;
    for (unsigned i = 0, seen = 0; i < MEMORY_SLOTS && seen < n_slots; i++) {
        if ((keep->lent >> i & 1) != 0)
            continue;
        seen++;
        if (saves[i].is_whole == 0)
            return (int)i;
        if (stays(&saves[i], keep))
            continue;
        if (best < 0 || is_older(saves[i].id, saves[best].id))
            best = (int)i;
    }
    return best;
}

int memory_plan_slot_to_load(const struct memory_save saves[MEMORY_SLOTS], struct memory_id id,
                             struct memory_id copied, unsigned lent)
{
    const struct memory_keep both = {.all = {id, copied}, .lent = lent};
    const struct memory_keep one = {.all = {id}, .lent = lent};
    const int slot = memory_plan_slot(saves, MEMORY_SLOTS, &both);
    return slot >= 0 ? slot : memory_plan_slot(saves, MEMORY_SLOTS, &one);
}

bool memory_plan_keeps(const struct memory_save *save, struct memory_id id, struct memory_id copied,
                       unsigned rank, int other)
{
    if (id.serial == 0)
        return true;
    if (save->is_whole != 0 && !memory_id_same(copied, id) && memory_id_same(save->id, copied))
        return true;
    return save->is_whole != 0 && memory_id_same(save->id, id) &&
           (save->rank == rank || (other >= 0 && save->rank == (unsigned)other));
}
