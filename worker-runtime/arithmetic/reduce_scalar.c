/* reduce_scalar.c - the kernels in plain C, one element at a time: what the fast ones are compared
 * with, and what runs where none of them can. */
#include "finite.h"
#include "half.h"
#include "int8_block.h"
#include "reduce_table.h"

#include <stdint.h>

#define AS_IS(x)  (x)
#define SCALED(x) ((x)*scale)

#define ADD_FLOAT(held, x) ((held) + (x))
#define MUL_FLOAT(held, x) ((held) * (x))
#define MIN_FLOAT(held, x) ((x) < (held) || (x) != (x) ? (x) : (held)) /* x != x: a NaN */
#define MAX_FLOAT(held, x) ((x) > (held) || (x) != (x) ? (x) : (held))

/* Integers wrap around: unsigned ones of 64 bits do, whatever is cut off afterwards. */
#define ADD(held, x)        ((uint64_t)(held) + (uint64_t)(x))
#define MUL(held, x)        ((uint64_t)(held) * (uint64_t)(x))
#define MIN(held, x)        ((x) < (held) ? (x) : (held))
#define MAX(held, x)        ((x) > (held) ? (x) : (held))
#define BAND(held, x)       ((held) & (x))
#define BOR(held, x)        ((held) | (x))
#define DIVIDED(x)          ((x) / (int64_t)n_in)
#define DIVIDED_UNSIGNED(x) ((x) / (uint64_t)n_in)

/* T: what lies in memory; H: what is held. FROM: a rank's value on its way in; FOLD: into what is
 * held; TO: the result on its way out. */
#define LOOP(T, H, LOAD, ENTER, FOLD, LEAVE, LOOK)                                                 \
    const H scale = (H)1 / (H)n_in;                                                                \
    (void)scale;                                                                                   \
    for (size_t i = 0; i < count; i++) {                                                           \
        H held = ENTER(LOAD(((const T *)in[0])[i]));                                               \
        for (unsigned r = 1; r < n_in; r++) {                                                      \
            const H x = ENTER(LOAD(((const T *)in[r])[i]));                                        \
            held = (H)FOLD(held, x);                                                               \
        }                                                                                          \
        const T result = (T)LEAVE(held);                                                           \
        for (unsigned o = 0; o < n_out; o++)                                                       \
            ((T *)out[o])[i] = result;                                                             \
        LOOK(result);                                                                              \
    }

#define DEFINE(name, T, H, LOAD, ENTER, FOLD, LEAVE)                                               \
    static void name(const void *const *in, unsigned n_in, void *const *out, unsigned n_out,       \
                     size_t count)                                                                 \
    {                                                                                              \
        LOOP(T, H, LOAD, ENTER, FOLD, LEAVE, (void))                                               \
    }

#define DEFINE_CHECKED(name, T, H, LOAD, ENTER, FOLD, LEAVE, IS_FINITE)                            \
    static bool checked_##name(const void *const *in, unsigned n_in, void *const *out,             \
                               unsigned n_out, size_t count)                                       \
    {                                                                                              \
        bool all = true;                                                                           \
        LOOP(T, H, LOAD, ENTER, FOLD, LEAVE, all &= IS_FINITE)                                     \
        return !all;                                                                               \
    }                                                                                              \
    DEFINE(name, T, H, LOAD, ENTER, FOLD, LEAVE)

#define DEFINE_FLOAT(type, T, H, LOAD, STORE)                                                      \
    DEFINE_CHECKED(sum_##type, T, H, LOAD, AS_IS, ADD_FLOAT, STORE, finite_##type)                 \
    DEFINE_CHECKED(avg_##type, T, H, LOAD, SCALED, ADD_FLOAT, STORE, finite_##type)                \
    DEFINE_CHECKED(min_##type, T, H, LOAD, AS_IS, MIN_FLOAT, STORE, finite_##type)                 \
    DEFINE_CHECKED(max_##type, T, H, LOAD, AS_IS, MAX_FLOAT, STORE, finite_##type)                 \
    DEFINE_CHECKED(prod_##type, T, H, LOAD, AS_IS, MUL_FLOAT, STORE, finite_##type)

#define DEFINE_INTEGER(type, T, DIVIDE)                                                            \
    DEFINE(sum_##type, T, T, AS_IS, AS_IS, ADD, AS_IS)                                             \
    DEFINE(avg_##type, T, T, AS_IS, AS_IS, ADD, DIVIDE)                                            \
    DEFINE(min_##type, T, T, AS_IS, AS_IS, MIN, AS_IS)                                             \
    DEFINE(max_##type, T, T, AS_IS, AS_IS, MAX, AS_IS)                                             \
    DEFINE(prod_##type, T, T, AS_IS, AS_IS, MUL, AS_IS)                                            \
    DEFINE(band_##type, T, T, AS_IS, AS_IS, BAND, AS_IS)                                           \
    DEFINE(bor_##type, T, T, AS_IS, AS_IS, BOR, AS_IS)

DEFINE_FLOAT(f32, float, float, AS_IS, AS_IS)
DEFINE_FLOAT(f64, double, double, AS_IS, AS_IS)
DEFINE_FLOAT(f16, uint16_t, float, half_from_f16, half_to_f16)
DEFINE_FLOAT(bf16, uint16_t, float, half_from_bf16, half_to_bf16)
DEFINE_INTEGER(i8, int8_t, DIVIDED)
DEFINE_INTEGER(u8, uint8_t, DIVIDED_UNSIGNED)
DEFINE_INTEGER(i32, int32_t, DIVIDED)
DEFINE_INTEGER(u32, uint32_t, DIVIDED_UNSIGNED)
DEFINE_INTEGER(i64, int64_t, DIVIDED)
DEFINE_INTEGER(u64, uint64_t, DIVIDED_UNSIGNED)

#define DEFINE_CASTS(type)                                                                         \
    static void widen_##type(float *to, const uint16_t *from, size_t count)                        \
    {                                                                                              \
        for (size_t i = 0; i < count; i++)                                                         \
            to[i] = half_from_##type(from[i]);                                                     \
    }                                                                                              \
    static void narrow_##type(uint16_t *to, const float *from, size_t count)                       \
    {                                                                                              \
        for (size_t i = 0; i < count; i++)                                                         \
            to[i] = half_to_##type(from[i]);                                                       \
    }
DEFINE_CASTS(f16)
DEFINE_CASTS(bf16)

static void to_int8(int8_t *to, float *scales, float *values, size_t count)
{
    for (size_t first = 0; first < count; first += REDUCE_INT8_BLOCK) {
        const size_t n = count - first < REDUCE_INT8_BLOCK ? count - first : REDUCE_INT8_BLOCK;
        uint32_t max = 0;
        for (size_t i = first; i < first + n; i++)
            max = int8_magnitude(values[i]) > max ? int8_magnitude(values[i]) : max;
        const struct int8_scale s = int8_scale_of(max);
        scales[first / REDUCE_INT8_BLOCK] = s.scale;
        if (!s.is_usual)
            int8_unusual(to + first, values + first, n, s);
        for (size_t i = first; s.is_usual && i < first + n; i++)
            to[i] = int8_one(&values[i], s);
    }
}

static void from_int8(float *to, const int8_t *from, const float *scales, size_t count, bool adds)
{
    for (size_t i = 0; i < count; i++) {
        const float x = (float)from[i] * scales[i / REDUCE_INT8_BLOCK];
        to[i] = adds ? to[i] + x : x;
    }
}

const struct reduce_kernels reduce_scalar = REDUCE_TABLE("scalar");
