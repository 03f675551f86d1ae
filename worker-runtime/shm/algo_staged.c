/* algo_staged.c - through the mailboxes piece by piece. Pieces are numbered since the start of the
 * group, and take turns in two buffers.
 *
 * Where blocks are only passed on, or each rank alone wants its part of a sum, a piece takes two
 * stages: its owner fills a buffer, and in the next stage the others read it. So a buffer is filled
 * again when its last readers have come one step further.
 *
 * A sum that several ranks want takes three. Its owner fills a buffer with the parts that others
 * will work out; each of them folds its part out of all buffers and its own `in`, and puts the
 * result into its own `out` and back into the buffers, in place of what it has read there; last the
 * owner reads its own buffer. So each cache line goes to one other rank and back, and no other rank
 * touches it: half of what it costs to publish a result elsewhere. */
#include "cpu.h"

/* Bytes of a buffer for each block that goes into it: a line at least, which fits for as many ranks
 * as there can be. */
static size_t pitch_of(const struct cpu *c)
{
    const size_t pitch = c->tuning.piece_bytes / layout_n_blocks(&c->job.layout) & ~(size_t)63;
    return pitch > 0 ? pitch : 64;
}
_Static_assert(CPU_TUNING_MOST_RANKS * 64 <= BUFFER_BYTES, "a line for each rank");

static struct slice piece_of(const struct cpu *c, size_t i)
{
    return slice_piece(c->job.layout.most, pitch_of(c) / c->job.layout.size, i);
}

/* --- a sum that several ranks want ------------------------------------------------------------ */

static bool is_shared_sum(const struct cpu *c)
{
    return c->job.layout.kind == CALL_ALL_REDUCE || c->job.layout.kind == CALL_REDUCE;
}

static struct slice part_of(const struct cpu *c, struct slice piece, unsigned rank)
{
    return slice_of(piece.count, c->job.layout.size, rank, c->n);
}

/* Copy what of a piece lies before and after this rank's own part. */
static void copy_others(const struct cpu *c, uint8_t *to, const uint8_t *from, struct slice piece)
{
    const size_t size = c->job.layout.size;
    const struct slice own = part_of(c, piece, c->rank);
    const size_t behind = (own.first + own.count) * size;
    cpu_copy(to, from, own.first * size);
    cpu_copy(to + behind, from + behind, piece.count * size - behind);
}

static void reduce_part(struct cpu *c, size_t i)
{
    const size_t size = c->job.layout.size;
    const struct slice piece = piece_of(c, i), part = part_of(c, piece, c->rank);
    const size_t at = (piece.first + part.first) * size;
    unsigned n_out = 0;
    for (unsigned r = 0; r < c->n; r++) {
        uint8_t *theirs = cpu_buffer(c, r, c->job.first + i) + part.first * size;
        c->in[r] = r == c->rank ? c->job.in + at : theirs;
        if (layout_gets(&c->job.layout, r))
            c->out[n_out++] = r == c->rank ? c->job.out + at : theirs;
    }
    cpu_kernel(c, n_out, part.count);
}

/* --- any collective --------------------------------------------------------------------------- */

static void fill_piece(struct cpu *c, uint64_t first, size_t i)
{
    uint8_t *buffer = cpu_buffer(c, c->rank, first + i);
    const struct slice piece = piece_of(c, i);
    if (is_shared_sum(c))
        copy_others(c, buffer, c->job.in + piece.first * c->job.layout.size, piece);
    else
        cpu_fill(c, buffer, pitch_of(c), piece);
}

static void read_piece(struct cpu *c, size_t i)
{
    const struct slice piece = piece_of(c, i);
    for (unsigned r = 0; r < c->n; r++)
        c->in[r] = cpu_buffer(c, r, c->job.first + i);
    if (!is_shared_sum(c))
        cpu_take(c, pitch_of(c), piece);
    else if (layout_gets(&c->job.layout, c->rank))
        copy_others(c, c->job.out + piece.first * c->job.layout.size, c->in[c->rank], piece);
}

void staged_fill_first(struct cpu *c)
{
    fill_piece(c, c->pieces, 0);
}

/* If all ranks that give had filled their first piece before the rendezvous, that was stage 0. */
static bool all_have_filled(const struct cpu *c)
{
    const struct layout *l = &c->job.layout;
    for (unsigned r = 0; r < c->n; r++)
        if (layout_gives(l, r) && !cpu_place(c, r)->has_filled)
            return false;
    return true;
}

static void pieces_begin(struct cpu *c)
{
    struct job *j = &c->job;
    const size_t most = pitch_of(c) / j->layout.size;
    j->n_pieces = j->layout.most / most + (j->layout.most % most != 0);
    j->first = c->pieces;
    j->lag = is_shared_sum(c) ? 2 : 1;
    c->pieces += j->n_pieces;
    if (all_have_filled(c)) /* else those who had fill it again, along with the others */
        j->stage = 1;
}

/* The engine counts the stage up by one for each step. */
int algo_staged(struct cpu *c, size_t stage, struct co_error *err)
{
    struct job *j = &c->job;
    (void)err;
    if (stage == 0) {
        pieces_begin(c);
        stage = j->stage;
    }
    if (stage >= j->lag) /* before its buffer is filled again */
        read_piece(c, stage - j->lag);
    if (stage < j->n_pieces)
        fill_piece(c, j->first, stage);
    if (j->lag == 2 && stage >= 1 && stage - 1 < j->n_pieces)
        reduce_part(c, stage - 1);
    if (stage + 1 == j->n_pieces + j->lag) {
        cpu_hear_found(c);
        return ALGO_DONE;
    }
    cpu_tell_found(c);
    transport_shm_arrive(c->shm);
    return ALGO_STEP;
}
