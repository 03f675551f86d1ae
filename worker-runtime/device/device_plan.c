#include "device_plan.h"

#include "common/hash.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

static bool can_shrink(const struct device_note *note, int n)
{
    const int n_old = note[0].n;
    int last = -1;
    if (note[0].tag == 0 || n_old <= n || n_old > DEVICE_MOST_RANKS)
        return false;
    for (int r = 0; r < n; r++) {
        if (note[r].tag != note[0].tag || note[r].n != n_old || note[r].rank <= last ||
            note[r].rank >= n_old)
            return false;
        last = note[r].rank;
    }
    return true;
}

/* The ranks of the old one that no present rank continues. */
static int list_lost(struct device_plan *p, const struct device_note *note, int n)
{
    int next = 0;
    p->lost = malloc((size_t)(note[0].n - n) * sizeof *p->lost);
    if (p->lost == NULL)
        return -ENOMEM;
    for (int old = 0; old < note[0].n; old++) {
        if (next < n && note[next].rank == old)
            next++;
        else
            p->lost[p->n_lost++] = old;
    }
    return 0;
}

int device_plan_init(struct device_plan *p, const struct device_note *note, int n)
{
    bool can_scale = true;
    *p = (struct device_plan){0};
    for (int r = 0; r < n; r++) {
        if (note[r].ok != 1) {
            p->bad = r;
            return 0;
        }
        can_scale = can_scale && note[r].can_scale == 1;
    }
    p->bad = -1;
    p->n_roots = can_scale ? (n + DEVICE_RANKS_PER_ROOT - 1) / DEVICE_RANKS_PER_ROOT : 1;
    p->way = can_shrink(note, n) ? DEVICE_SHRINK : DEVICE_NEW;
    return p->way == DEVICE_SHRINK ? list_lost(p, note, n) : 0;
}

void device_plan_fini(struct device_plan *p)
{
    free(p->lost);
    p->lost = NULL;
}

int device_plan_root(int k, int n, int n_roots)
{
    const int each = n / n_roots, longer = n % n_roots; /* the first blocks have one more */
    return k * each + (k < longer ? k : longer);
}

static uint64_t never_zero(uint64_t hash)
{
    return hash != 0 ? hash : 1;
}

uint64_t device_plan_tag_new(const uint8_t *ids, size_t bytes)
{
    return never_zero(co_hash_bytes(CO_HASH_START, ids, bytes));
}

uint64_t device_plan_tag_shrunk(uint64_t tag, const struct device_plan *p)
{
    uint64_t hash = co_hash_number(CO_HASH_START, tag);
    for (int i = 0; i < p->n_lost; i++)
        hash = co_hash_number(hash, (uint64_t)p->lost[i]);
    return never_zero(hash);
}
