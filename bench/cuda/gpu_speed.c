/* gpu_speed.c - how much memory the plug-in's kernels read and write in a second, compared with a
 * copy by CUDA. A measurement is a queue of calls, from the first call until all are done. */
#include "gpu_rank.h"

#include <ddp/ddp.h>
#include <ddp/device.h>
#include <stdlib.h>

enum { CHANNELS = 256, INNER = 56 * 56, N_PIECES = 64 };

struct load {
    struct rank rank;
    struct ddp_group *g; /* the group of the layers */
    struct ddp_syncbn *bn;
    struct ddp_syncbn_shape shape;
    size_t n;                   /* number of float32 values */
    float *a, *b, *c, *weights; /* on the GPU */
    uint32_t *found;
    struct device_average average;
    struct device_piece piece[N_PIECES];
};

static void copy(struct load *l)
{
    check_cuda(
        cudaMemcpyAsync(l->b, l->a, l->n * sizeof(float), cudaMemcpyDeviceToDevice, l->rank.stream),
        "cudaMemcpyAsync");
}

static void average(struct load *l)
{
    rank_average(&l->rank, &l->average);
}

static void forward(struct load *l)
{
    check(ddp_syncbn_forward(l->bn, &l->shape, l->a, l->b), "ddp_syncbn_forward");
}

static void backward(struct load *l)
{
    check(ddp_syncbn_backward(l->bn, &l->shape, l->a, l->b, l->c, NULL, NULL),
          "ddp_syncbn_backward");
}

static void wait_for_all(struct load *l)
{
    rank_wait(&l->rank);
    check_cuda(cudaStreamSynchronize(l->rank.stream), "a stream");
}

static void measure(struct load *l, const char *name, void (*run)(struct load *l), int repeats,
                    double bytes)
{
    run(l);
    wait_for_all(l);
    const double began = now_us();
    for (int i = 0; i < repeats; i++)
        run(l);
    wait_for_all(l);
    printf("%s %.1f\n", name, bytes * repeats / (now_us() - began) * 1e-3);
}

/* The values are in many pieces: one has half of them, the others have equal sizes. */
static void deal(struct load *l)
{
    const size_t each = l->n / 2 / (N_PIECES - 1);
    float *at = l->a;
    for (size_t i = 0; i < N_PIECES; i++) {
        l->piece[i] = (struct device_piece){at, i == 0 ? l->n / 2 : each};
        at += l->piece[i].count;
    }
    l->average = (struct device_average){.piece = l->piece,
                                         .n = N_PIECES,
                                         .dtype = DDP_FLOAT32,
                                         .wire = l->b,
                                         .is_sum = true,
                                         .before = 1.0 / 3,
                                         .after = 1,
                                         .stream = l->rank.stream};
}

/* A wire type of 16 bits: for each value 4 bytes are read and 2 written, and the reverse. */
static void measure_averages(struct load *l, int repeats)
{
    const double n = (double)l->n;
    l->average.wire_dtype = DDP_BFLOAT16;
    measure(l, "pack_and_unpack,bfloat16", average, repeats, 12 * n);
    l->average.found_inf = l->found;
    measure(l, "pack_and_unpack,bfloat16,check_finite", average, repeats, 12 * n);
    l->average.wire_dtype = DDP_FLOAT16;
    measure(l, "pack_and_unpack,float16,check_finite", average, repeats, 12 * n);
    l->average.wire = NULL;
    l->average.before = 1;
    measure(l, "check_finite_alone", average, repeats, 8 * n);
}

/* Forward reads twice for the moments and once to normalize; backward reads both arrays twice. */
static void measure_layers(struct load *l, int repeats)
{
    const size_t values = l->shape.outer * l->shape.inner * CHANNELS;
    const struct ddp_syncbn_opts opts = {.channels = CHANNELS,
                                         .dtype = DDP_FLOAT32,
                                         .weight = l->weights,
                                         .bias = l->weights,
                                         .stream = l->rank.stream};
    check(ddp_syncbn_create(l->g, &opts, &l->bn), "ddp_syncbn_create");
    measure(l, "syncbn_forward", forward, repeats, 16 * (double)values);
    measure(l, "syncbn_backward", backward, repeats, 20 * (double)values);
    ddp_syncbn_destroy(l->bn);
}

static void open_load(struct load *l, size_t n_values)
{
    int index;
    check(ddp_init(NULL, &l->g), "ddp_init");
    check(ddp_device(l->g, &index), "ddp_device");
    rank_open(&l->rank);
    l->shape = (struct ddp_syncbn_shape){n_values / CHANNELS / INNER + 1, INNER};
    l->n = l->shape.outer * l->shape.inner * CHANNELS;
    l->a = rank_gpu_memory(l->n * sizeof(float));
    l->b = rank_gpu_memory(l->n * sizeof(float));
    l->c = rank_gpu_memory(l->n * sizeof(float));
    l->weights = rank_gpu_memory(CHANNELS * sizeof(float));
    l->found = rank_gpu_memory(2 * sizeof *l->found);
    check_cuda(cudaMemsetAsync(l->a, 0, l->n * sizeof(float), l->rank.stream), "zeros");
    check_cuda(cudaMemsetAsync(l->b, 0, l->n * sizeof(float), l->rank.stream), "zeros");
    check_cuda(cudaMemsetAsync(l->weights, 0, CHANNELS * sizeof(float), l->rank.stream), "zeros");
    check_cuda(cudaMemsetAsync(l->found, 0, 2 * sizeof *l->found, l->rank.stream), "zeros");
    deal(l);
}

int gpu_speed(int repeats, size_t n_values)
{
    struct load l = {0};
    open_load(&l, n_values);
    measure(&l, "cudaMemcpyAsync", copy, repeats, 8 * (double)l.n);
    measure_averages(&l, repeats);
    measure_layers(&l, repeats);
    wait_for_all(&l);
    check_cuda(cudaFree(l.a), "memory");
    check_cuda(cudaFree(l.b), "memory");
    check_cuda(cudaFree(l.c), "memory");
    check_cuda(cudaFree(l.weights), "memory");
    check_cuda(cudaFree(l.found), "memory");
    rank_close(&l.rank);
    ddp_finalize(l.g);
    return 0;
}
