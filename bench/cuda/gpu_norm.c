/* gpu_norm.c - ddp_syncbn on a GPU, compared with the same layer on the CPU. */
#include "gpu_rank.h"

#include <ddp/ddp.h>
#include <ddp/device.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2 };

static const struct {
    const char *name;
    size_t outer, channels, inner;
} shapes[] = {{"images", 8, 5, 1024},
              {"channels_last", 6007, 67, 1},
              {"many_channels", 2, 5000, 3},
              {"long", 3, 2, 20011}};

/* The arrays that a layer reads and writes, on the host and on the GPU. */
enum part { X, DY, Y, DX, WEIGHT, BIAS, MEAN, VAR, DWEIGHT, DBIAS, N_PARTS };
static const char *const part_names[N_PARTS] = {
    "x", "dy", "y", "dx", "weight", "bias", "running_mean", "running_var", "dweight", "dbias"};

struct layer {
    enum ddp_dtype dtype;
    size_t count[N_PARTS];
    void *host[N_PARTS], *gpu[N_PARTS];
    struct ddp_syncbn *on_host, *on_gpu;
    struct ddp_syncbn_shape shape;
    cudaStream_t stream;
};

static void set(const struct layer *l, enum part p, size_t i, double x)
{
    if (l->dtype == DDP_FLOAT64)
        ((double *)l->host[p])[i] = x;
    else
        ((float *)l->host[p])[i] = (float)x;
}

static double get(const struct layer *l, const void *at, size_t i)
{
    return l->dtype == DDP_FLOAT64 ? ((const double *)at)[i] : (double)((const float *)at)[i];
}

/* The mean is far from 0: a variance from a sum of squares would lose its precision. */
static void fill(struct layer *l, int step)
{
    for (size_t i = 0; i < l->count[X]; i++) {
        set(l, X, i, 100 + sin((double)i * 0.7 + step));
        set(l, DY, i, cos((double)i * 1.3 + step));
    }
    for (size_t c = 0; step == 0 && c < l->count[WEIGHT]; c++) {
        set(l, WEIGHT, c, 0.5 + (double)(c % 7));
        set(l, BIAS, c, (double)(c % 3) - 1);
        set(l, VAR, c, 1);
    }
    for (int p = 0; p < N_PARTS; p++)
        if (p == X || p == DY || step == 0)
            check_cuda(cudaMemcpyAsync(l->gpu[p], l->host[p],
                                       l->count[p] * ddp_dtype_size(l->dtype),
                                       cudaMemcpyHostToDevice, l->stream),
                       part_names[p]);
}

static void open_one(struct ddp_group *g, const struct layer *l, void *const *part, void *stream,
                     struct ddp_syncbn **ret)
{
    const struct ddp_syncbn_opts opts = {.channels = l->count[WEIGHT],
                                         .dtype = l->dtype,
                                         .weight = part[WEIGHT],
                                         .bias = part[BIAS],
                                         .running_mean = part[MEAN],
                                         .running_var = part[VAR],
                                         .stream = stream};
    check(ddp_syncbn_create(g, &opts, ret), "ddp_syncbn_create");
}

static void open_layer(struct layer *l, struct ddp_group *g, size_t shape, enum ddp_dtype dtype,
                       cudaStream_t stream)
{
    *l = (struct layer){
        .dtype = dtype, .shape = {shapes[shape].outer, shapes[shape].inner}, .stream = stream};
    for (int p = 0; p < N_PARTS; p++) {
        l->count[p] = shapes[shape].channels * (p < WEIGHT ? l->shape.outer * l->shape.inner : 1);
        l->host[p] = rank_host_memory(l->count[p] * ddp_dtype_size(dtype));
        l->gpu[p] = rank_gpu_memory(l->count[p] * ddp_dtype_size(dtype));
    }
    open_one(g, l, l->host, NULL, &l->on_host);
    open_one(g, l, l->gpu, stream, &l->on_gpu);
}

static void close_layer(struct layer *l)
{
    ddp_syncbn_destroy(l->on_gpu);
    ddp_syncbn_destroy(l->on_host);
    for (int p = 0; p < N_PARTS; p++) {
        free(l->host[p]);
        check_cuda(cudaFree(l->gpu[p]), "memory");
    }
}

static void run(const struct layer *l, struct ddp_syncbn *bn, void *const *part)
{
    check(ddp_syncbn_forward(bn, &l->shape, part[X], part[Y]), "ddp_syncbn_forward");
    check(
        ddp_syncbn_backward(bn, &l->shape, part[X], part[DY], part[DX], part[DWEIGHT], part[DBIAS]),
        "ddp_syncbn_backward");
}

/* With float64 only the order of summation differs; a float32 value may be an adjacent one.
 *
 * returns   the largest difference, relative to 1 plus the value */
static double compare(const struct layer *l, const char *name)
{
    char why[128];
    const double bound = l->dtype == DDP_FLOAT64 ? 1e-9 : 2e-6;
    double most = 0;
    for (int p = 0; p < N_PARTS; p++) {
        const size_t bytes = l->count[p] * ddp_dtype_size(l->dtype);
        void *got = rank_host_memory(bytes);
        check_cuda(cudaMemcpy(got, l->gpu[p], bytes, cudaMemcpyDeviceToHost), part_names[p]);
        for (size_t i = 0; i < l->count[p]; i++) {
            const double a = get(l, got, i), b = get(l, l->host[p], i);
            const double apart = fabs(a - b) / (1 + fabs(b));
            if (!(apart <= bound)) {
                snprintf(why, sizeof why, "%s[%zu] is %.17g on the GPU, and %.17g on the CPU",
                         part_names[p], i, a, b);
                rank_fail(name, why);
            }
            most = apart > most ? apart : most;
        }
        free(got);
    }
    return most;
}

static void check_one(struct ddp_group *g, size_t shape, enum ddp_dtype dtype, cudaStream_t stream)
{
    struct layer l;
    char name[64];
    double most = 0;
    snprintf(name, sizeof name, "%s,%s", shapes[shape].name,
             dtype == DDP_FLOAT64 ? "float64" : "float32");
    open_layer(&l, g, shape, dtype, stream);
    for (int step = 0; step < STEPS; step++) {
        fill(&l, step);
        run(&l, l.on_host, l.host);
        run(&l, l.on_gpu, l.gpu);
        check_cuda(cudaStreamSynchronize(stream), "a layer");
        most = fmax(most, compare(&l, name));
    }
    printf("%s %.1e\n", name, most);
    close_layer(&l);
}

int gpu_norm_check(void)
{
    struct ddp_group *g;
    cudaStream_t stream;
    int index;
    check(ddp_init(NULL, &g), "ddp_init");
    check(ddp_device(g, &index), "ddp_device");
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    for (size_t shape = 0; shape < sizeof shapes / sizeof shapes[0]; shape++) {
        check_one(g, shape, DDP_FLOAT64, stream);
        check_one(g, shape, DDP_FLOAT32, stream);
    }
    check_cuda(cudaStreamDestroy(stream), "a stream");
    ddp_finalize(g);
    return 0;
}
