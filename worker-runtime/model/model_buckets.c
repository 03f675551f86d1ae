/* model_buckets.c - where the buckets of a plan lie in memory.
 *
 * Gradients that the library allocates get their home once, all of a type side by side in the order
 * of their numbers; so the gradients of most buckets, which consist of neighbors, are side by side
 * whatever the plan, and are averaged where they lie, run by run. The same holds for gradients of
 * the program that lie in one array. All ranks must see a bucket alike: they agree on it once. */
#include "model_priv.h"

#include "common/scope.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/device/device.h"

#include <ddp/collective.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- memory ----------------------------------------------------------------------------------- */

static int alloc_memory(struct ddp_model *m, size_t bytes, uint8_t **ret)
{
    void *memory = NULL;
    int rc = model_is_on_device(m)
                 ? device_alloc(m->g, bytes, m->opts.nccl_memory, m->opts.stream, &memory)
                 : ddp_alloc(m->g, bytes, &memory);
    *ret = memory;
    return rc;
}

static void free_memory(struct ddp_model *m, uint8_t *memory)
{
    if (model_is_on_device(m))
        device_free(m->g, memory, m->opts.stream);
    else
        ddp_free(m->g, memory);
}

/* --- homes ------------------------------------------------------------------------------------ */

/* The sizes of the gradients that need one; of the others 0. */
static struct bucket_tensor *sizes_of_homes(const struct ddp_model *m)
{
    struct bucket_tensor *sizes = calloc(m->n_tensors, sizeof(*sizes));
    for (size_t i = 0; sizes != NULL && i < m->n_tensors; i++)
        sizes[i] = (struct bucket_tensor){
            .bytes = m->tensors[i].grad == NULL ? model_bytes_of(m, i) : 0,
            .dtype = m->tensors[i].dtype,
        };
    return sizes;
}

static int allocate_homes(struct ddp_model *m)
{
    struct model_homes *h = m->homes;
    for (size_t k = 0; k < h->plan.n_buckets; k++) {
        if (h->plan.bucket[k].payload_bytes == 0)
            continue;
        int rc = alloc_memory(m, h->plan.bucket[k].bytes, &h->memory[k]);
        if (rc != 0)
            return rt_fail(rc, "ddp_model_create: gradients: %s", ddp_last_error());
    }
    return 0;
}

/* A place for a gradient of no elements: an address to hand out, and nothing more. */
static uint8_t nothing;

static int make_homes(struct ddp_model *m)
{
    struct co_error err = {0};
    struct model_homes *h = m->homes = calloc(1, sizeof(*m->homes));
    if (h == NULL || (h->sizes = sizes_of_homes(m)) == NULL)
        return rt_fail(DDP_ENOMEM, "out of memory for a model of %zu tensors", m->n_tensors);
    h->n_tensors = m->n_tensors;
    int code = bucket_plan_init(h->sizes, m->n_tensors, NULL, &BUCKET_UNLIMITED, &h->plan, &err);
    return code != 0 ? rt_return(code, &err) : allocate_homes(m);
}

static uint8_t *home_of(const struct model_homes *h, size_t i)
{
    return h->memory[h->plan.place[i].bucket] + h->plan.place[i].offset;
}

/* Whether the gradients of this model are in these homes, of the generation before, or may be. */
static bool fits(const struct ddp_model *m, const struct model_homes *h)
{
    if (h == NULL || h->n_tensors != m->n_tensors || model_is_on_device(m))
        return false;
    for (size_t i = 0; i < m->n_tensors; i++) {
        const uint8_t *grad = m->tensors[i].grad;
        const struct bucket_tensor *size = &h->sizes[i];
        if (size->bytes == 0 && (grad != NULL || model_bytes_of(m, i) == 0))
            continue; /* the program's own, as before */
        if (size->bytes != model_bytes_of(m, i) || size->dtype != m->sizes[i].dtype ||
            (grad != NULL && grad != home_of(h, i)))
            return false;
    }
    return true;
}

