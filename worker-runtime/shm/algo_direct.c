/* algo_direct.c - in place, where the memory of those who give lies in user segments: after the
 * meeting everybody takes what it needs from where it lies; a sum is shared out, and each rank's
 * part goes to everybody's `out`. A last step says that the others have done with one's memory. */
#include "cpu.h"

/* Piece `i` of what this rank adds up. Of an all_reduce or reduce it is its part of everybody's
 * `in`, for everybody's `out`, or root's; of a reduce_scatter its block, for its own `out`. Returns
 * false behind the last one. */
static bool reduce_piece(struct cpu *c, size_t i)
{
    const struct layout *l = &c->job.layout;
    const bool is_own = l->kind == CALL_REDUCE_SCATTER;
    const struct slice part =
        is_own ? layout_in_of(l, c->rank) : slice_of(l->count, l->size, c->rank, c->n);
    const struct slice piece = slice_piece(part.count, PIECE_BYTES / l->size, i);
    const size_t offset = (part.first + piece.first) * l->size;
    unsigned n_out = 0;
    for (unsigned r = 0; r < c->n; r++) {
        c->in[r] = c->user[r] + cpu_place(c, r)->in + offset;
        if (l->kind == CALL_ALL_REDUCE || (l->kind == CALL_REDUCE && l->root == (int)r))
            c->out[n_out++] = c->user[r] + cpu_place(c, r)->out + offset;
    }
    if (is_own)
        c->out[n_out++] = c->job.out + piece.first * l->size;
    cpu_kernel(c, n_out, piece.count);
    return piece.count > 0;
}

/* Piece by piece, until all is added up or the group breaks. returns whether it is whole */
static bool reduce_pieces(struct cpu *c)
{
    bool ok = true;
    for (size_t i = 0; ok && reduce_piece(c, i); i++)
        ok = !transport_shm_is_broken(c->shm);
    return ok;
}

int algo_direct(struct cpu *c, size_t stage, struct co_error *err)
{
    if (stage > 0) {
        cpu_hear_found(c);
        return ALGO_DONE;
    }
    const struct layout *l = &c->job.layout;
    const bool writes = l->kind == CALL_ALL_REDUCE || l->kind == CALL_REDUCE;
    const bool ok = transport_shm_touch_begin(c->shm, writes) &&
                    (call_is_reduction(l->kind) ? reduce_pieces(c) : cma_collect(c));
    transport_shm_touch_end(c->shm);
    if (!ok)
        return transport_shm_fail(c->shm, err);
    cpu_tell_found(c);
    transport_shm_arrive(c->shm);
    /* Who gave its memory to others waits until they have done with it; who gave none may go. */
    return writes || layout_gives(l, c->rank) ? ALGO_STEP : ALGO_DONE;
}
