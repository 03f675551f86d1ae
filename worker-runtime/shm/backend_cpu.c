/* backend_cpu.c - collectives among the ranks of a node: which algorithm, and its stages one by
 * one.
 *
 * The algorithms, the same for all collectives (docs/design/collectives.md):
 *   note       the data rides on the call's note
 *   one-shot   through the mailboxes, one rendezvous, every rank reads everything
 *   direct     in place, where all buffers lie in user segments
 *   cma        in place, in memory of other processes, read by system call
 *   staged     through the mailboxes piece by piece, else
 * cpu_begin() chooses an algorithm and does its first stage, cpu_advance() waits for each step and
 * does the next stage: read these two first. The choice depends on the call's signature and on the
 * notes, so that all ranks choose the same. Results do not depend on the choice: the kernels fold
 * the ranks in their order, element by element. */
#include "backend_cpu.h"

#include "common/error.h"
#include "common/scope.h"
#include "cpu.h"
#include "segments/control.h"
#include "worker-runtime/core/user_segment.h"

#include <errno.h>
#include <stdlib.h>

static struct cpu *cpu_of(struct backend *b)
{
    return (struct cpu *)b;
}

/* --- a collective ----------------------------------------------------------------------------- */

/* By what all ranks know alike before their rendezvous. */
static cpu_algo *choose_algo(const struct cpu *c)
{
    const struct layout *l = &c->job.layout;
    const size_t blocks = layout_n_blocks(l), block = l->most * l->size;
    if (layout_has_pairs(l) || block > BUFFER_BYTES)
        return algo_large;
    if (block * blocks <= TRANSPORT_SHM_NOTE_BYTES)
        return algo_note;
    /* what one rank reads: a block from each rank, whole or one of several */
    if (block * blocks <= BUFFER_BYTES && block * c->n <= c->tuning.one_shot_bytes)
        return algo_one_shot;
    return algo_large;
}

/* A rank that is stuck in this one's memory gets another to write to. */
static int end_failed(struct cpu *c, int code, struct co_error *err)
{
    struct co_error why;
    c->job.is_open = false;
    if (!c->shm->must_withdraw || user_segment_withdraw(c->own, &why) == 0)
        return code;
    return co_fail(err, code, "%s; %s", err != NULL ? err->text : "", why.text);
}

static int cpu_begin(struct backend *b, const struct collective *what, struct co_error *err)
{
    struct cpu *c = cpu_of(b);
    struct job *j = &c->job;
    layout_init(&j->layout, what, c->rank, c->n, c->in_first, c->out_first);
    j->in = what->in;
    j->out = what->out;
    j->dtype = what->dtype;
    j->op = what->op;
    j->timeout_ms = what->timeout_ms;
    j->ret_found = what->found_inf;
    j->checked = j->ret_found != NULL ? c->kernels->checked[j->dtype][j->op] : NULL;
    j->found = false;
    j->call = what->whole != NULL ? *what->whole : layout_call(what, c->n);
    if (what->goes_on)
        c->shm->goes_on = true;
    j->seq++;
    j->stage = 0;
    j->algo = choose_algo(c);
    j->is_open = true;
    int code = j->algo(c, 0, err);
    return code < 0 ? end_failed(c, code, err) : 0;
}

static int cpu_advance(struct backend *b, bool may_wait, struct co_error *err)
{
    struct cpu *c = cpu_of(b);
    struct job *j = &c->job;
    while (j->is_open) {
        int code = transport_shm_wait(c->shm, may_wait, err);
        if (code == 0)
            return 0;
        if (code > 0)
            code = j->algo(c, ++j->stage, err);
        if (code < 0)
            return end_failed(c, code, err);
        if (code != ALGO_DONE)
            continue;
        j->is_open = false;
        transport_shm_close(c->shm);
        if (j->ret_found != NULL)
            *j->ret_found = j->found;
    }
    return 1;
}

/* --- messages --------------------------------------------------------------------------------- */

static int cpu_message_begin(struct backend *b, struct message *m, struct co_error *err)
{
    struct cpu *c = cpu_of(b);
    struct p2p_shm *ms = atomic_load(&c->messages);
    int code = ms == NULL ? p2p_shm_create(c, &ms, err) : 0;
    if (code != 0)
        return code;
    atomic_store(&c->messages, ms);
    p2p_shm_begin(ms, m);
    return 0;
}

static void cpu_p2p_advance(struct backend *b, const struct message *until)
{
    struct p2p_shm *ms = atomic_load(&cpu_of(b)->messages);
    if (until != NULL)
        p2p_shm_wait(ms, until);
    else if (ms != NULL)
        p2p_shm_advance(ms);
}

/* While a collective waits, messages continue. */
static bool on_idle(void *arg)
{
    struct cpu *c = arg;
    struct p2p_shm *ms = atomic_load(&c->messages);
    const bool more = ms != NULL && p2p_shm_advance(ms);
    return (c->on_idle != NULL && c->on_idle(c->idle_arg)) || more;
}