int model_homes_create(struct ddp_model *m)
{
    int rc = 0;
    m->grad = calloc(m->n_tensors, sizeof(*m->grad));
    if (m->grad == NULL)
        return rt_fail(DDP_ENOMEM, "out of memory for a model of %zu tensors", m->n_tensors);
    m->are_homes_old = fits(m, m->kept->homes);
    if (m->are_homes_old)
        m->homes = co_take(&m->kept->homes);
    else
        rc = make_homes(m);
    for (size_t i = 0; rc == 0 && i < m->n_tensors; i++) {
        const struct bucket_place *at = &m->homes->plan.place[i];
        uint8_t *home = m->homes->memory[at->bucket];
        m->grad[i] = m->tensors[i].grad != NULL ? m->tensors[i].grad
                     : home != NULL             ? home + at->offset
                                                : &nothing;
    }
    return rc;
}

void model_homes_hand_out(struct ddp_model *m)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        if (m->tensors[i].grad != NULL)
            continue;
        m->tensors[i].grad = m->grad[i];
        m->homes->any_handed_out = true;
    }
}

void model_homes_destroy(struct model_homes *h, struct ddp_model *m)
{
    if (h == NULL)
        return;
    for (size_t k = 0; k < sizeof(h->memory) / sizeof(h->memory[0]); k++)
        if (h->any_handed_out)
            process_keep(h->memory[k]);
        else
            free_memory(m, h->memory[k]);
    bucket_plan_fini(&h->plan);
    free(h->sizes);
    free(h);
}

/* --- planning --------------------------------------------------------------------------------- */

static enum ddp_dtype wire_dtype(const struct ddp_model_opts *o, enum ddp_dtype dtype,
                                 bool between_nodes)
{
    const bool is_half = dtype == DDP_FLOAT16 || dtype == DDP_BFLOAT16;
    if (is_half)
        return o->always_fp32 ? DDP_FLOAT32 : dtype;
    if (o->compress == DDP_COMPRESS_INT8)
        return between_nodes ? DDP_FLOAT32 : dtype;
    return o->compress == DDP_COMPRESS_FLOAT16    ? DDP_FLOAT16
           : o->compress == DDP_COMPRESS_BFLOAT16 ? DDP_BFLOAT16
                                                  : dtype;
}

/* Deal the pieces out: a bucket has as many as it has runs, or, on a device, at most one for each
 * gradient. */
static int make_pieces(const struct ddp_model *m, struct bucket_set *set)
{
    const bool on_device = model_is_on_device(m);
    size_t n = 0;
    for (size_t k = 0; k < set->plan.n_buckets; k++) {
        const struct bucket *b = &set->plan.bucket[k];
        n += (on_device ? b->n_tensors : b->n_runs) + 1;
    }
    set->pieces = calloc(n, sizeof(*set->pieces));
    if (set->pieces == NULL)
        return -ENOMEM;
    n = 0;
    for (size_t k = 0; k < set->plan.n_buckets; k++) {
        set->at[k].piece = &set->pieces[n];
        set->at[k].n_pieces = set->plan.bucket[k].n_runs;
        n += (on_device ? set->plan.bucket[k].n_tensors : set->plan.bucket[k].n_runs) + 1;
    }
    return 0;
}

/* A model in fragments has at most as many buckets as it has local steps. */
static struct bucket_limits limits_of(const struct ddp_model *m)
{
    struct bucket_limits limits = {
        .first_bytes = m->opts.first_bucket_bytes,
        .bytes = m->opts.bucket_bytes,
        .elements = m->opts.message_size,
    };
    size_t all = 0;
    if (!m->opts.local_fragments)
        return limits;
    for (size_t i = 0; i < m->n_tensors; i++)
        all += model_bytes_of(m, i);
    const size_t most = all > 0 ? (all - 1) / m->opts.local_steps + 1 : 1;
    limits.first_bytes = limits.first_bytes < most ? limits.first_bytes : most;
    limits.bytes = limits.bytes < most ? limits.bytes : most;
    return limits;
}

