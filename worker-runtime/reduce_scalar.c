/* reduce_scalar.c - the kernels in plain C, one element at a time: what the fast ones are compared
 * with, and what runs where none of them can. */
#include "reduce.h"

#include <stdint.h>

#define ADD_FLOAT(held, x) ((held) + (x))
#define ADD_I32(held, x)   ((int32_t)((uint32_t)(held) + (uint32_t)(x)))
#define ADD_I64(held, x)   ((int64_t)((uint64_t)(held) + (uint64_t)(x)))
#define MIN(held, x)       ((x) < (held) ? (x) : (held))
#define MAX(held, x)       ((x) > (held) ? (x) : (held))
#define MIN_FLOAT(held, x) ((x) < (held) || (x) != (x) ? (x) : (held)) /* x != x: a NaN */
#define MAX_FLOAT(held, x) ((x) > (held) || (x) != (x) ? (x) : (held))
#define AS_IS(x)           (x)
#define SCALED(x)          ((x)*scale)
#define DIVIDED(x)         ((x) / (int32_t)n_in)

/* ENTER: a rank's value on its way in; FOLD: into what is held; LEAVE: the result on its way
 * out. */
#define DEFINE(name, T, ENTER, FOLD, LEAVE)                                                        \
    static void name(const void *const *in, unsigned n_in, void *const *out, unsigned n_out,       \
                     size_t count)                                                                 \
    {                                                                                              \
        const T scale = (T)1 / (T)n_in;                                                            \
        (void)scale;                                                                               \
        for (size_t i = 0; i < count; i++) {                                                       \
            T held = ENTER(((const T *)in[0])[i]);                                                 \
            for (unsigned r = 1; r < n_in; r++) {                                                  \
                const T x = ENTER(((const T *)in[r])[i]);                                          \
                held = FOLD(held, x);                                                              \
            }                                                                                      \
            for (unsigned o = 0; o < n_out; o++)                                                   \
                ((T *)out[o])[i] = LEAVE(held);                                                    \
        }                                                                                          \
    }

DEFINE(sum_f32, float, AS_IS, ADD_FLOAT, AS_IS)
DEFINE(avg_f32, float, SCALED, ADD_FLOAT, AS_IS)
DEFINE(min_f32, float, AS_IS, MIN_FLOAT, AS_IS)
DEFINE(max_f32, float, AS_IS, MAX_FLOAT, AS_IS)

DEFINE(sum_f64, double, AS_IS, ADD_FLOAT, AS_IS)
DEFINE(avg_f64, double, SCALED, ADD_FLOAT, AS_IS)
DEFINE(min_f64, double, AS_IS, MIN_FLOAT, AS_IS)
DEFINE(max_f64, double, AS_IS, MAX_FLOAT, AS_IS)

DEFINE(sum_i32, int32_t, AS_IS, ADD_I32, AS_IS)
DEFINE(avg_i32, int32_t, AS_IS, ADD_I32, DIVIDED)
DEFINE(min_i32, int32_t, AS_IS, MIN, AS_IS)
DEFINE(max_i32, int32_t, AS_IS, MAX, AS_IS)

DEFINE(sum_i64, int64_t, AS_IS, ADD_I64, AS_IS)
DEFINE(avg_i64, int64_t, AS_IS, ADD_I64, DIVIDED)
DEFINE(min_i64, int64_t, AS_IS, MIN, AS_IS)
DEFINE(max_i64, int64_t, AS_IS, MAX, AS_IS)

const struct reduce_kernels reduce_scalar = {
    .name = "scalar",
    .fn =
        {
            [DDP_FLOAT32] = {sum_f32, avg_f32, min_f32, max_f32},
            [DDP_FLOAT64] = {sum_f64, avg_f64, min_f64, max_f64},
            [DDP_INT32] = {sum_i32, avg_i32, min_i32, max_i32},
            [DDP_INT64] = {sum_i64, avg_i64, min_i64, max_i64},
        },
};
