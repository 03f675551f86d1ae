/* reduce.h - combine the same stretch of elements of several ranks, element by element.
 *
 * Pure. Every kernel takes the inputs in the order given (the caller gives rank order), rounds
 * after each operation and never fuses a product with a sum, so that all kernels give the same
 * bits:
 *
 *     SUM, PROD  in[0] + in[1] + in[2] ...; integers wrap around
 *     AVG        floats: in[0] * s + in[1] * s ..., s = 1 / n_in rounded once to the type;
 *                integers: the SUM, divided by n_in towards 0
 *     MIN, MAX   in[i] replaces what is held if it is smaller (greater) or a NaN; a held NaN stays
 *     BAND, BOR  of integers
 *
 * The 16-bit floats are held as float32 from the first input to the last, and rounded once. A NaN
 * stays a NaN; which one comes out of a sum of several is not specified. */
#ifndef DDP_WORKER_RUNTIME_ARITHMETIC_REDUCE_H
#define DDP_WORKER_RUNTIME_ARITHMETIC_REDUCE_H

#include <ddp/types.h>
#include <stdbool.h>
#include <stddef.h>

/* in        n_in >= 1 inputs of count elements, aligned to the element
 * out       n_out >= 1 outputs, all given the same result; each is one of the inputs exactly, or
 *           overlaps none */
typedef void reduce_fn(const void *const *in, unsigned n_in, void *const *out, unsigned n_out,
                       size_t count);

/* The same for floats; also reports whether a result, as it lies in memory now, is infinite or a
 * NaN. */
typedef bool reduce_checked_fn(const void *const *in, unsigned n_in, void *const *out,
                               unsigned n_out, size_t count);

/* 16-bit floats to float32, and float32 to them, rounded to nearest, ties to even: the bits of
 * half.h. They don't overlap. */
typedef void reduce_widen_fn(float *to, const uint16_t *from, size_t count);
typedef void reduce_narrow_fn(uint16_t *to, const float *from, size_t count);

/* Blocks of int8, with a float32 scale for each: a value is its byte times the scale of its block.
 * A block has 64 values: its scale adds 6 % to the bytes, and one large value coarsens few others.
 * With 256 values examples/chargpt learned less.
 *
 * to_int8   the scale is the block's largest magnitude / 127; each byte is rounded to nearest, ties
 *           to even. `values` become what is missing: each minus what its byte stands for. A block
 *           whose largest magnitude is below 2^-100 becomes zeros, and all of it is missing; one
 *           with a value that is not finite gets the scale NaN, and nothing is missing
 * from_int8 the products replace what is in `to`, or are added to it */
enum { REDUCE_INT8_BLOCK = 64 };
typedef void reduce_to_int8_fn(int8_t *to, float *scales, float *values, size_t count);
typedef void reduce_from_int8_fn(float *to, const int8_t *from, const float *scales, size_t count,
                                 bool adds);

enum { REDUCE_N_DTYPES = DDP_UINT64 + 1, REDUCE_N_OPS = DDP_BOR + 1 };

struct reduce_kernels {
    const char *name;
    reduce_fn *fn[REDUCE_N_DTYPES][REDUCE_N_OPS];              /* NULL: see reduce_is_defined() */
    reduce_checked_fn *checked[REDUCE_N_DTYPES][REDUCE_N_OPS]; /* NULL also for integers */
    reduce_widen_fn *widen[REDUCE_N_DTYPES];                   /* of the 16-bit floats; else NULL */
    reduce_narrow_fn *narrow[REDUCE_N_DTYPES];
    reduce_to_int8_fn *to_int8;
    reduce_from_int8_fn *from_int8;
};

extern const struct reduce_kernels reduce_scalar; /* plain C: the reference */
#if defined(__x86_64__)
extern const struct reduce_kernels reduce_avx2;
extern const struct reduce_kernels reduce_avx512;
#elif defined(__aarch64__)
extern const struct reduce_kernels reduce_neon;
#endif

/* ddp_dtype_size(), for the short way of small calls. */
static inline size_t reduce_size(enum ddp_dtype dtype)
{
    static const unsigned char sizes[REDUCE_N_DTYPES] = {
        [DDP_FLOAT32] = 4,  [DDP_FLOAT64] = 8, [DDP_INT32] = 4, [DDP_INT64] = 8,  [DDP_FLOAT16] = 2,
        [DDP_BFLOAT16] = 2, [DDP_INT8] = 1,    [DDP_UINT8] = 1, [DDP_UINT32] = 4, [DDP_UINT64] = 8,
    };
    return (unsigned)dtype < REDUCE_N_DTYPES ? sizes[dtype] : 0;
}

/* Whether both are known and there is such a reduction: bits of floats have none. */
bool reduce_is_defined(enum ddp_dtype dtype, enum ddp_op op);

/* Whether all of them are finite; integers are. */
bool reduce_is_finite(enum ddp_dtype dtype, const void *in, size_t count);

/* The fastest that this processor runs and `cap` allows: "scalar", "avx2", "avx512", "neon"; NULL
 * or "", and what another processor has: no limit. *ret_known becomes false if `cap` has another
 * value (it is then ignored). */
const struct reduce_kernels *reduce_choose(const char *cap, bool *ret_known);

#endif
