/* algo_small.c - small collectives: through the notes, or through the mailboxes in one piece. One
 * rendezvous, after which every rank reads what it needs. */
#include "cpu.h"

void cpu_fill(struct cpu *c, uint8_t *buffer, size_t pitch, struct slice s)
{
    const struct layout *l = &c->job.layout;
    if (!layout_gives(l, c->rank))
        return;
    for (unsigned b = 0; b < layout_n_blocks(l); b++) {
        struct slice block = layout_in(l, b);
        size_t count = cpu_clip(s, block.count);
        /* only this rank reads its own block, and knows where it is */
        const bool stays = layout_deals(l) && b == c->rank;
        if (count > 0 && !stays)
            cpu_copy(buffer + b * pitch, c->job.in + (block.first + s.first) * l->size,
                     count * l->size);
    }
}

/* Where slice `s` of what `rank` has for this rank lies. */
static const uint8_t *source(const struct cpu *c, unsigned rank, size_t pitch, struct slice s)
{
    const struct layout *l = &c->job.layout;
    if (rank == c->rank && layout_gives(l, rank))
        return c->job.in + (layout_in(l, rank).first + s.first) * l->size;
    return (const uint8_t *)c->in[rank] + (layout_deals(l) ? c->rank * pitch : 0);
}

static void take_from(struct cpu *c, unsigned rank, size_t pitch, struct slice s)
{
    const struct layout *l = &c->job.layout;
    struct slice block = layout_out(l, rank);
    size_t count = cpu_clip(s, block.count);
    if (count > 0)
        cpu_copy(c->job.out + (block.first + s.first) * l->size, source(c, rank, pitch, s),
                 count * l->size);
}

static void take_sum(struct cpu *c, size_t pitch, struct slice s)
{
    const struct layout *l = &c->job.layout;
    size_t count = cpu_clip(s, layout_out(l, 0).count);
    if (count == 0)
        return;
    for (unsigned r = 0; r < c->n; r++)
        c->in[r] = source(c, r, pitch, s);
    c->out[0] = c->job.out + s.first * l->size;
    cpu_kernel(c, 1, count);
}

void cpu_take(struct cpu *c, size_t pitch, struct slice s)
{
    const struct layout *l = &c->job.layout;
    if (!layout_gets(l, c->rank) || l->most == 0)
        return;
    if (call_is_reduction(l->kind)) {
        take_sum(c, pitch, s);
    } else if (layout_collects(l)) {
        for (unsigned r = 0; r < c->n; r++)
            take_from(c, r, pitch, s);
    } else if (l->kind != CALL_BARRIER) {
        take_from(c, (unsigned)l->root, pitch, s);
    }
}

/* The compiler knows which of the two it is. A buffer is free to be filled: its last readers were
 * done before this rank's rendezvous with them in the previous call. */
static inline int work_small(struct cpu *c, size_t stage, bool on_note, struct co_error *err)
{
    const struct layout *l = &c->job.layout;
    const size_t pitch = l->most * l->size;
    const struct slice all = {0, l->most};
    if (stage == 0) {
        union transport_shm_note *note;
        int code = transport_shm_open(c->shm, &c->job.call, c->job.timeout_ms, &note, err);
        if (code != 0)
            return code;
        cpu_fill(c, on_note ? note->bytes : cpu_buffer(c, c->rank, c->pieces), pitch, all);
        transport_shm_arrive(c->shm);
        return ALGO_STEP;
    }
    for (unsigned r = 0; r < c->n; r++)
        c->in[r] = on_note ? transport_shm_note(c->shm, r)->bytes : cpu_buffer(c, r, c->pieces);
    cpu_take(c, pitch, all);
    c->pieces += !on_note;
    return ALGO_DONE;
}

int algo_note(struct cpu *c, size_t stage, struct co_error *err)
{
    return work_small(c, stage, true, err);
}

int algo_one_shot(struct cpu *c, size_t stage, struct co_error *err)
{
    return work_small(c, stage, false, err);
}
