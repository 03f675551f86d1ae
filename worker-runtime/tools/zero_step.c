/* zero_step.c - a step of ddp_zero.
 *
 * Gradients are averaged, each rank its own shard; all ranks learn whether every one of them is
 * finite, and their norm; the optimizer writes the next version of the shard, which is copied to
 * the peer replica; then new parameters go to all. A rank that comes through the last of these has
 * completed the step: by then every shard of it is held twice. */
#include "zero_priv.h"

#include "common/clock.h"
#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/arithmetic/reduce.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/group/recovery.h"
#include <ddp/collective.h>
#include <math.h>
#include <string.h>

enum { BLOCK = 1024 }; /* of 16-bit gradients, as float32 */

/* --- around the row --------------------------------------------------------------------------- */

int zero_hand_out(struct ddp_zero *z)
{
    int rc =
        ddp_all_gather_v(z->g, zero_row_at(z, zero_first(z)), z->row, z->counts, z->dtype, NULL);
    if (rc != 0)
        return rt_fail(rc, "ddp_zero_step: parameters: %s", ddp_last_error());
    for (size_t i = 0; i < z->n_tensors; i++)
        if (z->tensors[i].count > 0)
            memcpy(z->tensors[i].param, zero_row_at(z, z->offset[i]),
                   z->tensors[i].count * ddp_dtype_size(z->dtype));
    return 0;
}

static int average_gradients(struct ddp_zero *z)
{
    for (size_t i = 0; i < z->n_tensors; i++) { /* from the program's own memory */
        uint8_t *at = zero_row_at(z, z->offset[i]);
        if (z->tensors[i].grad != at && z->tensors[i].count > 0)
            memcpy(at, z->tensors[i].grad, z->tensors[i].count * ddp_dtype_size(z->dtype));
    }
    int rc = ddp_reduce_scatter_v(z->g, z->row, zero_row_at(z, zero_first(z)), z->counts, z->dtype,
                                  DDP_AVG, NULL);
    return rc == 0 ? 0 : rt_fail(rc, "ddp_zero_step: gradients: %s", ddp_last_error());
}

/* Of all ranks' shards: are they finite, and what is their norm? Sums are added up in rank order,
 * so that all ranks decide alike. */
static int look_at_gradients(struct ddp_zero *z, double inverse, struct ddp_zero_step *ret)
{
    const void *own = zero_row_at(z, zero_first(z));
    double sums[2] = {0, !reduce_is_finite(z->dtype, own, zero_count(z))};
    if (sums[1] == 0)
        sums[0] = convert_sum_of_squares(own, z->dtype, zero_count(z));
    int rc = ddp_all_reduce(z->g, sums, sums, 2, DDP_FLOAT64, DDP_SUM, NULL);
    if (rc != 0)
        return rt_fail(rc, "ddp_zero_step: norm: %s", ddp_last_error());
    ret->found_inf = sums[1] != 0;
    ret->norm = ret->found_inf ? NAN : sqrt(sums[0]) * inverse;
    return 0;
}

/* --- the optimizer ---------------------------------------------------------------------------- */

struct update { /* from one version to the next */
    struct ddp_zero *z;
    const struct shard_version *old;
    struct shard_version *new;
    struct optimizer_step step;
};

/* Parameters as they lie in memory: the row's gradients become new parameters. */
static void update_plain(const struct update *u, size_t tensor, size_t first, size_t end)
{
    const struct ddp_zero *z = u->z;
    const size_t size = ddp_dtype_size(z->dtype);
    struct optimizer_stretch on = {.param = (const uint8_t *)z->tensors[tensor].param +
                                            (first - z->offset[tensor]) * size,
                                   .grad = zero_row_at(z, first),
                                   .new_param = zero_row_at(z, first),
                                   .count = end - first};
    for (unsigned k = 0; k < z->n_arrays; k++) {
        on.state[k] = zero_state_at(z, u->old, k, first);
        on.new_state[k] = zero_state_at(z, u->new, k, first);
    }
    optimizer_apply(&u->step, z->fine, &on);
}

/* 16-bit gradients, float32 masters: block by block. */
static void update_masters(const struct update *u, size_t first, size_t end)
{
    const struct ddp_zero *z = u->z;
    float grad[BLOCK];
    for (size_t at = first; at < end; at += BLOCK) {
        const size_t n = end - at < BLOCK ? end - at : BLOCK;
        struct optimizer_stretch on = {.param = zero_state_at(z, u->old, z->n_arrays, at),
                                       .grad = grad,
                                       .new_param = zero_state_at(z, u->new, z->n_arrays, at),
                                       .count = n};
        convert(process_kernels(), grad, DDP_FLOAT32, zero_row_at(z, at), z->dtype, n);
        for (unsigned k = 0; k < z->n_arrays; k++) {
            on.state[k] = zero_state_at(z, u->old, k, at);
            on.new_state[k] = zero_state_at(z, u->new, k, at);
        }
        optimizer_apply(&u->step, z->fine, &on);
        convert(process_kernels(), zero_row_at(z, at), z->dtype, on.new_param, DDP_FLOAT32, n);
    }
}

