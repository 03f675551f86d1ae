/* backend_cpu.c - collectives among the ranks of a node: which algorithm, and its stages one by
 * one.
 *
 * The algorithms, the same for all collectives (docs/collectives.md):
 *   note       the data rides on the call's note
 *   one-shot   through the mailboxes, one meeting, everybody reads everything
 *   direct     in place, where all buffers lie in user segments
 *   cma        in place, in memory of other processes, read by system call
 *   staged     through the mailboxes piece by piece, else
 * The choice depends on the call's signature and on the notes, so that all ranks choose the same.
 * Results do not depend on the choice: the kernels fold the ranks in their order, element by
 * element. */
#include "backend_cpu.h"

#include "common/error.h"
#include "cpu.h"
#include "group_memory.h"
#include "p2p_shm.h"
#include "segments/control.h"
#include "worker-runtime/core/user_segment.h"

#include <errno.h>
#include <stdlib.h>

static struct cpu *cpu_of(struct backend *b)
{
    return (struct cpu *)b;
}

/* --- a collective ----------------------------------------------------------------------------- */

/* By what all ranks know alike before they meet. */
static const struct algo *choose_algo(const struct cpu *c)
{
    const struct layout *l = &c->job.layout;
    const size_t blocks = layout_n_blocks(l), block = l->most * l->size;
    if (layout_has_pairs(l) || block > BUFFER_BYTES)
        return &algo_large;
    if (block * blocks <= TRANSPORT_SHM_NOTE_BYTES)
        return &algo_note;
    /* what one rank reads: a block from each rank, whole or one of several */
    if (block * blocks <= BUFFER_BYTES && block * c->n <= c->tuning.one_shot_bytes)
        return &algo_one_shot;
    return &algo_large;
}

/* A rank that is stuck in this one's memory gets another to write to. */
static int end_failed(struct cpu *c, int code, struct co_error *err)
{
    struct co_error why;
    c->job.is_open = false;
    if (!transport_shm_must_withdraw(c->shm) || user_segment_withdraw(c->own, &why) == 0)
        return code;
    return co_fail(err, code, "%s; %s", err != NULL ? err->text : "", why.text);
}

static int end_well(struct cpu *c)
{
    c->job.is_open = false;
    transport_shm_close(c->shm);
    if (c->job.ret_found != NULL)
        *c->job.ret_found = c->job.found;
    return 1;
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
        transport_shm_goes_on(c->shm);
    j->seq++;
    j->stage = 0;
    j->algo = choose_algo(c);
    j->is_open = true;
    int code = j->algo->work(c, 0, err);
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
            code = j->algo->work(c, ++j->stage, err);
        if (code < 0)
            return end_failed(c, code, err);
        if (code == SHAPE_DONE)
            return end_well(c);
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

/* While a collective waits, messages go on. */
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
    struct control *control = transport_shm_control(c->shm);
    for (unsigned r = 0; r < c->n; r++)
        if (r != c->rank) /* one that is found dead breaks the job */
            control_look(control, transport_shm_member(c->shm, r)->local_rank);
    if (control_abort_get(control).cause == CONTROL_OK)
        return 0;
    return transport_shm_describe(c->shm, err);
}

static bool cpu_tell(struct backend *b, int code, const char *text)
{
    const struct cpu *c = cpu_of(b);
    struct control *control = transport_shm_control(c->shm);
    const unsigned own = transport_shm_member(c->shm, c->rank)->local_rank;
    if (control_abort_get(control).cause != CONTROL_OK)
        return false;
    control_abort_tell(control, own, code, text);
    const struct control_abort why = control_abort_get(control);
    return why.cause == CONTROL_TOLD && why.rank == own;
}

/* --- memory, and the whole -------------------------------------------------------------------- */

static _Atomic uint64_t *cpu_commit_word(struct backend *b)
{
    return &transport_shm_member(cpu_of(b)->shm, 0)->line->commit;
}

static int cpu_alloc(struct backend *b, size_t bytes, void **ret, struct co_error *err)
{
    return user_segment_alloc(cpu_of(b)->own, bytes, ret, err);
}

static void cpu_free(struct backend *b, void *ptr)
{
    user_segment_free(cpu_of(b)->own, ptr);
}

static void free_cpu(struct cpu *c)
{
    if (c->memory == NULL)
        group_pool_destroy(c->pool);
    free(c->user);
    free(c->in);
    free(c->out);
    free(c->in_first);
    free(c->out_first);
    free(c->scratch);
    free(c);
}

/* Say that this rank is done with the group. Those who are not yet wait for nobody else's word; who
 * makes another call on it learns that this rank has left. */
static void leave_group(struct cpu *c)
{
    const struct call end = {.kind = CALL_GROUP_DESTROY};
    union transport_shm_note *note;
    if (transport_shm_open(c->shm, &end, 0, &note, NULL) != 0)
        return; /* the job is broken: nobody will come, and the memory is not used again */
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
    free_cpu(c);
}

static struct cpu *new_cpu(unsigned n)
{
    struct cpu *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->user = calloc(n, sizeof *c->user);
    c->in = calloc(n, sizeof *c->in);
    c->out = calloc(n, sizeof *c->out);
    c->in_first = calloc(n, sizeof *c->in_first);
    c->out_first = calloc(n, sizeof *c->out_first);
    if (c->user != NULL && c->in != NULL && c->out != NULL && c->in_first != NULL &&
        c->out_first != NULL)
        return c;
    free_cpu(c);
    return NULL;
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
    const unsigned n = transport_shm_n_ranks(opts->shm);
    struct cpu *c = new_cpu(n);
    struct group_pool *pool = opts->pool != NULL ? opts->pool : group_pool_create(opts->own);
    if (c == NULL || pool == NULL) {
        if (c != NULL)
            free_cpu(c);
        if (opts->pool == NULL)
            group_pool_destroy(pool);
        return co_fail(err, -ENOMEM, "no memory for a back end of %u ranks", n);
    }
    memcpy(c->user, opts->user, n * sizeof *c->user);
    c->backend.ops = &ops;
    c->shm = opts->shm;
    c->own = opts->own;
    c->kernels = opts->kernels;
    c->tunings = opts->tunings != NULL ? *opts->tunings : cpu_tunings_default;
    c->tuning = *cpu_tuning_for(&c->tunings, n);
    c->may_cma = opts->may_cma;
    c->pool = pool;
    c->memory = opts->memory;
    c->on_destroy = opts->on_destroy;
    c->arg = opts->arg;
    c->rank = transport_shm_rank(opts->shm);
    c->n = n;
    cma_init(c);
    transport_shm_on_idle(c->shm, on_idle, c);
    *ret = &c->backend;
    return 0;
}
