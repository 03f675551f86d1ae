/* shape_staged.c - through the mailboxes piece by piece. In each stage a rank fills the buffer of
 * one piece, works on the one before, and reads the one before that: three buffers, so no two ranks
 * are at the same one for different ends. Pieces are numbered since the start of the group. */
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

void staged_fill_first(struct cpu *c)
{
    cpu_fill(c, cpu_buffer(c, c->rank, c->pieces), pitch_of(c), piece_of(c, 0));
}

/* Whether there is a stage between filling and reading: of a sum that several ranks want, each
 * works out a part. */
static bool is_shared_sum(const struct cpu *c)
{
    return c->job.layout.kind == CALL_ALL_REDUCE || c->job.layout.kind == CALL_REDUCE;
}

/* This rank's part of the sum replaces the same part of its own buffer, which nobody else reads for
 * the sum. */
static void reduce_part(struct cpu *c, size_t i)
{
    const size_t size = c->job.layout.size;
    const struct slice part = slice_of(piece_of(c, i).count, size, c->rank, c->n);
    for (unsigned r = 0; r < c->n; r++)
        c->in[r] = cpu_buffer(c, r, c->job.first + i) + part.first * size;
    c->out[0] = cpu_buffer(c, c->rank, c->job.first + i) + part.first * size;
    cpu_kernel(c, 1, part.count);
}

static void read_parts(struct cpu *c, size_t i)
{
    const size_t size = c->job.layout.size;
    const struct slice piece = piece_of(c, i);
    for (unsigned r = 0; layout_gets(&c->job.layout, c->rank) && r < c->n; r++) {
        struct slice part = slice_of(piece.count, size, r, c->n);
        cpu_copy(c->job.out + (piece.first + part.first) * size,
                 cpu_buffer(c, r, c->job.first + i) + part.first * size, part.count * size);
    }
}

static void read_piece(struct cpu *c, size_t i)
{
    if (is_shared_sum(c)) {
        read_parts(c, i);
        return;
    }
    for (unsigned r = 0; r < c->n; r++)
        c->in[r] = cpu_buffer(c, r, c->job.first + i);
    cpu_take(c, pitch_of(c), piece_of(c, i));
}

/* If all who give had filled their first piece before the meeting, that was stage 0. */
static bool all_have_filled(const struct cpu *c)
{
    const struct layout *l = &c->job.layout;
    for (unsigned r = 0; r < c->n; r++)
        if (layout_gives(l, r) && !cpu_place(c, r)->has_filled)
            return false;
    return true;
}

static void begin(struct cpu *c)
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
static int work_staged(struct cpu *c, size_t stage, struct co_error *err)
{
    struct job *j = &c->job;
    (void)err;
    if (stage == 0) {
        begin(c);
        stage = j->stage;
    }
    if (stage < j->n_pieces)
        cpu_fill(c, cpu_buffer(c, c->rank, j->first + stage), pitch_of(c), piece_of(c, stage));
    if (j->lag == 2 && stage >= 1 && stage - 1 < j->n_pieces)
        reduce_part(c, stage - 1);
    if (stage >= j->lag)
        read_piece(c, stage - j->lag);
    if (stage + 1 == j->n_pieces + j->lag)
        return SHAPE_DONE;
    transport_shm_arrive(c->shm);
    return SHAPE_STEP;
}

const struct shape shape_staged = {"staged", work_staged};
