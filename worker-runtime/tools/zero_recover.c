/* zero_recover.c - where a sharded state comes from when a generation begins.
 *
 * The first one has zeros. A later one continues from the last completed step: a rank that has
 * completed it gives its parameters, and sends which version of the shards belongs to them. Every
 * rank publishes which shards of that version it holds, its own or a peer replica; the lowest one
 * that holds a shard sends it to all, and each takes what falls into its new shard. So the number
 * of ranks may differ from before. */
#include "zero_priv.h"

#include "common/error.h"
#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/core/collective.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/group/recovery.h"
#include "worker-runtime/model/model_agree.h"
#include <ddp/collective.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What counts, as the giver sends it. */
struct wanted {
    struct shards_shape shape;
    uint64_t step, since; /* the version of `step` is that of each step since then */
    uint64_t n_updates;
    uint32_t is_used; /* 0: the giver had no such state: it begins now */
};

static int make_shards(struct ddp_zero *z, const struct shards_shape *shape, struct shards *ret)
{
    struct co_error err = {0};
    int code = shards_init(ret, shape, z->kept != NULL ? 2 : 1, z->ring != NULL);
    if (code != 0)
        co_fail(&err, code, "out of memory for %zu bytes of a shard",
                shards_bytes(shape, shape->rank));
    return collective_agree(z->g, code, &err);
}

/* --- the first generation --------------------------------------------------------------------- */

static void fill_masters(struct ddp_zero *z)
{
    const size_t size = ddp_dtype_size(z->dtype);
    struct shard_version *v = zero_current(z);
    for (size_t i = 0; z->has_masters && i < z->n_tensors; i++) {
        size_t first, end;
        if (zero_part(z, i, &first, &end))
            convert(process_kernels(), zero_state_at(z, v, z->n_arrays, first), z->fine,
                    (const uint8_t *)z->tensors[i].param + (first - z->offset[i]) * size, z->dtype,
                    end - first);
    }
}

static int begin_state(struct ddp_zero *z, const struct shards_shape *shape)
{
    struct shards fresh;
    int rc = make_shards(z, shape, &fresh);
    if (rc != 0) {
        shards_fini(&fresh);
        return rc;
    }
    shards_fini(z->shards);
    *z->shards = fresh;
    fill_masters(z);
    return 0;
}

/* --- a later one ------------------------------------------------------------------------------ */

static struct wanted describe_wanted(struct ddp_zero *z)
{
    struct shards *s = z->shards;
    struct shard_version *v = s->is_used ? shard_find(&s->own, s->step) : NULL;
    struct wanted w;
    memset(&w, 0, sizeof w); /* it travels */
    if (v == NULL)
        return w;
    w.shape = s->shape;
    w.step = s->step;
    w.since = v->first_step;
    w.n_updates = v->n_updates;
    w.is_used = 1;
    return w;
}

/* The shard of rank `of` as it is wanted, if this rank holds it. */
static struct shard_version *find_held(struct ddp_zero *z, const struct wanted *w, int of)
{
    struct shards *s = z->shards;
    if (!s->is_used || s->shape.n_ranks != w->shape.n_ranks || s->shape.total != w->shape.total)
        return NULL;
    struct shard_version *v = s->own.of_rank == of ? shard_find(&s->own, w->since) : NULL;
    return v == NULL && s->buddy.of_rank == of ? shard_find(&s->buddy, w->since) : v;
}

static int fail_lost(const struct wanted *w, const int32_t *holder)
{
    char names[256] = "";
    size_t at = 0, n_lost = 0;
    for (int32_t r = 0; r < w->shape.n_ranks; r++)
        if (holder[r] == INT32_MAX && n_lost++ < 8 && at < sizeof names)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%d", n_lost > 1 ? ", " : "",
                                   (int)r);
    return rt_fail(DDP_EPEER,
                   "the optimizer state after step %" PRIu64
                   " is lost: no rank has the shard of %zu rank%s (%s); restart from a checkpoint, "
                   "and set ddp_zero_opts.buddies to keep copies on peers",
                   w->step, n_lost, n_lost > 1 ? "s" : "", names);
}

static int find_holders(struct ddp_zero *z, const struct wanted *w, int32_t *holder)
{
    for (int32_t r = 0; r < w->shape.n_ranks; r++)
        holder[r] = find_held(z, w, r) != NULL ? z->g->rank : INT32_MAX;
    int rc =
        ddp_all_reduce(z->g, holder, holder, (size_t)w->shape.n_ranks, DDP_INT32, DDP_MIN, NULL);
    for (int32_t r = 0; rc == 0 && r < w->shape.n_ranks; r++)
        if (holder[r] == INT32_MAX && shards_count(&w->shape, r) > 0)
            rc = fail_lost(w, holder);
    return rc;
}

