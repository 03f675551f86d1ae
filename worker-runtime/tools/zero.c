/* zero.c - ddp_zero: making and destroying it, checkpoints. zero_priv.h lists what the other files
 * do.
 *
 * ddp_zero_create() does what this rank can do alone, prepare_zero(), then synchronizes with its
 * peers, meet_ranks(): they compare tensors and options, and zero_take_state() gives all of them
 * the same state. A step is ddp_zero_step() in zero_step.c. */
#include "zero_priv.h"

#include "common/error.h"
#include "common/hash.h"
#include "common/scope.h"
#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/core/collective.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/group/recovery.h"
#include "worker-runtime/model/model_agree.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what a program gives --------------------------------------------------------------------- */

static int check_tensor(const struct ddp_tensor *t, size_t i, enum ddp_dtype dtype)
{
    if (t->name == NULL || t->name[0] == '\0')
        return rt_fail(DDP_EINVAL, "ddp_zero_create: tensor %zu has no name", i);
    if (!convert_is_float(t->dtype) || t->dtype != dtype)
        return rt_fail(DDP_EINVAL,
                       "ddp_zero_create: tensor %zu '%s' has type %d: use the same floating-point "
                       "type for all tensors",
                       i, t->name, (int)t->dtype);
    if (t->count > PTRDIFF_MAX / 16 || (t->param == NULL && t->count > 0))
        return rt_fail(DDP_EINVAL, "ddp_zero_create: tensor %zu '%s' has %zu elements%s", i,
                       t->name, t->count, t->param == NULL ? " and param NULL" : "");
    return 0;
}

static bool is_share(double x)
{
    return x >= 0 && x < 1;
}

static bool is_amount(double x)
{
    return x >= 0 && isfinite(x);
}

static int check_opts(const struct ddp_zero_opts *o)
{
    if ((unsigned)o->optimizer > DDP_ADAMW)
        return rt_fail(DDP_EINVAL,
                       "ddp_zero_create: invalid value %d for optimizer: expected one of enum "
                       "ddp_zero_optimizer",
                       (int)o->optimizer);
    if (!is_amount(o->lr) || !is_amount(o->weight_decay) || !is_amount(o->max_norm) ||
        !is_amount(o->eps))
        return rt_fail(DDP_EINVAL,
                       "ddp_zero_create: invalid lr %g, weight_decay %g, max_norm %g or eps %g: "
                       "expected 0 or more",
                       o->lr, o->weight_decay, o->max_norm, o->eps);
    if (!is_share(o->momentum) || !is_share(o->beta1) || !is_share(o->beta2))
        return rt_fail(DDP_EINVAL,
                       "ddp_zero_create: invalid momentum %g, beta1 %g or beta2 %g: expected 0 or "
                       "more and less than 1",
                       o->momentum, o->beta1, o->beta2);
    return 0;
}

static int check_all(const struct ddp_tensor *tensors, size_t n, const struct ddp_zero_opts *o)
{
    if (tensors == NULL || n == 0 || o == NULL)
        return rt_fail(DDP_EINVAL, "ddp_zero_create: tensors or opts is NULL");
    int rc = check_opts(o);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = check_tensor(&tensors[i], i, tensors[0].dtype);
    return rc;
}

static struct optimizer_step how_of(const struct ddp_zero_opts *o)
{
    return (struct optimizer_step){
        .kind = o->optimizer,
        .lr = o->lr,
        .momentum = o->momentum,
        .decay = o->weight_decay,
        .beta1 = o->beta1 > 0 ? o->beta1 : 0.9,
        .beta2 = o->beta2 > 0 ? o->beta2 : 0.999,
        .eps = o->eps > 0 ? o->eps : 1e-8,
    };
}

/* --- this rank alone -------------------------------------------------------------------------- */

/* Where each tensor lies in the row. returns   0; DDP_EINVAL */
static int lay_out(struct ddp_zero *z, size_t *ret_length)
{
    const size_t most = PTRDIFF_MAX / 16;
    size_t at = 0;
    for (size_t i = 0; i < z->n_tensors; i++) {
        z->offset[i] = at;
        at += (z->tensors[i].count + SHARDS_ALIGN - 1) / SHARDS_ALIGN * SHARDS_ALIGN;
        if (at > most)
            return rt_fail(DDP_EINVAL, "ddp_zero_create: %zu tensors exceed the address space",
                           z->n_tensors);
    }
    *ret_length = at;
    return 0;
}

/* The row, again where this process had one before: the program has addresses in it. */
static int find_row(struct ddp_zero *z, size_t total)
{
    const size_t bytes = total * ddp_dtype_size(z->dtype);
    void *row;
    if (z->kept != NULL && z->kept->gradients != NULL && z->kept->gradients_bytes == bytes) {
        z->row = z->kept->gradients;
        z->is_row_kept = true;
        memset(z->row, 0, bytes);
        return 0;
    }
    int rc = ddp_alloc(z->g, bytes, &row);
    if (rc != 0)
        return rc;
    z->row = row;
    if (z->kept != NULL) {
        z->kept->gradients = row;
        z->kept->gradients_bytes = bytes;
        z->is_row_kept = true;
    }
    return 0;
}