int model_buckets_plan(struct ddp_model *m, const size_t *order, struct bucket_set *set)
{
    struct co_error err = {0};
    const struct bucket_limits limits = limits_of(m);
    *set = (struct bucket_set){0};
    int code = bucket_plan_init(m->sizes, m->n_tensors, order, &limits, &set->plan, &err);
    if (code != 0)
        return rt_return(code, &err);
    set->at = calloc(set->plan.n_buckets, sizeof(*set->at));
    set->can = calloc(set->plan.n_buckets, sizeof(*set->can));
    if (set->at == NULL || set->can == NULL || make_pieces(m, set) != 0 ||
        bucket_ready_init(&set->ready, &set->plan) != 0)
        return rt_fail(DDP_ENOMEM, "out of memory for %zu gradient buckets", set->plan.n_buckets);
    for (size_t k = 0; k < set->plan.n_buckets; k++) {
        struct model_bucket *b = &set->at[k];
        b->dtype = set->plan.bucket[k].dtype;
        b->wire_dtype =
            m->g->world_size > 1 ? wire_dtype(&m->opts, b->dtype, m->g->n_nodes > 1) : b->dtype;
        b->is_int8 = model_is_int8(m) && b->wire_dtype == DDP_FLOAT32;
    }
    return 0;
}

/* --- placing ---------------------------------------------------------------------------------- */

enum { CAN_OURS = 1, CAN_USERS = 2 };                             /* bits that ranks exchange */
enum { RUN_BYTES = 32 << 10, RUN_BYTES_BETWEEN_NODES = 1 << 20 }; /* worth a call of its own */

static bool is_ours(const struct ddp_model *m, size_t i)
{
    const size_t k = m->homes->plan.place[i].bucket;
    const uint8_t *home = m->homes->memory[k];
    return home != NULL && m->grad[i] >= home && m->grad[i] < home + m->homes->plan.bucket[k].bytes;
}

/* Check the next gradient of a run: does it lie where it should, after the one before it? */
static void look_at(const struct ddp_model *m, size_t i, size_t offset, struct bucket_piece *run,
                    uint8_t *can)
{
    uint8_t *grad = m->grad[i];
    if (run->memory == NULL) {
        run->memory = run->end = grad;
        run->offset = offset;
    }
    if (!is_ours(m, i) || grad != run->memory + (offset - run->offset))
        *can &= (uint8_t)~CAN_OURS;
    if (grad != run->end)
        *can &= (uint8_t)~CAN_USERS;
    run->end = grad + model_bytes_of(m, i);
}

/* What this rank could do with each bucket, and where its memory would be. */
static void look_at_all(const struct ddp_model *m, struct bucket_set *set)
{
    memset(set->can, CAN_OURS | CAN_USERS, set->plan.n_buckets);
    for (size_t i = 0; i < m->n_tensors; i++) {
        const struct bucket_place *at = &set->plan.place[i];
        if (model_bytes_of(m, i) > 0)
            look_at(m, i, at->offset, &set->at[at->bucket].piece[at->run], &set->can[at->bucket]);
    }
}

/* A call per run, or copies? A call costs a synchronization: a microsecond on a node, a round trip
 * between nodes. A hook wants to see all of a bucket at once. */
static bool is_worth_its_calls(const struct ddp_model *m, const struct bucket *plan)
{
    const size_t least = m->g->n_nodes > 1 ? RUN_BYTES_BETWEEN_NODES : RUN_BYTES;
    if (plan->n_runs <= 1)
        return true;
    return m->opts.hook == NULL && plan->payload_bytes / plan->n_runs >= least;
}