static void update_shard(struct update *u)
{
    const double decay = u->step.decay;
    for (size_t i = 0; i < u->z->n_tensors; i++) {
        size_t first, end;
        if (!zero_part(u->z, i, &first, &end))
            continue;
        u->step.decay = u->z->decays[i] ? decay : 0;
        if (u->z->has_masters)
            update_masters(u, first, end);
        else
            update_plain(u, i, first, end);
    }
}

/* --- peer replicas ---------------------------------------------------------------------------- */

int zero_copy_to_buddy(struct ddp_zero *z, const struct shard_version *v, uint64_t step,
                       uint64_t n_updates)
{
    struct shards *s = z->shards;
    if (z->ring == NULL)
        return 0;
    const int n = z->g->world_size, rank = z->g->rank;
    const size_t own = shards_bytes(&s->shape, rank);
    struct shard_version *copy = shard_next(&s->buddy, s->step);
    struct ddp_request *sent = NULL, *got = NULL;
    int rc = ddp_irecv(z->ring, copy->memory, shards_bytes(&s->shape, s->buddy.of_rank), DDP_UINT8,
                       s->buddy.of_rank, 0, NULL, &got);
    if (rc == 0)
        rc = ddp_isend(z->ring, v->memory, own, DDP_UINT8, (rank + 1) % n, 0, NULL, &sent);
    int rc_got = ddp_wait(got), rc_sent = ddp_wait(sent);
    rc = rc != 0 ? rc : rc_got != 0 ? rc_got : rc_sent;
    if (rc != 0)
        return rt_fail(rc, "ddp_zero_step: peer replica: %s", ddp_last_error());
    shard_done(copy, step, n_updates);
    return 0;
}

/* --- a step ----------------------------------------------------------------------------------- */

static void complete_step(struct ddp_zero *z)
{
    z->shards->step++;
    recovery_count_step(z->g, z->began_ns);
}

/* From one version of the shard to the next. With two versions the old one stays valid until all
 * ranks have the new one, so that a generation that begins in between finds a complete state. With
 * one version the update overwrites it: is_torn means that the shard belongs to no step until the
 * parameters have been distributed. */
static int make_step(struct ddp_zero *z, double grad_factor)
{
    struct shards *s = z->shards;
    const struct shard_version *old = zero_current(z);
    const uint64_t number = old->n_updates + 1;
    struct update u = {.z = z, .old = old, .new = shard_next(&s->own, s->step), .step = z->how};
    u.step.number = number;
    u.step.grad_factor = grad_factor;
    z->is_torn = u.new == old; /* the only version: it belongs to no step until all is done */
    update_shard(&u);
    if (!z->is_torn)
        shard_done(u.new, s->step + 1, number);
    int rc = zero_copy_to_buddy(z, u.new, s->step + 1, number);
    if (rc == 0)
        rc = zero_hand_out(z);
    if (rc != 0)
        return rc;
    if (z->is_torn)
        shard_done(u.new, s->step + 1, number);
    z->is_torn = false;
    complete_step(z);
    return 0;
}

int ddp_zero_step(struct ddp_zero *z, const struct ddp_scaler *scaler, struct ddp_zero_step *ret)
{
    struct ddp_zero_step seen;
    if (z == NULL)
        return rt_fail(DDP_EINVAL, "ddp_zero_step: the ddp_zero is NULL");
    z->began_ns = co_now_ns();
    const double inverse = scaler != NULL ? (double)(float)(1.0 / (double)scaler->scale) : 1;
    int rc = average_gradients(z);
    if (rc == 0)
        rc = look_at_gradients(z, inverse, &seen);
    if (rc == 0 && seen.found_inf) { /* the state stays as it is */
        shard_keep(&z->shards->own, z->shards->step);
        if (z->ring != NULL)
            shard_keep(&z->shards->buddy, z->shards->step);
        complete_step(z);
    } else if (rc == 0) {
        const double factor = z->max_norm / (seen.norm + 1e-6);
        rc = make_step(z, z->max_norm > 0 && factor < 1 ? inverse * factor : inverse);
    }
    if (rc == 0 && ret != NULL)
        *ret = seen;
    return rc;
}
