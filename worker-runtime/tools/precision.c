/* precision.c - which type is used for what, and the parameters that are kept in two. */
#include "common/scope.h"
#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/core/group.h"
#include "worker-runtime/core/process.h"

#include <ddp/precision.h>
#include <stdlib.h>

int ddp_cast(void *to, enum ddp_dtype to_dtype, const void *from, enum ddp_dtype from_dtype,
             size_t count)
{
    if (!convert_is_float(to_dtype) || !convert_is_float(from_dtype))
        return rt_fail(DDP_EINVAL,
                       "ddp_cast: cannot convert from type %d to %d: expected floating-point types",
                       (int)from_dtype, (int)to_dtype);
    if (count > PTRDIFF_MAX / sizeof(double))
        return rt_fail(DDP_EINVAL, "ddp_cast: %zu elements exceed the address space", count);
    if (count > 0 && (to == NULL || from == NULL))
        return rt_fail(DDP_EINVAL, "ddp_cast: from or to is NULL, but n is %zu", count);
    convert(process_kernels(), to, to_dtype, from, from_dtype, count);
    return 0;
}

/* --- a policy --------------------------------------------------------------------------------- */

static bool is_half(enum ddp_dtype dtype)
{
    return dtype == DDP_FLOAT16 || dtype == DDP_BFLOAT16;
}

int ddp_precision_init(struct ddp_precision *p, enum ddp_opt_level level, enum ddp_dtype half)
{
    const struct ddp_precision levels[] = {
        [DDP_O0] = {.compute = DDP_FLOAT32, .param = DDP_FLOAT32, .keep_norm_fp32 = true},
        [DDP_O1] = {.compute = half,
                    .param = DDP_FLOAT32,
                    .keep_norm_fp32 = true,
                    .is_scaled = true},
        [DDP_O2] = {.compute = half,
                    .param = half,
                    .keep_norm_fp32 = true,
                    .master_weights = true,
                    .is_scaled = true},
        [DDP_O3] = {.compute = half, .param = half},
    };
    if (p == NULL || (unsigned)level > DDP_O3)
        return rt_fail(DDP_EINVAL,
                       "ddp_precision_init: invalid value %d for level: expected 0 to 3",
                       (int)level);
    if (!is_half(half))
        return rt_fail(DDP_EINVAL,
                       "ddp_precision_init: invalid value %d for dtype: expected a 16-bit type",
                       (int)half);
    *p = levels[level];
    return 0;
}

void ddp_precision_scaler(const struct ddp_precision *p, struct ddp_scaler *ret)
{
    const struct ddp_scaler_opts moving = {.max_scale = 0x1p24f};
    const struct ddp_scaler_opts fixed = {.init_scale = 1, .is_fixed = true};
    if (p != NULL && ret != NULL)
        ddp_scaler_init(ret, p->is_scaled ? &moving : &fixed); /* these are within their bounds */
}

/* --- parameters in two types ------------------------------------------------------------------ */

struct ddp_mixed {
    struct ddp_tensor *masters; /* borrowed */
    struct ddp_tensor *seen;    /* owned; by the network and the other ranks */
    size_t n;
    bool master_weights;
};

/* The network sees memory of its own: a rounded copy. */
static bool is_copy(const struct ddp_mixed *x, size_t i)
{
    return x->seen[i].param != x->masters[i].param;
}

static int check_tensors(const struct ddp_precision *p, const struct ddp_tensor *masters, size_t n)
{
    if (p == NULL || masters == NULL || n == 0 || !convert_is_float(p->param))
        return rt_fail(DDP_EINVAL, "ddp_mixed_create: the policy or tensors is NULL");
    for (size_t i = 0; i < n; i++)
        if ((masters[i].dtype != DDP_FLOAT32 && masters[i].dtype != DDP_FLOAT64) ||
            masters[i].param == NULL || masters[i].grad == NULL)
            return rt_fail(
                DDP_EINVAL,
                "ddp_mixed_create: tensor %zu must be float32 or float64 and have param and grad",
                i);
    return 0;
}