void backend_cpu_on_idle(struct backend *b, bool (*idle)(void *arg), void *arg)
{
    cpu_of(b)->on_idle = idle;
    cpu_of(b)->idle_arg = arg;
}

/* --- the job ---------------------------------------------------------------------------------- */

static int cpu_look(struct backend *b, struct co_error *err)
{
    const struct cpu *c = cpu_of(b);
    struct control *control = c->shm->control;
    for (unsigned r = 0; r < c->n; r++)
        if (r != c->rank) /* one that is found dead breaks the job */
            control_look(control, c->shm->member[r].local_rank);
    if (control_abort_get(control).cause == CONTROL_OK)
        return 0;
    return transport_shm_describe(c->shm, err);
}

static bool cpu_tell(struct backend *b, int code, const char *text)
{
    const struct cpu *c = cpu_of(b);
    struct control *control = c->shm->control;
    const unsigned own = c->shm->member[c->rank].local_rank;
    if (control_abort_get(control).cause != CONTROL_OK)
        return false;
    control_abort_tell(control, own, code, text);
    const struct control_abort why = control_abort_get(control);
    return why.cause == CONTROL_REPORTED && why.rank == own;
}

/* --- a group of some of the ranks ------------------------------------------------------------- */

/* All ranks of the parent exchange their color, key and block of memory; the members form the
 * group; then all exchange whether that succeeded, so that no rank is left waiting in a group that
 * another could not make. */

struct record { /* what a rank publishes, 24 bytes */
    int32_t color, key;
    uint64_t offset;  /* of its block */
    uint32_t arrived; /* of its block's counter */
    int32_t ok;
};

struct split {
    struct cpu *c;
    struct record mine, *all; /* `all`: one per rank of the parent */
    struct group_memory *memory;
    unsigned *rank;    /* the members' ranks in the parent, in the order of the new group */
    unsigned n, place; /* place: this rank's in it */
};

static int exchange(struct split *s, struct co_error *err)
{
    struct collective what = {.kind = CALL_GROUP_SPLIT,
                              .dtype = DDP_UINT8,
                              .count = sizeof s->mine,
                              .in = &s->mine,
                              .out = s->all};
    int code = backend_run(&s->c->backend, &what, err);
    for (unsigned r = 0; code == 0 && r < s->c->n; r++)
        if (!s->all[r].ok)
            code = co_fail(err, -ENOMEM, "rank %u is out of memory", r);
    return code;
}

/* By color; insertion keeps the order of ranks where keys are equal. */
static void choose_members(struct split *s)
{
    for (unsigned r = 0; r < s->c->n; r++) {
        if (s->all[r].color != s->mine.color)
            continue;
        unsigned at = s->n++;
        for (; at > 0 && s->all[s->rank[at - 1]].key > s->all[r].key; at--)
            s->rank[at] = s->rank[at - 1];
        s->rank[at] = r;
    }
    while (s->rank[s->place] != s->c->rank)
        s->place++;
}

static int make_transport(const struct split *s, struct transport_shm **ret, struct co_error *err)
{
    const struct cpu *c = s->c;
    struct transport_shm_member *member = calloc(s->n, sizeof *member);
    uint32_t start = s->mine.arrived; /* the latest of all */
    for (unsigned i = 0; member != NULL && i < s->n; i++) {
        const unsigned r = s->rank[i];
        if ((int32_t)(s->all[r].arrived - start) > 0) /* the counters wrap around */
            start = s->all[r].arrived;
        member[i] = group_memory_at(c->user[r], s->all[r].offset, c->shm->member[r].local_rank);
    }
    /* a number for messages: it most likely distinguishes groups that exist at the same time */
    const uint32_t number = s->c->n_splits * 131u + (uint32_t)s->mine.color + 1;
    struct transport_shm_opts opts = {.control = c->shm->control,
                                      .member = member,
                                      .n = s->n,
                                      .rank = s->place,
                                      .start = start,
                                      .group = 1 + number % 0x7ffe,
                                      .spin = c->shm->spin,
                                      .timeout_ms = c->shm->timeout_ms,
                                      .names = c->shm->names};
    return transport_shm_create(&opts, ret, err);
}

static int make_backend(struct split *s, struct backend **ret, struct co_error *err)
{
    const struct cpu *c = s->c;
    struct transport_shm *shm = NULL;
    co_autofree uint8_t **user = calloc(s->n, sizeof *user);
    int code = user != NULL ? make_transport(s, &shm, err) : co_fail(err, -ENOMEM, "out of memory");
    for (unsigned i = 0; code == 0 && i < s->n; i++)
        user[i] = c->user[s->rank[i]];
    struct backend_cpu_opts opts = {.shm = shm,
                                    .own = c->own,
                                    .user = user,
                                    .kernels = c->kernels,
                                    .tunings = &c->tunings,
                                    .may_cma = c->may_cma,
                                    .pool = c->pool,
                                    .memory = s->memory};
    if (code == 0)
        code = backend_cpu_create(&opts, ret, err);
    if (code == 0)
        s->memory = NULL; /* handed over */
    else
        transport_shm_destroy(shm);
    return code;
}

