/* zero_state.c - a sharded state in checkpoints, and its numbers. */
#include "zero_priv.h"

#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/core/process.h"
#include <stdio.h>
#include <string.h>

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
        return rt_fail(DDP_EINVAL, "ddp_zero_items: a name of up to 80 bytes, items and ret_n are "
                                   "needed");
    if (z->is_torn)
        return rt_fail(DDP_EINVAL, "ddp_zero_items: the last step broke in the middle, and the "
                                   "state before it is gone: begin again from a checkpoint");
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
        return rt_fail(DDP_EINVAL, "ddp_zero_loaded: a checkpoint of %lld steps cannot be",
                       z != NULL ? (long long)z->saved_updates : 0LL);
    struct shard_version *v = zero_current(z);
    /* Of this step alone, as the buddy's copy: it may have been that of steps before, too. */
    shard_done(v, z->shards->step, (uint64_t)z->saved_updates);
    z->shards->buddy.at[0].is_valid = z->shards->buddy.at[1].is_valid = false; /* of what was */
    int rc = round_masters(z);
    if (rc == 0)
        rc = zero_copy_to_buddy(z, v, z->shards->step, v->n_updates);
    return rc;
}

void ddp_zero_get_stats(const struct ddp_zero *z, struct ddp_zero_stats *ret)
{
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
