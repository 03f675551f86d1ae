#include "perf_values.h"

#include "perf_work.h"

#include <math.h>
#include <string.h>

/* --- one element ------------------------------------------------------------------------------ */

/* float16 of a whole number from 0 to 2048, whose bits all fit. */
static uint16_t f16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x == 0 ? 0 : (uint16_t)((bits - ((127u - 15) << 23)) >> 13);
}

static double from_f16(uint16_t h)
{
    const int exponent = h >> 10 & 0x1f;
    const double mantissa = h & 0x3ff, sign = h & 0x8000 ? -1 : 1;
    if (exponent == 0x1f)
        return mantissa != 0 ? NAN : sign * INFINITY;
    return sign * (exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25));
}

static uint16_t bf16_of(float x) /* of a number whose bits all fit */
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static double from_bf16(uint16_t b)
{
    const uint32_t bits = (uint32_t)b << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

#define PUT(type, value)                                                                           \
    do {                                                                                           \
        const type put_ = (type)(value);                                                           \
        memcpy(to, &put_, sizeof put_);                                                            \
    } while (0)

static void put(enum ddp_dtype dtype, void *to, unsigned value)
{
    switch (dtype) {
    case DDP_FLOAT32:
        PUT(float, value);
        return;
    case DDP_FLOAT64:
        PUT(double, value);
        return;
    case DDP_FLOAT16:
        PUT(uint16_t, f16_of((float)value));
        return;
    case DDP_BFLOAT16:
        PUT(uint16_t, bf16_of((float)value));
        return;
    case DDP_INT8:
    case DDP_UINT8:
        PUT(uint8_t, value);
        return;
    case DDP_INT32:
    case DDP_UINT32:
        PUT(uint32_t, value);
        return;
    case DDP_INT64:
    case DDP_UINT64:
        PUT(uint64_t, value);
        return;
    }
}

#define GET(type)                                                                                  \
    __extension__({                                                                                \
        type got_;                                                                                 \
        memcpy(&got_, from, sizeof got_);                                                          \
        got_;                                                                                      \
    })

static double get(enum ddp_dtype dtype, const void *from)
{
    switch (dtype) {
    case DDP_FLOAT32:
        return (double)GET(float);
    case DDP_FLOAT64:
        return GET(double);
    case DDP_FLOAT16:
        return from_f16(GET(uint16_t));
    case DDP_BFLOAT16:
        return from_bf16(GET(uint16_t));
    case DDP_INT8:
        return GET(int8_t);
    case DDP_UINT8:
        return GET(uint8_t);
    case DDP_INT32:
        return GET(int32_t);
    case DDP_UINT32:
        return GET(uint32_t);
    case DDP_INT64:
        return (double)GET(int64_t);
    case DDP_UINT64:
        return (double)GET(uint64_t);
    }
    return NAN;
}

/* --- what a rank has, and what comes out ------------------------------------------------------ */

/* Element i of a rank's `in`. */
static unsigned value_of(const struct perf_values *v, unsigned rank, size_t i)
{
    const unsigned at = (unsigned)(i % PERF_PERIOD);
    if (!perf_work_is_reduction(v->collective))
        return 1 + (rank * 31 + at) % 97;
    if (v->op == DDP_PROD) /* one rank has a 2, so that the product is 2 with any number of them */
        return at % v->n == rank ? 2 : 1;
    if (v->op == DDP_BAND)
        return 127 & ~(1u << (rank + at) % 7);
    if (v->op == DDP_BOR)
        return 1u << (rank + at) % 7;
    return 1 + (rank * 5 + at) % 13;
}

static unsigned fold(enum ddp_op op, unsigned held, unsigned x)
{
    switch (op) {
    case DDP_SUM:
    case DDP_AVG:
        return held + x;
    case DDP_MIN:
        return x < held ? x : held;
    case DDP_MAX:
        return x > held ? x : held;
    case DDP_PROD:
        return held * x;
    case DDP_BAND:
        return held & x;
    case DDP_BOR:
        return held | x;
    }
    return held;
}

static bool is_float(enum ddp_dtype dtype)
{
    return dtype == DDP_FLOAT32 || dtype == DDP_FLOAT64 || dtype == DDP_FLOAT16 ||
           dtype == DDP_BFLOAT16;
}

/* Element i of the reduction of all ranks' `in`. */
static double reduced(const struct perf_values *v, size_t i)
{
    unsigned held = value_of(v, 0, i);
    for (unsigned r = 1; r < v->n; r++)
        held = fold(v->op, held, value_of(v, r, i));
    if (is_float(v->dtype))
        return v->op == DDP_AVG ? (double)held / v->n : held;
    uint64_t wrapped;
    put(v->dtype, &wrapped, held); /* integers wrap around, and are divided then */
    const double sum = get(v->dtype, &wrapped);
    return v->op == DDP_AVG ? trunc(sum / v->n) : sum;
}

/* How far off an element may be, of 1: an average rounds once for each rank, in float32 or better;
 * the 16-bit types round at the end. */
static double tolerance(const struct perf_values *v)
{
    if (!perf_work_is_reduction(v->collective) || !is_float(v->dtype))
        return 0;
    const double each = v->dtype == DDP_FLOAT64 ? 0x1p-52 : 0x1p-23;
    const double last = v->dtype == DDP_FLOAT16 ? 0x1p-10 : v->dtype == DDP_BFLOAT16 ? 0x1p-7 : 0;
    return (v->op == DDP_AVG ? each * v->n : 0) + last;
}

/* --- buffers ---------------------------------------------------------------------------------- */

void perf_values_fill(const struct perf_values *v, unsigned rank, void *in, size_t count)
{
    const size_t size = ddp_dtype_size(v->dtype);
    uint8_t *at = in;
    for (size_t i = 0; i < count && i < PERF_PERIOD; i++)
        put(v->dtype, at + i * size, value_of(v, rank, i));
    /* each copy appends the part that is filled, so that it doubles */
    for (size_t done = PERF_PERIOD; done < count; done *= 2) {
        const size_t left = count - done;
        memcpy(at + done * size, at, (left < done ? left : done) * size);
    }
}

void perf_values_spoil(const struct perf_values *v, void *out, size_t count)
{
    if (count > 0) /* a rank without a result may have no buffer for one */
        memset(out, 0xa5, count * ddp_dtype_size(v->dtype));
}

/* `count` elements which repeat want[PERF_PERIOD]. */
static uint64_t count_in_block(const struct perf_values *v, const double *want, const uint8_t *out,
                               size_t count)
{
    const size_t size = ddp_dtype_size(v->dtype);
    const double off = tolerance(v);
    uint64_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        const double is = get(v->dtype, out + i * size), should = want[i % PERF_PERIOD];
        wrong += !(fabs(is - should) <= fabs(should) * off); /* a NaN is also wrong */
    }
    return wrong;
}

