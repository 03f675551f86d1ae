/* algo_direct.c - in place, where the memory of those who give lies in user segments: after the
 * meeting everybody takes what it needs from where it lies; a sum is shared out, and each rank's
 * part goes to everybody's `out`. A last step says that the others have done with one's memory. */
#include "cpu.h"

static const uint8_t *in_of(const struct cpu *c, unsigned rank)
{
    return c->user[rank] + cpu_place(c, rank)->in;
}

static uint8_t *out_of(const struct cpu *c, unsigned rank)
{
    return c->user[rank] + cpu_place(c, rank)->out;
}

/* Piece `i` of this rank's part of an all_reduce or reduce: from everybody's `in` to everybody's
 * `out`, or to root's. Returns false behind the last one. */
static bool reduce_piece(struct cpu *c, size_t i)
{
    const struct layout *l = &c->job.layout;
    const struct slice part = slice_of(l->count, l->size, c->rank, c->n);
    const struct slice piece = slice_piece(part.count, PIECE_BYTES / l->size, i);
    const size_t offset = (part.first + piece.first) * l->size;
    unsigned n_out = 0;
    for (unsigned r = 0; r < c->n; r++) {
        c->in[r] = in_of(c, r) + offset;
        if (l->kind == CALL_ALL_REDUCE || l->root == (int)r)
            c->out[n_out++] = out_of(c, r) + offset;
    }
    cpu_kernel(c, n_out, piece.count);
    return piece.count > 0;
}

/* The same of a reduce_scatter: from this rank's block of everybody's `in` to its own `out`. */
static bool reduce_scatter_piece(struct cpu *c, size_t i)
{
    const struct layout *l = &c->job.layout;
    const struct slice block = layout_in_of(l, c->rank);
    const struct slice piece = slice_piece(block.count, PIECE_BYTES / l->size, i);
    if (piece.count == 0)
        return false;
    for (unsigned r = 0; r < c->n; r++)
        c->in[r] = in_of(c, r) + (block.first + piece.first) * l->size;
    c->out[0] = c->job.out + piece.first * l->size;
    cpu_kernel(c, 1, piece.count);
    return true;
}

/* Piece `i` of what this rank fetches from `rank`. */
static bool fetch_from(struct cpu *c, unsigned rank, size_t i)
{
    const struct layout *l = &c->job.layout;
    const struct slice from = cpu_in_of(c, rank), to = layout_out(l, rank);
    const struct slice piece = slice_piece(from.count, PIECE_BYTES / l->size, i);
    if (piece.count == 0)
        return false;
    const uint8_t *in = rank == c->rank ? c->job.in : in_of(c, rank);
    cpu_copy(c->job.out + (to.first + piece.first) * l->size,
             in + (from.first + piece.first) * l->size, piece.count * l->size);
    return true;
}

static bool fetch_piece(struct cpu *c, size_t i)
{
    const struct layout *l = &c->job.layout;
    bool more = false;
    if (!layout_gets(l, c->rank))
        return false;
    if (!layout_collects(l))
        return fetch_from(c, (unsigned)l->root, i);
    for (unsigned k = 0; k < c->n; k++) /* not all of them at the same rank's memory */
        more |= fetch_from(c, (c->rank + k) % c->n, i);
    return more;
}

static bool work_on_piece(struct cpu *c, size_t i)
{
    if (c->job.layout.kind == CALL_REDUCE_SCATTER)
        return reduce_scatter_piece(c, i);
    return call_is_reduction(c->job.layout.kind) ? reduce_piece(c, i) : fetch_piece(c, i);
}

static int work_direct(struct cpu *c, size_t stage, struct co_error *err)
{
    if (stage > 0) {
        cpu_hear_found(c);
        return ALGO_DONE;
    }
    const struct layout *l = &c->job.layout;
    const bool writes = l->kind == CALL_ALL_REDUCE || l->kind == CALL_REDUCE;
    bool ok = transport_shm_touch_begin(c->shm, writes), more = true;
    for (size_t i = 0; ok && more; i++) {
        more = work_on_piece(c, i);
        ok = !transport_shm_is_broken(c->shm);
    }
    transport_shm_touch_end(c->shm);
    if (!ok)
        return transport_shm_fail(c->shm, err);
    cpu_tell_found(c);
    transport_shm_arrive(c->shm);
    /* Who gave its memory to others waits until they have done with it; who gave none may go. */
    return writes || layout_gives(l, c->rank) ? ALGO_STEP : ALGO_DONE;
}

const struct algo algo_direct = {"direct", work_direct};
