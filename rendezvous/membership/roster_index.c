#include "roster_index.h"

#include <errno.h>
#include <stdlib.h>

enum { MIN_CELLS = 16 };

void roster_index_fini(struct roster_index *x)
{
    free(x->cells);
    *x = (struct roster_index){0};
}

uint64_t roster_index_hash(uint64_t a, uint64_t b)
{
    uint64_t h = a * 0x9e3779b97f4a7c15u ^ (b + 0x7f4a7c159e3779b9u);
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

/* The table is never more than half full, so a free cell ends each walk. */
static size_t next_cell(const struct roster_index *x, size_t i)
{
    return (i + 1) & (x->n_cells - 1);
}

void roster_index_add(struct roster_index *x, uint64_t hash, uint32_t slot)
{
    size_t i = hash & (x->n_cells - 1);
    while (x->cells[i].slot != ROSTER_NO_SLOT)
        i = next_cell(x, i);
    x->cells[i] = (struct roster_index_cell){hash, slot};
    x->n_used++;
}

int roster_index_reserve(struct roster_index *x, size_t n)
{
    size_t n_cells = x->n_cells > 0 ? x->n_cells : MIN_CELLS;
    while (n_cells < 2 * n)
        n_cells *= 2;
    if (n_cells == x->n_cells)
        return 0;
    struct roster_index bigger = {.n_cells = n_cells};
    bigger.cells = malloc(n_cells * sizeof *bigger.cells);
    if (bigger.cells == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n_cells; i++)
        bigger.cells[i].slot = ROSTER_NO_SLOT;
    for (size_t i = 0; i < x->n_cells; i++)
        if (x->cells[i].slot != ROSTER_NO_SLOT)
            roster_index_add(&bigger, x->cells[i].hash, x->cells[i].slot);
    free(x->cells);
    *x = bigger;
    return 0;
}

/* Close the gap: each entry after it that a search would not find across the gap moves into it. */
static void close_gap(struct roster_index *x, size_t gap)
{
    for (size_t i = next_cell(x, gap); x->cells[i].slot != ROSTER_NO_SLOT; i = next_cell(x, i)) {
        size_t home = x->cells[i].hash & (x->n_cells - 1);
        size_t from_home = (i - home) & (x->n_cells - 1);
        size_t from_gap = (i - gap) & (x->n_cells - 1);
        if (from_home < from_gap)
            continue;
        x->cells[gap] = x->cells[i];
        gap = i;
    }
    x->cells[gap].slot = ROSTER_NO_SLOT;
}

void roster_index_remove(struct roster_index *x, uint64_t hash, uint32_t slot)
{
    size_t i = hash & (x->n_cells - 1);
    while (x->cells[i].hash != hash || x->cells[i].slot != slot)
        i = next_cell(x, i);
    close_gap(x, i);
    x->n_used--;
}

uint32_t roster_index_find(const struct roster_index *x, uint64_t hash, size_t *at)
{
    if (x->n_cells == 0)
        return ROSTER_NO_SLOT;
    for (;;) {
        const struct roster_index_cell *c = &x->cells[(hash + (*at)++) & (x->n_cells - 1)];
        if (c->slot == ROSTER_NO_SLOT || c->hash == hash)
            return c->slot;
    }
}
