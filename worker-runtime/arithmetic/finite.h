/* finite.h - is a float, as it lies in memory, neither infinite nor a NaN? Pure.
 *
 * By its bits: no floating-point exception is raised, whatever the program traps. */
#ifndef DDP_WORKER_RUNTIME_ARITHMETIC_FINITE_H
#define DDP_WORKER_RUNTIME_ARITHMETIC_FINITE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__ /* kernels also use these */
#define FINITE_FN static inline __host__ __device__
#else
#define FINITE_FN static inline
#endif

/* The least magnitude, as bits without the sign, that is not finite. */
#define FINITE_END_F32 UINT32_C(0x7f800000)
#define FINITE_END_F64 UINT64_C(0x7ff0000000000000)
/* ... of a float32 that becomes infinite when it is rounded to 16 bits. */
#define FINITE_END_F32_AS_F16  UINT32_C(0x477ff000)
#define FINITE_END_F32_AS_BF16 UINT32_C(0x7f7f8000)

FINITE_FN bool finite_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & INT32_MAX) < FINITE_END_F32;
}

FINITE_FN bool finite_f64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & INT64_MAX) < FINITE_END_F64;
}

FINITE_FN bool finite_f16(uint16_t bits)
{
    return (bits & 0x7c00) != 0x7c00;
}

FINITE_FN bool finite_bf16(uint16_t bits)
{
    return (bits & 0x7f80) != 0x7f80;
}

#endif
