/* fuzz_memory.c - the entries that ranks send each other when they look for a checkpoint in memory:
 * of up to 8 ranks, two on each node, 4 saves of 64 bytes each. Whatever they contain: what is
 * loaded is there for each rank, and no slot that is kept is written. */
#include "fuzz.h"
#include "worker-runtime/memory/memory_slots.h"

#include <string.h>

enum { MOST = 8, SAVE_BYTES = 64 };
_Static_assert(sizeof(struct memory_save) == SAVE_BYTES, "as in the corpus");

static void check_loads(const struct memory_member *members, unsigned n, struct memory_id id)
{
    for (unsigned rank = 0; rank < n; rank++) {
        unsigned slot = MEMORY_SLOTS;
        const int holder = memory_plan_holder(members, n, id, rank, &slot);
        require(holder >= 0 && holder < (int)n && slot < MEMORY_SLOTS);
        const struct memory_save *s = &members[holder].saves[slot];
        require(memory_id_same(s->id, id) && s->rank == rank && s->world_size == n);
    }
}

static void check_slots(const struct memory_member *m, struct memory_id id)
{
    const struct memory_keep keep = {.all = {id}, .own = m->saves[0].id, .rank = 0};
    for (unsigned n_slots = 0; n_slots <= MEMORY_SLOTS; n_slots++) {
        const int slot = memory_plan_slot(m->saves, n_slots, &keep);
        require(slot >= -1 && slot < (int)n_slots);
        if (slot < 0 || m->saves[slot].is_whole == 0)
            continue;
        require(!memory_id_same(m->saves[slot].id, keep.all[0]));
        require(!memory_id_same(m->saves[slot].id, keep.own) || m->saves[slot].rank != 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_member members[MOST];
    struct memory_slots slots = {.all = {.n_ranks = 2, .slot_bytes = 1 << 20}};
    memset(members, 0, sizeof members);
    unsigned n = 0;
    for (; n < MOST && size >= SAVE_BYTES * MEMORY_SLOTS; n++) {
        memcpy(members[n].saves, data, sizeof members[n].saves);
        members[n].node = n / 2;
        data += sizeof members[n].saves;
        size -= sizeof members[n].saves;
    }
    if (n == 0)
        return 0;
    const struct memory_id id = memory_plan_newest(members, n);
    if (id.serial != 0)
        check_loads(members, n, id);
    require(memory_plan_highest(members, n) >= id.serial);
    const struct memory_id copied = memory_plan_copied(members, n);
    if (copied.serial != 0)
        check_loads(members, n, copied);
    require(memory_plan_distance(members, n) < n);
    for (unsigned r = 0; r < n; r++) {
        check_slots(&members[r], id);
        for (unsigned i = 0; i < MEMORY_SLOTS; i++) {
            const struct memory_save *s = &members[r].saves[i];
            if (memory_slots_accept(&slots, s))
                require(s->bytes <= slots.all.slot_bytes && s->n_items <= s->bytes / 16);
        }
    }
    return 0;
}