static bool make_copies(struct ddp_model *m, const struct bucket *plan, struct model_bucket *b)
{
    b->where = BUCKET_COPIED;
    if (alloc_memory(m, plan->bytes, &b->copies) != 0)
        return false;
    b->n_pieces = 1;
    b->piece[0] = (struct bucket_piece){.memory = b->copies, .end = b->copies + plan->bytes};
    return true;
}

/* Another type travels, or a hook is to see places on a device as one. */
static bool needs_wire(const struct ddp_model *m, const struct model_bucket *b)
{
    const bool is_apart = model_is_on_device(m) && m->opts.hook != NULL && b->n_pieces > 1;
    return b->count > 0 && (b->wire_dtype != b->dtype || b->is_int8 || is_apart);
}

/* Give a bucket its memory, now that the ranks have agreed on what all of them can do. */
static bool place_bucket(struct ddp_model *m, const struct bucket *plan, struct model_bucket *b,
                         uint8_t can)
{
    b->where = (can & CAN_OURS) != 0 ? BUCKET_OURS : BUCKET_USERS;
    if (!model_is_on_device(m) && (can == 0 || !is_worth_its_calls(m, plan)) &&
        !make_copies(m, plan, b))
        return false;
    b->count = 0;
    for (size_t i = 0; i < b->n_pieces; i++)
        b->count += (size_t)(b->piece[i].end - b->piece[i].memory) / ddp_dtype_size(b->dtype);
    if (needs_wire(m, b) &&
        alloc_memory(m, b->count * ddp_dtype_size(b->wire_dtype), &b->wire) != 0)
        return false;
    return model_int8_place(m, b);
}

/* Give every rank the worst of the values of all ranks. */
static int combine_bytes(struct ddp_model *m, uint8_t *values, size_t n)
{
    return ddp_all_reduce(m->g, values, values, n, DDP_UINT8, DDP_BAND, NULL);
}

/* Hear whether every rank has its memory. */
static int agree_on_memory(struct ddp_model *m, bool ok)
{
    char text[CO_ERROR_TEXT_BYTES];
    uint8_t all_ok = ok;
    snprintf(text, sizeof(text), "%s", ddp_last_error());
    int rc = combine_bytes(m, &all_ok, 1);
    if (rc != 0 || all_ok)
        return rc;
    if (!ok)
        return rt_fail(DDP_ENOMEM, "gradient buckets: %s", text);
    return rt_fail(DDP_EMISMATCH,
                   "another rank is out of memory for its gradient buckets: check its own message");
}

/* A world of 1 averages nothing; only a hook wants to see whole buckets. */
static int place_alone(struct ddp_model *m, struct bucket_set *set)
{
    for (size_t k = 0; k < set->plan.n_buckets; k++) {
        set->at[k].where = BUCKET_NOWHERE;
        set->at[k].n_pieces = 0;
        if (m->opts.hook != NULL && !place_bucket(m, &set->plan.bucket[k], &set->at[k], 0))
            return rt_fail(DDP_ENOMEM, "gradient buckets: %s", ddp_last_error());
    }
    return m->opts.nccl_memory ? model_device_enlist(m, set) : 0;
}

int model_buckets_place(struct ddp_model *m, struct bucket_set *set)
{
    const size_t n = set->plan.n_buckets;
    bool ok = true;
    if (m->g->world_size == 1 && !model_device_averages(m))
        return place_alone(m, set);
    look_at_all(m, set);
    int rc = combine_bytes(m, set->can, n);
    if (rc != 0)
        return rc;
    for (size_t k = 0; ok && k < n; k++) {
        if (model_is_on_device(m) && set->can[k] == 0)
            model_device_scatter(m, set, k);
        ok = place_bucket(m, &set->plan.bucket[k], &set->at[k], set->can[k]);
    }
    rc = agree_on_memory(m, ok);
    return rc == 0 && m->opts.nccl_memory ? model_device_enlist(m, set) : rc;
}

