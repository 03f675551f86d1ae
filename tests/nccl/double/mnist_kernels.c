/* mnist_kernels.c - the kernels of gpu_layers.h and gpu_half.h on a stream of the double, instead
 * of examples/gpu/gpu_kernels.cu: each thread's share, one after the other, from the same source.
 * This file declares what a kernel reads and writes, so that the double can check the order. */
#include "examples/gpu/gpu_kernels.h"

#include "double.h"

enum { MOST_RANGES = 12 };

struct ranges {
    struct double_range at[MOST_RANGES];
    size_t n;
};

static void touch(struct ranges *r, const void *at, size_t bytes, bool writes)
{
    if (at != NULL)
        r->at[r->n++] = (struct double_range){at, bytes, writes};
}

#define READS(p, count)  touch(r, p, (size_t)(count) * sizeof *(p), false)
#define WRITES(p, count) touch(r, p, (size_t)(count) * sizeof *(p), true)

static size_t pixels(const struct gpu_shape *s)
{
    return (size_t)s->n * s->side * s->side;
}

static size_t weights(const struct gpu_shape *s)
{
    return (size_t)LAYERS_TAPS * s->c_in * s->c_out;
}

/* --- what each touches ------------------------------------------------------------------------ */

static void images_touches(const struct gpu_images *k, struct ranges *r)
{
    READS(k->index, k->n); /* the data set is never written again */
    WRITES(k->input, k->n * k->n_pixels);
    WRITES(k->taken, k->n);
}

static void conv_touches(const struct gpu_conv *k, struct ranges *r)
{
    READS(k->x, pixels(&k->s) * k->s.c_in);
    READS(k->weight, weights(&k->s));
    READS(k->bias, k->s.c_out);
    WRITES(k->y, pixels(&k->s) * k->s.c_out);
}

static void conv_dx_touches(const struct gpu_conv_dx *k, struct ranges *r)
{
    READS(k->d_y, pixels(&k->s) * k->s.c_out);
    READS(k->weight, weights(&k->s));
    WRITES(k->d_x, pixels(&k->s) * k->s.c_in);
}

static void conv_dw_touches(const struct gpu_conv_dw *k, struct ranges *r)
{
    READS(k->x, pixels(&k->s) * k->s.c_in);
    READS(k->d_y, pixels(&k->s) * k->s.c_out);
    WRITES(k->part, k->parts * (weights(&k->s) + k->s.c_out));
}

static void sum_touches(const struct gpu_sum *k, struct ranges *r)
{
    READS(k->part, k->parts * k->columns);
    WRITES(k->wide, k->columns);
    WRITES(k->out, k->split);
    WRITES(k->rest, k->columns - k->split);
}

static void moments_touches(const struct gpu_moments *k, struct ranges *r)
{
    READS(k->y, pixels(&k->s) * k->s.c_out);
    READS(k->mean, k->s.c_out);
    WRITES(k->part, k->parts * k->s.c_out);
}

static void norm_touches(const struct gpu_norm *k, struct ranges *r)
{
    WRITES(k->mean, k->c_out);
    WRITES(k->var, k->c_out);
    WRITES(k->running_mean, k->c_out);
    WRITES(k->running_var, k->c_out);
    READS(k->gamma, k->c_out);
    READS(k->beta, k->c_out);
    WRITES(k->scale, k->c_out);
    WRITES(k->shift, k->c_out);
    WRITES(k->center, k->c_out);
}

static void norm_back_touches(const struct gpu_norm_back *k, struct ranges *r)
{
    READS(k->sums, 2 * k->c_out);
    READS(k->var, k->c_out);
    READS(k->gamma, k->c_out);
    WRITES(k->d_gamma, k->c_out);
    WRITES(k->d_beta, k->c_out);
    WRITES(k->a, k->c_out);
    WRITES(k->slope, k->c_out);
    WRITES(k->d, k->c_out);
}

static void pool_touches(const struct gpu_pool *k, struct ranges *r)
{
    const size_t n_y = pixels(&k->s) * k->s.c_out;
    READS(k->y, n_y);
    READS(k->scale, k->s.c_out);
    READS(k->shift, k->s.c_out);
    WRITES(k->out, n_y / 4);
    WRITES(k->pick, n_y / 4);
}

