/* scaler.c - ddp_scaler: the arithmetic of torch's _amp_update_scale_ and
 * _amp_foreach_non_finite_check_and_unscale_, in their types. */
#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/arithmetic/reduce.h"
#include "worker-runtime/core/group.h"
#include "worker-runtime/core/process.h"

#include <ddp/collective.h>
#include <ddp/scaler.h>
#include <math.h>

static struct ddp_scaler from_opts(const struct ddp_scaler_opts *o)
{
    return (struct ddp_scaler){
        .scale = o->init_scale != 0 ? o->init_scale : 65536.0f,
        .growth_interval = o->growth_interval != 0 ? o->growth_interval : 2000,
        .is_fixed = o->is_fixed,
        .growth_factor = o->growth_factor != 0 ? o->growth_factor : 2.0,
        .backoff_factor = o->backoff_factor != 0 ? o->backoff_factor : 0.5,
        .min_scale = o->min_scale,
        .max_scale = o->max_scale != 0 ? o->max_scale : INFINITY,
    };
}

/* A scale may have fallen to 0, as torch's does; none begins there. */
static int check_scaler(const char *name, const struct ddp_scaler *s)
{
    if (!(s->scale >= 0) || !isfinite(s->scale))
        return rt_fail(DDP_EINVAL, "%s: invalid loss scale %g: expected 0 or more", name,
                       (double)s->scale);
    if (!(s->growth_factor > 1) || !isfinite(s->growth_factor))
        return rt_fail(DDP_EINVAL, "%s: invalid growth_factor %g: expected more than 1", name,
                       s->growth_factor);
    if (!(s->backoff_factor > 0) || !(s->backoff_factor < 1))
        return rt_fail(DDP_EINVAL, "%s: invalid backoff_factor %g: expected between 0 and 1", name,
                       s->backoff_factor);
    if (s->growth_interval < 1 || s->growth_tracker < 0)
        return rt_fail(DDP_EINVAL,
                       "%s: invalid growth_interval %d or growth_tracker %d: expected 1 or more, "
                       "and 0 or more",
                       name, (int)s->growth_interval, (int)s->growth_tracker);
    if (!(s->min_scale >= 0) || !(s->max_scale >= s->min_scale))
        return rt_fail(DDP_EINVAL, "%s: invalid bounds of the loss scale: %g to %g", name,
                       (double)s->min_scale, (double)s->max_scale);
    return 0;
}

int ddp_scaler_init(struct ddp_scaler *s, const struct ddp_scaler_opts *opts)
{
    static const struct ddp_scaler_opts defaults;
    if (s == NULL)
        return rt_fail(DDP_EINVAL, "ddp_scaler_init: the scaler is NULL");
    const struct ddp_scaler made = from_opts(opts != NULL ? opts : &defaults);
    int rc = check_scaler("ddp_scaler_init", &made);
    if (rc == 0)
        *s = made;
    return rc;
}

int ddp_scaler_unscale(const struct ddp_scaler *s, const struct ddp_tensor *tensors, size_t n,
                       int *found_inf)
{
    if (s == NULL || found_inf == NULL || (tensors == NULL && n > 0))
        return rt_fail(DDP_EINVAL, "ddp_scaler_unscale: scaler, tensors or found_inf is NULL");
    for (size_t i = 0; i < n; i++)
        if (!convert_is_float(tensors[i].dtype) ||
            (tensors[i].grad == NULL && tensors[i].count > 0))
            return rt_fail(DDP_EINVAL,
                           "ddp_scaler_unscale: tensor %zu has no floating-point gradient", i);
    const float inverse = (float)(1.0 / (double)s->scale);
    for (size_t i = 0; i < n; i++) {
        const struct ddp_tensor *t = &tensors[i];
        if (!reduce_is_finite(t->dtype, t->grad, t->count))
            *found_inf = 1;
        if (inverse != 1)
            convert_scale(process_kernels(), t->grad, t->dtype, t->count, (double)inverse);
    }
    return 0;
}

int ddp_scaler_agree(struct ddp_group *g, int *found_inf)
{
    if (found_inf == NULL)
        return rt_fail_null("ddp_scaler_agree", "found_inf");
    int rc = group_check("ddp_scaler_agree", g);
    if (rc != 0)
        return rc;
    int32_t any = *found_inf != 0;
    rc = ddp_all_reduce(g, &any, &any, 1, DDP_INT32, DDP_MAX, NULL);
    if (rc == 0)
        *found_inf = any;
    return rc;
}

static float scale_by(float scale, double factor)
{
    return (float)((double)scale * factor);
}

void ddp_scaler_update(struct ddp_scaler *s, int found_inf)
{
    if (s == NULL || s->is_fixed)
        return;
    if (found_inf) {
        s->scale = fmaxf(scale_by(s->scale, s->backoff_factor), s->min_scale);
        s->growth_tracker = 0;
        return;
    }
    if (s->growth_tracker == INT32_MAX || ++s->growth_tracker != s->growth_interval)
        return; /* past the interval it never comes to it again, and never grows: as torch's */
    const float grown = scale_by(s->scale, s->growth_factor);
    if (isfinite(grown))
        s->scale = fminf(grown, s->max_scale);
    s->growth_tracker = 0;
}

/* --- checkpoints ------------------------------------------------------------------------------ */

void ddp_scaler_save(const struct ddp_scaler *s, double state[DDP_SCALER_N_STATE])
{
    if (s == NULL || state == NULL)
        return;
    state[0] = (double)s->scale;
    state[1] = s->growth_factor;
    state[2] = s->backoff_factor;
    state[3] = s->growth_interval;
    state[4] = s->growth_tracker;
}

static bool is_count(double x)
{
    return x >= 0 && x <= INT32_MAX && x == floor(x);
}

int ddp_scaler_load(struct ddp_scaler *s, const double state[DDP_SCALER_N_STATE])
{
    if (s == NULL || state == NULL)
        return rt_fail(DDP_EINVAL, "ddp_scaler_load: scaler or state is NULL");
    if (!is_count(state[3]) || !is_count(state[4]))
        return rt_fail(DDP_EINVAL, "ddp_scaler_load: invalid state: %g steps of %g", state[4],
                       state[3]);
    struct ddp_scaler loaded = *s;
    loaded.scale = (float)state[0];
    loaded.growth_factor = state[1];
    loaded.backoff_factor = state[2];
    loaded.growth_interval = (int32_t)state[3];
    loaded.growth_tracker = (int32_t)state[4];
    int rc = check_scaler("ddp_scaler_load", &loaded);
    if (rc != 0)
        return rc;
    loaded.scale = fminf(fmaxf(loaded.scale, s->min_scale), s->max_scale);
    *s = loaded;
    return 0;
}
