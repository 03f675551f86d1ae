/* algo_large.c - what is too large to be sent around at once: every rank publishes where its memory
 * is, all rendezvous, and each chooses the same algorithm from what all have published.
 *
 * A rank that cannot be read directly fills the first piece of its mailbox before the rendezvous:
 * if the call is to be staged, which then is likely, that saves a step. */
#include "cpu.h"
#include "worker-runtime/core/user_segment.h"

/* --- before the rendezvous -------------------------------------------------------------------- */

static bool overlaps(const struct cpu *c)
{
    const uintptr_t in = (uintptr_t)c->job.in, out = (uintptr_t)c->job.out;
    return in < out + layout_out_bytes(&c->job.layout) &&
           out < in + layout_in_bytes(&c->job.layout);
}

static struct transport_shm_place place_of(struct cpu *c)
{
    const struct layout *l = &c->job.layout;
    const bool gives = layout_gives(l, c->rank), gets = layout_gets(l, c->rank);
    struct transport_shm_place place = {
        .pid = c->pid, .probe = (uint64_t)&c->cma_probe, .most = l->most};
    place.has_in = gives && user_segment_find(c->own, c->job.in, layout_in_bytes(l), &place.in);
    place.has_out = gets && user_segment_find(c->own, c->job.out, layout_out_bytes(l), &place.out);
    if (!place.has_in)
        place.in = (uint64_t)c->job.in;
    if (!place.has_out)
        place.out = (uint64_t)c->job.out;
    place.is_in_place = gives && gets && overlaps(c);
    return place;
}

static int open_large(struct cpu *c, struct co_error *err)
{
    const struct layout *l = &c->job.layout;
    union transport_shm_note *note;
    int code = transport_shm_open(c->shm, &c->job.call, c->job.timeout_ms, &note, err);
    if (code != 0)
        return code;
    note->place = place_of(c);
    struct cpu_table *table = cpu_table(c, c->rank);
    for (unsigned r = 0; layout_has_pairs(l) && r < c->n; r++) {
        const struct slice block = layout_in(l, r);
        table[r] = (struct cpu_table){block.first, block.count};
    }
    if (!layout_has_pairs(l) && !note->place.has_in && !(c->cma == CMA_ON && cma_is_worth_it(c))) {
        staged_fill_first(c);
        note->place.has_filled = true;
    }
    transport_shm_arrive(c->shm);
    return ALGO_STEP;
}

/* --- after it --------------------------------------------------------------------------------- */

/* all_to_all_v: does every other rank have for this one what it expects? */
static bool tables_agree(struct cpu *c)
{
    struct layout *l = &c->job.layout;
    for (unsigned r = 0; r < c->n; r++) {
        const uint64_t most = cpu_place(c, r)->most;
        l->most = most > l->most ? most : l->most;
        if (cpu_table(c, r)[c->rank].count == l->counts[r])
            continue;
        transport_shm_tell_disagreement(c->shm, r);
        return false;
    }
    return true;
}

/* Whether every rank has its memory where the others can reach it. */
static bool can_be_direct(const struct cpu *c)
{
    const struct layout *l = &c->job.layout;
    for (unsigned r = 0; r < c->n; r++) {
        const struct transport_shm_place *place = cpu_place(c, r);
        bool needs_out =
            l->kind == CALL_ALL_REDUCE || (l->kind == CALL_REDUCE && l->root == (int)r);
        if ((layout_gives(l, r) && !place->has_in) || (needs_out && !place->has_out))
            return false;
    }
    return true;
}

/* A block that is read by one rank while another writes over it has to be staged. */
static bool must_be_staged(const struct cpu *c)
{
    for (unsigned r = 0; r < c->n; r++)
        if (c->job.layout.kind == CALL_ALL_TO_ALL && cpu_place(c, r)->is_in_place)
            return true;
    return false;
}

static int algo_begin(struct cpu *c, cpu_algo *algo, struct co_error *err)
{
    c->job.algo = algo;
    c->job.stage = 0;
    return algo(c, 0, err);
}

static int algo_choose(struct cpu *c, struct co_error *err)
{
    const bool direct = !must_be_staged(c) && can_be_direct(c);
    if (direct)
        return algo_begin(c, algo_direct, err);
    if (must_be_staged(c) || !cma_is_worth_it(c))
        return algo_begin(c, algo_staged, err);
    if (c->cma == CMA_UNKNOWN) {
        cma_ask(c);
        transport_shm_arrive(c->shm);
        return ALGO_STEP;
    }
    return algo_begin(c, algo_cma, err);
}

int algo_large(struct cpu *c, size_t stage, struct co_error *err)
{
    if (stage == 0)
        return open_large(c, err);
    if (stage == 1 && layout_has_pairs(&c->job.layout) && !tables_agree(c))
        return transport_shm_fail(c->shm, err);
    if (stage == 2)
        cma_agree(c);
    return algo_choose(c, err);
}