void model_buckets_destroy(struct ddp_model *m, struct bucket_set *set)
{
    for (size_t k = 0; set->at != NULL && k < set->plan.n_buckets; k++) {
        ddp_free(m->g, set->at[k].copies);
        free_memory(m, set->at[k].wire);
        free(set->at[k].rest);
        free(set->at[k].packed);
    }
    free(set->at);
    free(set->pieces);
    free(set->can);
    bucket_ready_fini(&set->ready);
    bucket_plan_fini(&set->plan);
    *set = (struct bucket_set){0};
}

/* --- another plan, from the order that rank 0 saw
 * ------------------------------------------------- */

/* Tensors are registered in the order of their making, and used in another order if the network
 * requires it; then the buckets of the first step fill late, all of them together. The first step
 * shows the order. */

/* Rank 0's order, to all. Its first word records whether there is one. */
static int broadcast_order(struct ddp_model *m, size_t n_said)
{
    uint64_t *words = m->order_words; /* made with the model, so that no rank can be without it */
    words[0] = n_said == m->n_tensors;
    for (size_t k = 0; k < m->n_tensors; k++)
        words[k + 1] = words[0] != 0 ? m->set.ready.order[k] : 0;
    return ddp_broadcast(m->g, words, words, m->n_tensors + 1, DDP_UINT64, 0, NULL);
}

/* Go over to another plan, if all ranks can. */
static int change_plan(struct ddp_model *m, const size_t *order)
{
    struct bucket_set set;
    uint8_t all_can = model_buckets_plan(m, order, &set) == 0;
    int rc = combine_bytes(m, &all_can, 1);
    if (rc == 0 && all_can && !bucket_plan_same(&set.plan, &m->set.plan)) {
        rc = model_buckets_place(m, &set);
        if (rc == 0) {
            model_buckets_destroy(m, &m->set);
            m->set = set;
            m->set.ready.plan = &m->set.plan; /* it has moved */
            m->stats.was_reordered = true;
            return 0;
        }
        if (rc == DDP_ENOMEM || rc == DDP_EMISMATCH) /* some rank is out of memory for it */
            rc = 0;
    }
    model_buckets_destroy(m, &set);
    return rc;
}

int model_reorder(struct ddp_model *m, size_t n_said)
{
    int rc = broadcast_order(m, n_said);
    if (rc != 0 || m->order_words[0] == 0)
        return rc;
    for (size_t k = 0; k < m->n_tensors; k++)
        m->order[k] = (size_t)m->order_words[k + 1];
    return change_plan(m, m->order);
}

/* --- in and out ------------------------------------------------------------------------------- */

static uint8_t *copy_of(const struct ddp_model *m, size_t i)
{
    const struct bucket_place *at = &m->set.plan.place[i];
    uint8_t *copies = m->set.at[at->bucket].copies;
    return copies != NULL ? copies + at->offset : NULL;
}

uint8_t *model_averages_of(const struct ddp_model *m, size_t i)
{
    uint8_t *copy = copy_of(m, i);
    return copy != NULL ? copy : m->grad[i];
}

void model_copy_in(struct ddp_model *m, size_t i)
{
    uint8_t *copy = copy_of(m, i);
    if (copy != NULL)
        memcpy(copy, m->grad[i], model_bytes_of(m, i));
}

void model_zero(struct ddp_model *m, size_t i)
{
    uint8_t *copy = copy_of(m, i);
    if (copy != NULL)
        memset(copy, 0, model_bytes_of(m, i));
    else if (model_clear(m, m->grad[i], model_bytes_of(m, i)) != 0)
        model_keep_failure(m, DDP_ESYSTEM, false);
}

void model_copy_out(struct ddp_model *m)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        const uint8_t *copy = copy_of(m, i);
        if (copy != NULL)
            memcpy(m->grad[i], copy, model_bytes_of(m, i));
    }
}