static int prepare_zero(struct ddp_zero *z, const struct ddp_zero_opts *o, struct shards_shape *ret)
{
    int rc = check_all(z->tensors, z->n_tensors, o);
    if (rc != 0)
        return rc;
    z->how = how_of(o);
    z->max_norm = o->max_norm;
    z->dtype = z->tensors[0].dtype;
    z->fine = z->dtype == DDP_FLOAT64 ? DDP_FLOAT64 : DDP_FLOAT32;
    z->has_masters = z->dtype == DDP_FLOAT16 || z->dtype == DDP_BFLOAT16;
    z->n_arrays = optimizer_n_arrays(o->optimizer, o->momentum);
    z->decays = calloc(z->n_tensors, sizeof *z->decays);
    z->offset = calloc(z->n_tensors, sizeof *z->offset);
    z->counts = calloc((size_t)z->g->world_size, sizeof *z->counts);
    if (z->decays == NULL || z->offset == NULL || z->counts == NULL ||
        recovery_get_shards(z->g, &z->kept) != 0)
        return rt_fail(DDP_ENOMEM, "ddp_zero_create: out of memory for %zu tensors", z->n_tensors);
    z->shards = z->kept != NULL ? &z->kept->shards : &z->own_shards;
    for (size_t i = 0; i < z->n_tensors; i++)
        z->decays[i] = o->keeps_size == NULL || !o->keeps_size[i];
    size_t total = 0;
    rc = lay_out(z, &total);
    if (rc != 0)
        return rc;
    *ret = (struct shards_shape){.total = total,
                                 .n_arrays = z->n_arrays + z->has_masters,
                                 .element_bytes = (uint32_t)ddp_dtype_size(z->fine),
                                 .n_ranks = z->g->world_size,
                                 .rank = z->g->rank};
    for (int r = 0; r < ret->n_ranks; r++)
        z->counts[r] = shards_count(ret, r);
    return find_row(z, ret->total);
}

/* --- together --------------------------------------------------------------------------------- */

static uint64_t digest_of(const struct ddp_zero *z, const struct ddp_zero_opts *o)
{
    const double numbers[] = {z->how.lr,    z->how.momentum, z->how.decay, z->how.beta1,
                              z->how.beta2, z->how.eps,      z->max_norm};
    uint64_t hash = co_hash_word(CO_HASH_START, (uint64_t)o->optimizer);
    hash = co_hash_word(hash, o->buddies);
    hash = co_hash_word(hash, z->kept != NULL);
    hash = co_hash_bytes(hash, numbers, sizeof numbers);
    return co_hash_bytes(hash, z->decays, z->n_tensors * sizeof *z->decays);
}

/* The same tensors, and the same options. */
static int compare_options(struct ddp_zero *z, const struct ddp_zero_opts *o)
{
    const struct ddp_model_opts none = {0};
    const struct model_description d = {
        .tensors = z->tensors, .n_tensors = z->n_tensors, .opts = &none};
    bool is_same;
    int rc = model_agree(z->g, &d);
    if (rc == 0)
        rc = collective_compare(z->g, digest_of(z, o), &is_same);
    if (rc == 0 && !is_same)
        rc =
            rt_fail(DDP_EMISMATCH,
                    "ddp_zero_create: the ranks' ddp_zero_opts differ: pass the same on all ranks");
    return rc;
}

static int meet_ranks(struct ddp_zero *z, const struct ddp_zero_opts *o,
                      const struct shards_shape *shape)
{
    int rc = compare_options(z, o);
    if (rc == 0 && o->buddies && z->kept != NULL && z->g->world_size > 1)
        rc = ddp_group_split(z->g, 0, 0, &z->ring);
    if (z->ring != NULL)
        group_disown(&z->ring->child); /* it goes with z, whatever the world destroys first */
    return rc == 0 ? zero_take_state(z, shape) : rc;
}

