#include "optimizer.h"

#include <math.h>

unsigned optimizer_n_arrays(enum ddp_optimizer kind, double momentum)
{
    return kind == DDP_ADAMW ? 2 : momentum > 0 ? 1 : 0;
}

const char *optimizer_array_name(enum ddp_optimizer kind, unsigned i)
{
    if (kind == DDP_SGD)
        return "momentum_buffer";
    return i == 0 ? "exp_avg" : "exp_avg_sq";
}

#define REAL    float
#define ROOT(x) sqrtf(x)
#define NAME(x) x##_f32
#include "optimizer_kernel.inc"
#undef REAL
#undef ROOT
#undef NAME

#define REAL    double
#define ROOT(x) sqrt(x)
#define NAME(x) x##_f64
#include "optimizer_kernel.inc"

void optimizer_difference(void *to, const void *from, const void *at, enum ddp_dtype dtype,
                          size_t count)
{
    if (dtype == DDP_FLOAT64)
        difference_f64(to, from, at, count);
    else
        difference_f32(to, from, at, count);
}

void optimizer_apply(const struct optimizer_step *s, enum ddp_dtype dtype,
                     const struct optimizer_stretch *on)
{
    const bool is_double = dtype == DDP_FLOAT64;
    if (s->kind == DDP_SGD)
        (is_double ? sgd_f64 : sgd_f32)(s, on);
    else
        (is_double ? adamw_f64 : adamw_f32)(s, on);
}
