/* algo_direct.c - in place, if the memory of the ranks that give lies in user segments: after the
 * rendezvous every rank takes what it needs from where it lies; a sum is divided, and each rank's
 * part goes to every rank's `out`. A last step shows that the peers have done with one's memory. */
#include "cpu.h"

/* Piece `i` of what this rank adds up. In an all_reduce or reduce it is its part of every rank's
 * `in`, for every rank's `out`, or root's; in a reduce_scatter its block, for its own `out`.
 * Returns false after the last one. */
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
    /* A rank that gave its memory to peers waits until they have done with it; a rank that gave
     * none may return. */
    return writes || layout_gives(l, c->rank) ? ALGO_STEP : ALGO_DONE;
}