static int zero_make(struct ddp_zero *z, const struct ddp_zero_opts *o)
{
    struct shards_shape shape;
    int rc = prepare_zero(z, o, &shape);
    if (rc == 0)
        return meet_ranks(z, o, &shape);
    char text[CO_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", ddp_last_error());
    model_agree(z->g, NULL); /* so that no rank waits */
    return rt_fail(rc, "%s", text);
}

static void hand_out_gradients(struct ddp_zero *z)
{
    for (size_t i = 0; i < z->n_tensors; i++)
        if (z->tensors[i].grad == NULL) {
            z->tensors[i].grad = zero_row_at(z, z->offset[i]);
            z->is_row_kept = true;
        }
}

static void destroy_child(struct group_child *child)
{
    ddp_zero_destroy((struct ddp_zero *)child);
}

co_define_auto(ddp_zero, ddp_zero_destroy);

int ddp_zero_create(struct ddp_group *g, struct ddp_tensor *tensors, size_t n_tensors,
                    const struct ddp_zero_opts *opts, struct ddp_zero **ret_zero)
{
    if (g == NULL || ret_zero == NULL)
        return rt_fail(DDP_EINVAL, "ddp_zero_create: group or ret_zero is NULL");
    co_auto(ddp_zero) z = calloc(1, sizeof *z);
    if (z == NULL) {
        model_agree(g, NULL);
        return rt_fail(DDP_ENOMEM, "ddp_zero_create: out of memory");
    }
    z->child.destroy = destroy_child;
    z->g = g;
    z->tensors = tensors;
    z->n_tensors = n_tensors;
    int rc = zero_make(z, opts);
    if (rc != 0)
        return rc;
    hand_out_gradients(z);
    group_adopt(g, &z->child);
    *ret_zero = co_take(&z);
    return 0;
}

void ddp_zero_destroy(struct ddp_zero *z)
{
    if (z == NULL)
        return;
    group_disown(&z->child);
    if (!z->is_row_kept)
        ddp_free(z->g, z->row);
    else if (z->kept == NULL)
        process_keep(z->row);
    shards_fini(&z->own_shards);
    free(z->decays);
    free(z->offset);
    free(z->counts);
    ddp_group_destroy(z->ring);
    free(z);
}

int ddp_zero_set_lr(struct ddp_zero *z, double lr)
{
    if (z == NULL || !is_amount(lr))
        return rt_fail(DDP_EINVAL, "ddp_zero_set_lr: invalid learning rate %g: expected 0 or more",
                       lr);
    z->how.lr = lr;
    return 0;
}

/* --- checkpoints, numbers --------------------------------------------------------------------- */

static void fill_item(struct ddp_zero *z, unsigned array, size_t k,
                      struct ddp_checkpoint_item *item)
{
    *item = (struct ddp_checkpoint_item){
        .name = z->item_name[k],
        .dtype = z->fine,
        .n_dims = 1,
        .shape = {z->shards->shape.total},
        .data = zero_state_at(z, zero_current(z), array, zero_first(z)),
        .is_sharded = true,
        .first = zero_first(z),
        .count = zero_count(z),
    };
}

int ddp_zero_items(struct ddp_zero *z, const char *name,
                   struct ddp_checkpoint_item items[DDP_ZERO_MAX_ITEMS], size_t *ret_n)
{
    if (z == NULL || name == NULL || items == NULL || ret_n == NULL || strlen(name) > 80)
        return rt_fail(DDP_EINVAL,
                       "ddp_zero_items: name, items or ret_n is NULL, or name exceeds 80 bytes");
    if (z->is_torn)
        return rt_fail(DDP_EINVAL, "ddp_zero_items: the last step failed midway and its previous "
                                   "state is lost: restart from a checkpoint");
    size_t n = 0;
    z->saved_updates = (int64_t)zero_current(z)->n_updates;
    snprintf(z->item_name[n], sizeof z->item_name[n], "%s.step", name);
    items[n] = (struct ddp_checkpoint_item){
        .name = z->item_name[n], .dtype = DDP_INT64, .data = &z->saved_updates};
    n++;
    for (unsigned k = 0; k < z->n_arrays + z->has_masters; k++, n++) {
        const char *what = k < z->n_arrays ? optimizer_array_name(z->how.kind, k) : "master_params";
        snprintf(z->item_name[n], sizeof z->item_name[n], "%s.%s", name, what);
        fill_item(z, k, n, &items[n]);
    }
    *ret_n = n;
    return 0;
}

/* The masters, rounded, are the parameters. */
static int round_masters(struct ddp_zero *z)
{
    const struct shard_version *v = zero_current(z);
    if (!z->has_masters)
        return 0;
    convert(process_kernels(), zero_row_at(z, zero_first(z)), z->dtype,
            zero_state_at(z, v, z->n_arrays, zero_first(z)), z->fine, zero_count(z));
    return zero_hand_out(z);
}

int ddp_zero_loaded(struct ddp_zero *z)
{
    if (z == NULL || z->saved_updates < 0)
        return rt_fail(DDP_EINVAL, "ddp_zero_loaded: invalid number of steps: %lld",
                       z != NULL ? (long long)z->saved_updates : 0LL);
    struct shard_version *v = zero_current(z);
    /* Belongs to this step alone, like the peer replica: it may also have been that of earlier
     * steps. */
    shard_done(v, z->shards->step, (uint64_t)z->saved_updates);
    z->shards->buddy.at[0].is_valid = z->shards->buddy.at[1].is_valid = false; /* of what was */
    int rc = round_masters(z);
    if (rc == 0)
        rc = zero_copy_to_buddy(z, v, z->shards->step, v->n_updates);
    return rc;
}

void ddp_zero_get_stats(const struct ddp_zero *z, struct ddp_zero_stats *ret)
{
    if (ret == NULL)
        return;
    *ret = (struct ddp_zero_stats){0};
    if (z == NULL)
        return;
    const struct shards *s = z->shards;
    *ret = (struct ddp_zero_stats){
        .n_steps = zero_current(z)->n_updates,
        .first = zero_first(z),
        .count = zero_count(z),
        .state_bytes = shards_bytes(&s->shape, z->g->rank),
        .whole_state_bytes = s->shape.total * s->shape.n_arrays * s->shape.element_bytes,
        .held_bytes = shards_held_bytes(s),
    };
}