static int see_tensor(struct ddp_mixed *x, size_t i, enum ddp_dtype dtype)
{
    struct ddp_tensor *seen = &x->seen[i];
    *seen = x->masters[i];
    if (!is_half(dtype))
        return 0;
    seen->dtype = dtype;
    seen->grad = NULL;
    seen->param = calloc(seen->count > 0 ? seen->count : 1, sizeof(uint16_t));
    return seen->param != NULL
               ? 0
               : rt_fail(DDP_ENOMEM, "ddp_mixed_create: out of memory for %zu parameters",
                         seen->count);
}

co_define_auto(ddp_mixed, ddp_mixed_destroy);

int ddp_mixed_create(const struct ddp_precision *p, struct ddp_tensor *masters, size_t n,
                     const bool *is_norm, struct ddp_mixed **ret_mixed)
{
    if (ret_mixed == NULL)
        return rt_fail_null("ddp_mixed_create", "ret_mixed");
    int rc = check_tensors(p, masters, n);
    if (rc != 0)
        return rc;
    co_auto(ddp_mixed) x = calloc(1, sizeof *x);
    if (x == NULL || (x->seen = calloc(n, sizeof *x->seen)) == NULL)
        return rt_fail(DDP_ENOMEM, "ddp_mixed_create: out of memory");
    x->masters = masters;
    x->n = n;
    x->master_weights = p->master_weights;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const bool is_kept = is_norm != NULL && is_norm[i] && p->keep_norm_fp32;
        rc = see_tensor(x, i, is_kept ? DDP_FLOAT32 : p->param);
    }
    if (rc != 0)
        return rc;
    ddp_mixed_give_params(x);
    *ret_mixed = co_take(&x);
    return 0;
}

void ddp_mixed_destroy(struct ddp_mixed *x)
{
    if (x == NULL)
        return;
    for (size_t i = 0; i < x->n; i++)
        if (is_copy(x, i))
            free(x->seen[i].param);
    free(x->seen);
    free(x);
}

struct ddp_tensor *ddp_mixed_tensors(struct ddp_mixed *x)
{
    return x != NULL ? x->seen : NULL;
}

int ddp_mixed_take_gradients(struct ddp_mixed *x, const struct ddp_scaler *s, int *found_inf)
{
    if (x == NULL || s == NULL || found_inf == NULL)
        return rt_fail(DDP_EINVAL, "ddp_mixed_take_gradients: the scaler or found_inf is NULL");
    for (size_t i = 0; i < x->n; i++)
        if (x->seen[i].grad == NULL && x->seen[i].count > 0)
            return rt_fail(DDP_EINVAL,
                           "ddp_mixed_take_gradients: tensor %zu '%s' has no gradient: pass "
                           "ddp_mixed_tensors() to ddp_model_create()",
                           i, x->seen[i].name);
    for (size_t i = 0; i < x->n; i++)
        if (x->seen[i].grad != x->masters[i].grad)
            convert(process_kernels(), x->masters[i].grad, x->masters[i].dtype, x->seen[i].grad,
                    x->seen[i].dtype, x->seen[i].count);
    return ddp_scaler_unscale(s, x->masters, x->n, found_inf);
}

void ddp_mixed_give_params(struct ddp_mixed *x)
{
    for (size_t i = 0; x != NULL && i < x->n; i++) {
        struct ddp_tensor *seen = &x->seen[i], *master = &x->masters[i];
        if (!is_copy(x, i))
            continue;
        convert(process_kernels(), seen->param, seen->dtype, master->param, master->dtype,
                seen->count);
        if (!x->master_weights)
            convert(process_kernels(), master->param, master->dtype, seen->param, seen->dtype,
                    seen->count);
    }
}
