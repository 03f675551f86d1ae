/* reduce_table.h - the table of a set of kernels: sum_f32(), checked_sum_f32() and the like, and
 * widen_f16(), narrow_f16(), to_int8(), from_int8(), which the file that includes this has
 * defined. */
#ifndef DDP_WORKER_RUNTIME_ARITHMETIC_REDUCE_TABLE_H
#define DDP_WORKER_RUNTIME_ARITHMETIC_REDUCE_TABLE_H

#include "reduce.h"

#define FLOAT_KERNELS(type)                                                                        \
    {                                                                                              \
        [DDP_SUM] = sum_##type, [DDP_AVG] = avg_##type, [DDP_MIN] = min_##type,                    \
        [DDP_MAX] = max_##type, [DDP_PROD] = prod_##type                                           \
    }
#define CHECKED_KERNELS(type)                                                                      \
    {                                                                                              \
        [DDP_SUM] = checked_sum_##type, [DDP_AVG] = checked_avg_##type,                            \
        [DDP_MIN] = checked_min_##type, [DDP_MAX] = checked_max_##type,                            \
        [DDP_PROD] = checked_prod_##type                                                           \
    }
#define INTEGER_KERNELS(type)                                                                      \
    {                                                                                              \
        [DDP_SUM] = sum_##type, [DDP_AVG] = avg_##type, [DDP_MIN] = min_##type,                    \
        [DDP_MAX] = max_##type, [DDP_PROD] = prod_##type, [DDP_BAND] = band_##type,                \
        [DDP_BOR] = bor_##type                                                                     \
    }

#define REDUCE_TABLE(kernels_name)                                                                 \
    {                                                                                              \
        .name = kernels_name,                                                                      \
        .fn =                                                                                      \
            {                                                                                      \
                [DDP_FLOAT32] = FLOAT_KERNELS(f32),  [DDP_FLOAT64] = FLOAT_KERNELS(f64),           \
                [DDP_INT32] = INTEGER_KERNELS(i32),  [DDP_INT64] = INTEGER_KERNELS(i64),           \
                [DDP_FLOAT16] = FLOAT_KERNELS(f16),  [DDP_BFLOAT16] = FLOAT_KERNELS(bf16),         \
                [DDP_INT8] = INTEGER_KERNELS(i8),    [DDP_UINT8] = INTEGER_KERNELS(u8),            \
                [DDP_UINT32] = INTEGER_KERNELS(u32), [DDP_UINT64] = INTEGER_KERNELS(u64),          \
            },                                                                                     \
        .checked =                                                                                 \
            {                                                                                      \
                [DDP_FLOAT32] = CHECKED_KERNELS(f32),                                              \
                [DDP_FLOAT64] = CHECKED_KERNELS(f64),                                              \
                [DDP_FLOAT16] = CHECKED_KERNELS(f16),                                              \
                [DDP_BFLOAT16] = CHECKED_KERNELS(bf16),                                            \
            },                                                                                     \
        .widen = {[DDP_FLOAT16] = widen_f16, [DDP_BFLOAT16] = widen_bf16},                         \
        .narrow = {[DDP_FLOAT16] = narrow_f16, [DDP_BFLOAT16] = narrow_bf16}, .to_int8 = to_int8,  \
        .from_int8 = from_int8,                                                                    \
    }

#endif