/* The block that rank `from` gives to `rank`. */
static void expect(const struct perf_values *v, unsigned rank, unsigned from, size_t count,
                   double want[PERF_PERIOD])
{
    const bool is_dealt = v->collective == PERF_REDUCE_SCATTER || v->collective == PERF_SCATTER ||
                          v->collective == PERF_ALL_TO_ALL;
    const size_t first = is_dealt ? rank * (count % PERF_PERIOD) : 0;
    for (size_t i = 0; i < PERF_PERIOD; i++)
        want[i] = perf_work_is_reduction(v->collective) ? reduced(v, first + i)
                                                        : value_of(v, from, first + i);
}

uint64_t perf_values_count_wrong(const struct perf_values *v, unsigned rank, const void *out,
                                 size_t count)
{
    const bool collects = v->collective == PERF_ALL_GATHER || v->collective == PERF_GATHER ||
                          v->collective == PERF_ALL_TO_ALL;
    const size_t size = ddp_dtype_size(v->dtype);
    uint64_t wrong = 0;
    for (unsigned b = 0; b < (collects ? v->n : 1); b++) {
        unsigned from = collects ? b : (unsigned)v->root;
        double want[PERF_PERIOD];
        if (v->collective == PERF_SEND_RECV)
            from = (rank + v->n - 1) % v->n;
        expect(v, rank, from, count, want);
        wrong += count_in_block(v, want, (const uint8_t *)out + b * count * size, count);
    }
    return wrong;
}
