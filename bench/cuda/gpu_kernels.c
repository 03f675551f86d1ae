/* gpu_kernels.c - the plug-in's kernels on a GPU, for bench/gpu: do they compute the same as CPUs,
 * and how fast are they?
 *
 *     gpu_kernels averages              "CASE VALUES" for each way of averaging gradients: the
 *                                       number of values, all with the same bits as on the CPU
 *     gpu_kernels syncbn                "CASE DIFFERENCE": the largest relative difference from
 *                                       the layer on the CPU
 *     gpu_kernels speed REPEATS VALUES  "WHAT GB_PER_S": bytes read and written, by the host's
 *                                       clock
 *
 * If a result differs, the exit status is 1 and a message states what differs and where. With a
 * world size of 1 there is nothing to average, so that the model launches no kernel: this program
 * calls the plug-in itself for averages, with a communicator of one rank. */
#include "gpu_rank.h"

#include "worker-runtime/nccl/kernel_math.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- averages --------------------------------------------------------------------------------- */

enum { N_PIECES = KERNEL_PIECES + 7, LONGEST = 50021, GAP = 3 };

struct remote_shell { /* a way of averaging, as in ddp_model_opts */
    const char *name;
    enum ddp_dtype dtype, wire; /* no separate wire type if they are equal */
    double before, after;
};

static const struct remote_shell ways[] = {
    {"float32", DDP_FLOAT32, DDP_FLOAT32, 1, 1},
    {"float32,weighted", DDP_FLOAT32, DDP_FLOAT32, 1.0 / 3, 1},
    {"float32,predivided", DDP_FLOAT32, DDP_FLOAT32, 0.25, 4.0 / 3},
    {"float32,to_float16", DDP_FLOAT32, DDP_FLOAT16, 1, 1},
    {"float32,to_float16,weighted", DDP_FLOAT32, DDP_FLOAT16, 1.0 / 3, 1},
    {"float32,to_bfloat16", DDP_FLOAT32, DDP_BFLOAT16, 1, 1},
    {"float32,to_bfloat16,predivided", DDP_FLOAT32, DDP_BFLOAT16, 0.25, 4.0 / 3},
    {"float64,weighted", DDP_FLOAT64, DDP_FLOAT64, 1.0 / 3, 1},
    {"float64,predivided", DDP_FLOAT64, DDP_FLOAT64, 0.25, 4.0 / 3},
    {"float64,to_float32", DDP_FLOAT64, DDP_FLOAT32, 1.0 / 3, 1},
    {"float64,to_bfloat16", DDP_FLOAT64, DDP_BFLOAT16, 1.0 / 3, 1},
    {"float16,weighted", DDP_FLOAT16, DDP_FLOAT16, 1.0 / 3, 1},
    {"float16,always_fp32", DDP_FLOAT16, DDP_FLOAT32, 1.0 / 3, 1},
    {"bfloat16,weighted", DDP_BFLOAT16, DDP_BFLOAT16, 1.0 / 3, 1},
    {"bfloat16,always_fp32", DDP_BFLOAT16, DDP_FLOAT32, 0.25, 4.0 / 3},
};

static const struct { /* a value among the others, and the expected found_inf */
    const char *name;
    double value;
    uint32_t own, averaged;
} odd[] = {{"finite", 1, 0, 0}, {"with_infinity", INFINITY, 1, 1}, {"with_nan", NAN, 1, 1}};

static bool has_wire(const struct remote_shell *w)
{
    return w->wire != w->dtype;
}

struct bucket { /* the same values on the CPU and on the GPU */
    char *host, *gpu, *host_wire, *gpu_wire;
    size_t bytes, wire_bytes;
    uint32_t host_found[2], *gpu_found;
    struct device_piece at_host[N_PIECES], at_gpu[N_PIECES];
};

static size_t count_of(size_t piece)
{
    return piece == 0 ? LONGEST : piece * piece * 13 % 997; /* some pieces are empty */
}

static void set_value(void *at, enum ddp_dtype dtype, size_t i, double x)
{
    if (dtype == DDP_FLOAT64)
        ((double *)at)[i] = x;
    else
        kernel_set(at, (uint32_t)dtype, i, (float)x);
}

/* Values of all magnitudes that 16 bits hold, with subnormals and zeros; neighbors differ. */
static double value_of(size_t i)
{
    const double mantissa = 1 + (double)(i * 2654435761u % 8191) / 8191;
    return i % 41 == 0 ? 0 : ldexp(i % 2 == 0 ? mantissa : -mantissa, (int)(i % 38) - 26);
}

static void open_bucket(struct bucket *b, const struct remote_shell *w)
{
    const size_t size = ddp_dtype_size(w->dtype);
    size_t n = 0, n_all = 0, at = 1;
    for (size_t i = 0; i < N_PIECES; i++)
        n_all += count_of(i) + GAP;
    *b = (struct bucket){.bytes = (n_all + 1) * size, .wire_bytes = n_all * sizeof(float)};
    b->host = rank_host_memory(b->bytes);
    b->host_wire = rank_host_memory(b->wire_bytes);
    b->gpu = rank_gpu_memory(b->bytes);
    b->gpu_wire = rank_gpu_memory(b->wire_bytes);
    b->gpu_found = rank_gpu_memory(sizeof b->host_found);
    for (size_t i = 0; i < N_PIECES; at += count_of(i++) + GAP) {
        b->at_host[i] = (struct device_piece){b->host + at * size, count_of(i)};
        b->at_gpu[i] = (struct device_piece){b->gpu + at * size, count_of(i)};
    }
    for (; n < n_all; n++)
        set_value(b->host, w->dtype, n, value_of(n));
}

