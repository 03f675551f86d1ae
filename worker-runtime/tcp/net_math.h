/* net_math.h - what an average over several nodes needs beside the kernels. Pure. */
#ifndef DDP_WORKER_RUNTIME_TCP_NET_MATH_H
#define DDP_WORKER_RUNTIME_TCP_NET_MATH_H

#include <ddp/types.h>
#include <stdbool.h>
#include <stddef.h>

bool net_math_is_float(enum ddp_dtype dtype);

/* Multiply floats by `factor`, rounded once to their type (of 16 bits: to float32); the products
 * are rounded once. */
void net_math_scale(enum ddp_dtype dtype, void *at, size_t count, double factor);

/* Divide integers by n, towards 0. */
void net_math_divide(enum ddp_dtype dtype, void *at, size_t count, unsigned n);

#endif
