/* types.h - element types and reductions, shared by the calls of collective.h and model.h.
 *
 * The numbers are part of the binary interface: new members go to the end. */
#ifndef DDP_TYPES_H
#define DDP_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ddp_dtype {
    DDP_FLOAT32 = 0,
    DDP_FLOAT64 = 1,
    DDP_INT32 = 2,
    DDP_INT64 = 3,
    DDP_FLOAT16 = 4,  /* IEEE 754 binary16 */
    DDP_BFLOAT16 = 5, /* the upper half of a float32 */
    DDP_INT8 = 6,
    DDP_UINT8 = 7,
    DDP_UINT32 = 8,
    DDP_UINT64 = 9
};

/* The 16-bit floats are added up and multiplied as float32, and rounded once, at the end. Integers
 * wrap around. */
enum ddp_op {
    DDP_SUM = 0,
    DDP_AVG = 1, /* floats: each rank's value times 1/world_size, then added up, as NCCL and torch's
                     DistributedDataParallel do it; integers: added up, then divided, towards 0.
                     Where the sum wraps around, the result is not the average */
    DDP_MIN = 2, /* a NaN on any rank gives NaN */
    DDP_MAX = 3, /* a NaN on any rank gives NaN */
    DDP_PROD = 4, /* multiplied */
    DDP_BAND = 5, /* bits that are 1 on all ranks; of integers only */
    DDP_BOR = 6   /* bits that are 1 on any rank; of integers only */
};

/* Bytes of one element; 0 for an unknown type. */
size_t ddp_dtype_size(enum ddp_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
