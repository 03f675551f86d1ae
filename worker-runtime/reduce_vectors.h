/* reduce_vectors.h - the vector kernels of all types, and their table; see reduce_vector.h.
 *
 * Included by one file per instruction set, which defines VECTOR_BYTES, KERNELS and KERNELS_NAME. */
#include "reduce.h"

#include <stdint.h>
#include <string.h>

#define ALWAYS_INLINE inline __attribute__((always_inline))

#define ELEMENT  float
#define SIGNED   int32_t
#define UNSIGNED uint32_t
#define IS_FLOAT 1
#define NAME(x)  x##_f32
#include "reduce_vector.h"

#define ELEMENT  double
#define SIGNED   int64_t
#define UNSIGNED uint64_t
#define IS_FLOAT 1
#define NAME(x)  x##_f64
#include "reduce_vector.h"

#define ELEMENT  int32_t
#define SIGNED   int32_t
#define UNSIGNED uint32_t
#define IS_FLOAT 0
#define NAME(x)  x##_i32
#include "reduce_vector.h"

#define ELEMENT  int64_t
#define SIGNED   int64_t
#define UNSIGNED uint64_t
#define IS_FLOAT 0
#define NAME(x)  x##_i64
#include "reduce_vector.h"

#define KERNELS_OF(type)                                                                           \
    {                                                                                              \
        [DDP_SUM] = sum_##type, [DDP_AVG] = avg_##type, [DDP_MIN] = min_##type,                    \
        [DDP_MAX] = max_##type                                                                     \
    }

const struct reduce_kernels KERNELS = {
    .name = KERNELS_NAME,
    .fn =
        {
            [DDP_FLOAT32] = KERNELS_OF(f32),
            [DDP_FLOAT64] = KERNELS_OF(f64),
            [DDP_INT32] = KERNELS_OF(i32),
            [DDP_INT64] = KERNELS_OF(i64),
        },
};