static int split_all(struct split *s, struct backend **ret, struct co_error *err)
{
    struct backend *made = NULL;
    int code = exchange(s, err);
    if (code != 0)
        return code;
    if (s->mine.color >= 0) {
        choose_members(s);
        s->mine.ok = make_backend(s, &made, err) == 0;
    }
    code = exchange(s, err);
    if (code != 0 && made != NULL)
        made->ops->destroy(made);
    if (code == 0)
        *ret = made;
    return code;
}

static int cpu_split(struct backend *b, int color, int key, struct backend **ret, int *ret_rank,
                     int *ret_n, struct co_error *err)
{
    struct cpu *c = cpu_of(b);
    co_autofree struct record *all = calloc(c->n, sizeof *all);
    co_autofree unsigned *rank = calloc(c->n, sizeof *rank);
    struct split s = {
        .c = c, .mine = {.color = color, .key = key, .ok = 1}, .all = all, .rank = rank};
    c->n_splits++;
    if (all == NULL || rank == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    if (color >= 0 && group_memory_take(c->pool, &s.memory, err) != 0)
        s.mine.ok = 0;
    if (s.memory != NULL) {
        s.mine.offset = s.memory->offset;
        s.mine.arrived = atomic_load(&s.memory->line->arrived);
    }
    int code = split_all(&s, ret, err);
    if (code == 0 && color >= 0) {
        *ret_rank = (int)s.place;
        *ret_n = (int)s.n;
    }
    group_memory_give_back(s.memory, NULL);
    return code;
}

/* --- memory, and the whole -------------------------------------------------------------------- */

static _Atomic uint64_t *cpu_commit_word(struct backend *b)
{
    return &cpu_of(b)->shm->member[0].line->commit;
}

static int cpu_alloc(struct backend *b, size_t bytes, void **ret, struct co_error *err)
{
    return user_segment_alloc(cpu_of(b)->own, bytes, ret, err);
}

static void cpu_free(struct backend *b, void *ptr)
{
    user_segment_free(cpu_of(b)->own, ptr);
}

/* Publish that this rank is done with the group. Ranks that are not done yet need nothing else from
 * this one; a rank that makes another call on it learns that this rank has left. */
static void leave_group(struct cpu *c)
{
    const struct call end = {.kind = CALL_GROUP_DESTROY};
    union transport_shm_note *note;
    if (transport_shm_open(c->shm, &end, 0, &note, NULL) != 0)
        return; /* the job is broken: no peer will come, and the memory is not used again */
    transport_shm_arrive(c->shm);
    transport_shm_close(c->shm);
    group_memory_give_back(c->memory, c->shm);
}

static void cpu_destroy(struct backend *b)
{
    struct cpu *c = cpu_of(b);
    if (c->memory != NULL)
        leave_group(c);
    p2p_shm_destroy(atomic_load(&c->messages));
    transport_shm_destroy(c->shm);
    if (c->on_destroy != NULL)
        c->on_destroy(c->arg);
    group_pool_fini(&c->own_pool);
    free(c->scratch);
    free(c);
}

static struct cpu *new_cpu(unsigned n)
{
    struct cpu *c = calloc(1, sizeof *c + n * (3 * sizeof(void *) + 2 * sizeof(size_t)));
    if (c == NULL)
        return NULL;
    c->user = (uint8_t **)(c + 1);
    c->in = (const void **)(c->user + n);
    c->out = (void **)(c->in + n);
    c->in_first = (size_t *)(c->out + n);
    c->out_first = c->in_first + n;
    return c;
}

int backend_cpu_create(const struct backend_cpu_opts *opts, struct backend **ret,
                       struct co_error *err)
{
    static const struct backend_ops ops = {
        .name = "cpu",
        .finds_inf = true,
        .begin = cpu_begin,
        .advance = cpu_advance,
        .message_begin = cpu_message_begin,
        .p2p_shm_advance = cpu_p2p_advance,
        .split = cpu_split,
        .commit_word = cpu_commit_word,
        .look = cpu_look,
        .tell = cpu_tell,
        .alloc = cpu_alloc,
        .free = cpu_free,
        .destroy = cpu_destroy,
    };
    const unsigned n = opts->shm->n_ranks;
    struct cpu *c = new_cpu(n);
    if (c == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    memcpy(c->user, opts->user, n * sizeof *c->user);
    c->backend.ops = &ops;
    c->shm = opts->shm;
    c->own = opts->own;
    c->kernels = opts->kernels;
    c->tunings = opts->tunings != NULL ? *opts->tunings : cpu_tunings_default;
    c->tuning = *cpu_tuning_for(&c->tunings, n);
    c->may_cma = opts->may_cma;
    c->own_pool.own = opts->own;
    c->pool = opts->pool != NULL ? opts->pool : &c->own_pool;
    c->memory = opts->memory;
    c->on_destroy = opts->on_destroy;
    c->arg = opts->arg;
    c->rank = opts->shm->rank;
    c->n = n;
    cma_init(c);
    c->shm->idle = on_idle;
    c->shm->idle_arg = c;
    *ret = &c->backend;
    return 0;
}