static void close_bucket(struct bucket *b)
{
    free(b->host);
    free(b->host_wire);
    check_cuda(cudaFree(b->gpu), "memory");
    check_cuda(cudaFree(b->gpu_wire), "memory");
    check_cuda(cudaFree(b->gpu_found), "memory");
}

static struct device_average average_of(const struct rank *r, const struct bucket *b,
                                        const struct remote_shell *w)
{
    return (struct device_average){.piece = b->at_gpu,
                                   .n = N_PIECES,
                                   .dtype = w->dtype,
                                   .wire = has_wire(w) ? b->gpu_wire : NULL,
                                   .wire_dtype = w->wire,
                                   .is_sum = true,
                                   .before = w->before,
                                   .after = w->after,
                                   .found_inf = b->gpu_found,
                                   .stream = r->stream};
}

/* The same in a loop on the CPU, with the source code of the kernels, which the tests compare with
 * the CPU's own conversions. NCCL's own factor also multiplies x. */
static void average_on_host(struct bucket *b, const struct remote_shell *w)
{
    struct kernel_pieces k = {.dtype = (uint32_t)w->dtype,
                              .wire_dtype = (uint32_t)w->wire,
                              .wire = has_wire(w) ? b->host_wire : NULL};
    for (int is_back = 0; is_back < 2; is_back++) {
        uint64_t first = 0;
        k.factor = is_back ? w->after : w->before;
        for (size_t i = 0; i < N_PIECES; i++) {
            const struct kernel_piece p = {b->at_host[i].at, b->at_host[i].count, first};
            first += p.count;
            for (uint64_t v = 0; v < p.count; v++)
                if (!(is_back ? kernel_unpack(&k, &p, v) : kernel_pack(&k, &p, v)))
                    b->host_found[is_back] = 1;
        }
    }
}

static bool is_nan(const void *at, enum ddp_dtype dtype, size_t i)
{
    return dtype == DDP_FLOAT64 ? isnan(((const double *)at)[i])
                                : isnan(kernel_get(at, (uint32_t)dtype, i));
}

/* A GPU and a CPU give a NaN different bits when they multiply it. */
static void compare_bits(const char *name, const char *got, const char *want, enum ddp_dtype dtype,
                         size_t bytes)
{
    char why[128];
    const size_t size = ddp_dtype_size(dtype);
    for (size_t i = 0; i < bytes / size; i++) {
        if (memcmp(got + i * size, want + i * size, size) == 0 ||
            (is_nan(got, dtype, i) && is_nan(want, dtype, i)))
            continue;
        const double g = dtype == DDP_FLOAT64 ? ((const double *)(const void *)got)[i]
                                              : (double)kernel_get(got, (uint32_t)dtype, i);
        const double v = dtype == DDP_FLOAT64 ? ((const double *)(const void *)want)[i]
                                              : (double)kernel_get(want, (uint32_t)dtype, i);
        snprintf(why, sizeof why, "value %zu is %.17g on the GPU, and %.17g on the CPU", i, g, v);
        rank_fail(name, why);
    }
}

static void compare_buckets(const char *name, struct bucket *b, const struct remote_shell *w)
{
    uint32_t found[2];
    char *got = rank_host_memory(b->bytes);
    check_cuda(cudaMemcpy(got, b->gpu, b->bytes, cudaMemcpyDeviceToHost), "values");
    check_cuda(cudaMemcpy(found, b->gpu_found, sizeof found, cudaMemcpyDeviceToHost), "words");
    compare_bits(name, got, b->host, w->dtype, b->bytes);
    for (int i = 0; i < 2; i++)
        if (found[i] != b->host_found[i])
            rank_fail(name, i == 0 ? "what is not finite on this rank was not found as on the CPU"
                                   : "what is not finite in the end was not found as on the CPU");
    free(got);
}

static void check_way(struct rank *r, const struct remote_shell *w, size_t k)
{
    char name[96];
    struct bucket b;
    size_t n = 0;
    snprintf(name, sizeof name, "%s,%s", w->name, odd[k].name);
    open_bucket(&b, w);
    set_value(b.at_host[N_PIECES - 1].at, w->dtype, 1, odd[k].value);
    check_cuda(cudaMemcpyAsync(b.gpu, b.host, b.bytes, cudaMemcpyHostToDevice, r->stream),
               "values");
    check_cuda(cudaMemsetAsync(b.gpu_found, 0, sizeof b.host_found, r->stream), "words");
    const struct device_average a = average_of(r, &b, w);
    rank_average(r, &a);
    average_on_host(&b, w);
    rank_wait(r);
    compare_buckets(name, &b, w);
    if (b.host_found[0] != odd[k].own || b.host_found[1] != odd[k].averaged)
        rank_fail(name, "the CPU itself has not found what is there");
    for (size_t i = 0; i < N_PIECES; i++)
        n += b.at_host[i].count;
    printf("%s %zu\n", name, n);
    close_bucket(&b);
}

static int check_averages(void)
{
    struct rank r;
    rank_open(&r);
    for (size_t k = 0; k < sizeof odd / sizeof odd[0]; k++)
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
            check_way(&r, &ways[i], k);
    rank_close(&r);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const int repeats = argc == 4 ? atoi(argv[2]) : 0;
    const long long n_values = argc == 4 ? atoll(argv[3]) : 0;
    if (argc == 2 && strcmp(what, "averages") == 0)
        return check_averages();
    if (argc == 2 && strcmp(what, "syncbn") == 0)
        return gpu_norm_check();
    if (strcmp(what, "speed") == 0 && repeats > 0 && n_values > 0)
        return gpu_speed(repeats, (size_t)n_values);
    fputs("usage: gpu_kernels averages | syncbn | speed REPEATS VALUES\n", stderr);
    return 2;
}