/* What of the shard of rank `of`, as it was, falls into this rank's new one. */
static void take_part(const struct wanted *w, int of, const uint8_t *from, struct shards *to)
{
    const size_t size = w->shape.element_bytes;
    const size_t first = shards_first(&w->shape, of), count = shards_count(&w->shape, of);
    const size_t own = shards_first(&to->shape, to->shape.rank);
    const size_t own_count = shards_count(&to->shape, to->shape.rank);
    const size_t begins = first > own ? first : own;
    const size_t ends = first + count < own + own_count ? first + count : own + own_count;
    for (uint32_t k = 0; begins < ends && k < w->shape.n_arrays; k++)
        memcpy(to->own.at[0].memory + (k * own_count + begins - own) * size,
               from + (k * count + begins - first) * size, (ends - begins) * size);
}

static int fetch_shards(struct ddp_zero *z, const struct wanted *w, const int32_t *holder,
                        uint8_t *scratch, struct shards *to)
{
    int rc = 0;
    for (int32_t of = 0; rc == 0 && of < w->shape.n_ranks; of++) {
        const size_t bytes = shards_bytes(&w->shape, of);
        const struct shard_version *v = find_held(z, w, of);
        if (bytes == 0)
            continue;
        if (holder[of] == z->g->rank)
            memcpy(scratch, v->memory, bytes);
        rc = ddp_broadcast_bytes(z->g, scratch, bytes, holder[of]);
        if (rc == 0)
            take_part(w, of, scratch, to);
    }
    return rc;
}

static int gather_shards(struct ddp_zero *z, const struct wanted *w,
                         const struct shards_shape *shape, struct shards *ret)
{
    const size_t scratch_bytes = shards_bytes(&w->shape, 0) + 1; /* the first is the longest */
    int32_t *holder = calloc((size_t)w->shape.n_ranks, sizeof *holder);
    uint8_t *scratch = malloc(scratch_bytes);
    struct co_error err = {0};
    int code = 0;
    *ret = (struct shards){0};
    if (holder == NULL || scratch == NULL)
        code = co_fail(&err, -ENOMEM, "out of memory for %zu bytes of a shard", scratch_bytes);
    int rc = collective_agree(z->g, code, &err);
    if (rc == 0)
        rc = find_holders(z, w, holder);
    if (rc == 0)
        rc = make_shards(z, shape, ret);
    if (rc == 0)
        rc = fetch_shards(z, w, holder, scratch, ret);
    free(holder);
    free(scratch);
    return rc;
}

/* The giver decides which version counts. The new shards are filled in addition to the old ones,
 * which other ranks may still need, and replace them when this rank has all of its own. */
static int go_on(struct ddp_zero *z, const struct shards_shape *shape, int giver)
{
    struct wanted w = describe_wanted(z);
    struct shards fresh;
    int rc = ddp_broadcast_bytes(z->g, &w, sizeof w, giver);
    if (rc != 0)
        return rc;
    if (w.is_used == 0)
        return begin_state(z, shape);
    if (w.shape.total != shape->total || w.shape.n_arrays != shape->n_arrays ||
        w.shape.element_bytes != shape->element_bytes)
        return rt_fail(DDP_EMISMATCH, "ddp_zero_create: the tensors or the optimizer differ from "
                                      "those before the replacement");
    rc = gather_shards(z, &w, shape, &fresh);
    if (rc != 0) {
        shards_fini(&fresh);
        return rc;
    }
    shards_fini(z->shards);
    *z->shards = fresh;
    z->shards->step = w.step;
    shard_done(&z->shards->own.at[0], w.step, w.n_updates);
    return zero_copy_to_buddy(z, &z->shards->own.at[0], w.step, w.n_updates);
}

int zero_take_state(struct ddp_zero *z, const struct shards_shape *shape)
{
    int giver;
    int rc = recovery_find_giver(z->g, &giver);
    if (rc == 0)
        rc = recovery_take_memory(z->g, giver);
    if (rc == 0)
        rc = model_broadcast(z->g, z->tensors, z->n_tensors, giver, NULL);
    if (rc != 0)
        return rc;
    if (recovery_is_due(z->g))
        return go_on(z, shape, giver);
    rc = begin_state(z, shape);
    return rc == 0 ? zero_copy_to_buddy(z, zero_current(z), 0, 0) : rc;
}
