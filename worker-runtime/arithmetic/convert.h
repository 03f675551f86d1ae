/* convert.h - arithmetic on whole gradients of any floating-point type: other types, factors,
 * what is not finite. 16-bit floats are taken as float32 and rounded once. Which kernels convert
 * them changes no results. */
#ifndef DDP_WORKER_RUNTIME_ARITHMETIC_CONVERT_H
#define DDP_WORKER_RUNTIME_ARITHMETIC_CONVERT_H

#include "reduce.h"

bool convert_is_float(enum ddp_dtype dtype);

/* Each of `from`, rounded to nearest, into `to`; they don't overlap. Types are floats. */
void convert(const struct reduce_kernels *k, void *to, enum ddp_dtype to_dtype, const void *from,
             enum ddp_dtype from_dtype, size_t count);

/* Multiply. Of types other than float64 the factor is rounded to float32 first. */
void convert_scale(const struct reduce_kernels *k, void *values, enum ddp_dtype dtype, size_t count,
                   double factor);

/* The number of the first value that is infinite or not a number; `count`: none. */
size_t convert_find_nonfinite(const void *values, enum ddp_dtype dtype, size_t count);

/* One value. */
double convert_get(const void *values, enum ddp_dtype dtype, size_t i);

/* The sum of the squares, added up in a fixed order. NaN if one of the values is. */
double convert_sum_of_squares(const void *values, enum ddp_dtype dtype, size_t count);

#endif