static void pool_sums_touches(const struct gpu_pool_sums *k, struct ranges *r)
{
    const size_t n_y = pixels(&k->s) * k->s.c_out;
    READS(k->d_out, n_y / 4);
    READS(k->y, n_y);
    READS(k->center, k->s.c_out);
    READS(k->pick, n_y / 4);
    WRITES(k->part, k->parts * 2 * k->s.c_out);
}

static void pool_back_touches(const struct gpu_pool_back *k, struct ranges *r)
{
    const size_t n_y = pixels(&k->s) * k->s.c_out;
    READS(k->d_out, n_y / 4);
    READS(k->y, n_y);
    READS(k->pick, n_y / 4);
    READS(k->a, k->s.c_out);
    READS(k->slope, k->s.c_out);
    READS(k->d, k->s.c_out);
    READS(k->center, k->s.c_out);
    WRITES(k->d_y, n_y);
}

static void fc_touches(const struct gpu_fc *k, struct ranges *r)
{
    READS(k->x, k->n * k->in);
    READS(k->weight, k->in * k->classes);
    READS(k->bias, k->classes);
    WRITES(k->logits, k->n * k->classes);
}

static void fc_dw_touches(const struct gpu_fc_dw *k, struct ranges *r)
{
    READS(k->x, k->n * k->in);
    READS(k->d_logits, k->n * k->classes);
    WRITES(k->d_weight, k->in * k->classes);
    WRITES(k->d_bias, k->classes);
}

static void fc_dx_touches(const struct gpu_fc_dx *k, struct ranges *r)
{
    READS(k->d_logits, k->n * k->classes);
    READS(k->weight, k->in * k->classes);
    WRITES(k->d_x, k->n * k->in);
}

static void loss_touches(const struct gpu_loss *k, struct ranges *r)
{
    READS(k->logits, k->n * k->classes);
    READS(k->labels, k->n);
    WRITES(k->d_logits, k->n * k->classes);
    WRITES(k->loss, k->n);
}

static void right_touches(const struct gpu_right *k, struct ranges *r)
{
    READS(k->logits, k->n * k->classes);
    READS(k->labels, k->n);
    WRITES(k->right, k->n);
}

static void add_touches(const struct gpu_add *k, struct ranges *r)
{
    READS(k->from, k->n);
    WRITES(k->to, k->n);
}

static void sgd_touches(const struct gpu_sgd *k, struct ranges *r)
{
    READS(k->grad, k->n);
    WRITES(k->velocity, k->n);
    WRITES(k->param, k->n);
}

static size_t bytes_of(enum gpu_half half)
{
    return half == GPU_REAL ? sizeof(real) : sizeof(uint16_t);
}

static void round_touches(const struct gpu_round *k, struct ranges *r)
{
    WRITES(k->at, k->n);
}

static void give_touches(const struct gpu_give *k, struct ranges *r)
{
    READS(k->from, k->n);
    touch(r, k->to, k->n * bytes_of(k->half), true);
}

static void master_touches(const struct gpu_master *k, struct ranges *r)
{
    touch(r, k->grad, k->n * bytes_of(k->half), false);
    WRITES(k->velocity, k->n);
    WRITES(k->master, k->n);
}

static void show_touches(const struct gpu_show *k, struct ranges *r)
{
    WRITES(k->master, k->n);
    WRITES(k->seen, k->n);
    WRITES(k->param, k->n);
}

/* --- launching -------------------------------------------------------------------------------- */

#define DEFINE(name)                                                                               \
    struct name##_launch {                                                                         \
        struct gpu_##name k;                                                                       \
        unsigned n;                                                                                \
    };                                                                                             \
    static void run_##name(void *arg)                                                              \
    {                                                                                              \
        const struct name##_launch *l = arg;                                                       \
        for (unsigned i = 0; i < l->n; i++)                                                        \
            gpu_##name##_at(&l->k, i);                                                             \
    }                                                                                              \
    cudaError_t gpu_##name##_run(const struct gpu_##name *k, unsigned n, cudaStream_t stream)      \
    {                                                                                              \
        const struct name##_launch l = {*k, n};                                                    \
        struct ranges r = {.n = 0};                                                                \
        if (n == 0)                                                                                \
            return cudaSuccess;                                                                    \
        name##_touches(k, &r);                                                                     \
        return double_queue(stream, "mnist's " #name, run_##name, &l, sizeof l, r.at, r.n);        \
    }
GPU_KERNELS(DEFINE)

/* There is nothing to be loaded. */
cudaError_t gpu_kernels_load(void)
{
    return cudaSuccess;
}
