/* model_steps.c - the cost of ddp_model in a step.
 *
 *     ddprun -n 2 model_steps sync REPEATS      a bucket of 25 MiB, and the plain all_reduce
 *     ddprun -n 2 model_steps commit REPEATS    the exchange at the end of a step
 *     ddprun -n 2 model_steps overlap REPEATS   buckets of 64 KiB during a backward pass, or after
 *
 * Times are rank 0's, in microseconds, the fastest and the median of REPEATS; the two variants take
 * turns. */
#include "timing.h"

#include <ddp/ddp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 1000, N_LAYERS = 64, LAYER_COUNT = 8192 };

struct times { /* of one variant, in microseconds */
    const char *what;
    int n;
    double at[];
};

static struct times *times_create(const char *what, int repeats)
{
    struct times *t = malloc(sizeof(*t) + (size_t)repeats * sizeof(t->at[0]));

    if (t == NULL)
        exit(EXIT_FAILURE);
    t->what = what;
    t->n = 0;
    return t;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(const struct times *t)
{
    return t->at[t->n / 2];
}

static void report(struct ddp_group *g, struct times *t)
{
    qsort(t->at, (size_t)t->n, sizeof(t->at[0]), compare);
    ddp_log0(g, "%-34s fastest %10.3f  median %10.3f\n", t->what, t->at[0], median(t));
}

static void report_ratio(struct ddp_group *g, const struct times *t, const struct times *to)
{
    ddp_log0(g, "ratio                              fastest %10.3f  median %10.3f\n",
             t->at[0] / to->at[0], median(t) / median(to));
}

/* As in a real program, the data is written just before it is reduced. */
static void write_all(float *values, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        values[i] = value;
}

static void compare_sync(struct ddp_group *g, int repeats)
{
    const size_t count = ((size_t)25 << 20) / sizeof(float);
    struct ddp_tensor t = {.name = "w", .param = calloc(count, sizeof(float)), .count = count};
    struct times *plain = times_create("ddp_all_reduce, 25 MiB", repeats);
    struct times *model = times_create("ddp_model_sync, a bucket of it", repeats);
    struct ddp_model *m;
    void *memory;

    check(ddp_alloc(g, count * sizeof(float), &memory), "alloc");
    check(ddp_model_create(g, &t, 1, NULL, &m), "model");
    for (int i = 0; i < 2 * repeats; i++) {
        const int is_model = i % 2;
        struct times *of = is_model ? model : plain;
        write_all(is_model ? t.grad : memory, count, (float)i);
        check(ddp_barrier(g), "barrier");
        const double began = now_us();
        check(is_model ? ddp_model_sync(m)
                       : ddp_all_reduce(g, memory, memory, count, DDP_FLOAT32, DDP_AVG, NULL),
              "average");
        of->at[of->n++] = now_us() - began;
    }
    report(g, plain);
    report(g, model);
    report_ratio(g, model, plain);
}

/* A step with one small bucket is a small all_reduce and the exchange. */
static void compare_commit(struct ddp_group *g, int repeats)
{
    float param = 0, value = 0;
    struct ddp_tensor t = {.name = "w", .param = &param, .count = 1};
    struct times *plain = times_create("ddp_all_reduce, 4 bytes", repeats);
    struct times *model = times_create("ddp_model_sync, 4 bytes", repeats);
    struct ddp_model *m;

    check(ddp_model_create(g, &t, 1, NULL, &m), "model");
    for (int i = 0; i < 2 * repeats; i++) {
        struct times *of = i % 2 ? model : plain;
        check(ddp_barrier(g), "barrier");
        const double began = now_us();
        for (int k = 0; k < MANY; k++)
            check(i % 2 ? ddp_model_sync(m)
                        : ddp_all_reduce(g, &value, &value, 1, DDP_FLOAT32, DDP_AVG, NULL),
                  "average");
        of->at[of->n++] = (now_us() - began) / MANY;
    }
    report(g, plain);
    report(g, model);
    ddp_log0(g, "exchange: the difference           fastest %10.3f  median %10.3f\n",
             model->at[0] - plain->at[0], median(model) - median(plain));
}

/* A layer's share of a backward pass. */
static void compute(float *grad, float *work)
{
    for (int pass = 0; pass < 24; pass++)
        for (int i = 0; i < LAYER_COUNT; i++)
            work[i] = work[i] * 0.999f + (float)(i + pass);
    memcpy(grad, work, LAYER_COUNT * sizeof(float));
}

static void compare_overlap(struct ddp_group *g, int repeats)
{
    static float param[LAYER_COUNT], work[LAYER_COUNT];
    struct ddp_tensor t[2][N_LAYERS];
    struct ddp_model *m[2];
    struct ddp_model_stats stats;
    struct times *step[2] = {times_create("a step, buckets on their way", repeats),
                             times_create("a step, delay_allreduce", repeats)};
    struct times *sync = times_create("of that ddp_model_sync", repeats);
    size_t overlapped = 0, buckets = 0;

    for (int k = 0; k < 2; k++) {
        const struct ddp_model_opts opts = {.bucket_bytes = 64 << 10, .delay_allreduce = k == 1};
        for (int i = 0; i < N_LAYERS; i++)
            t[k][i] = (struct ddp_tensor){.name = "w", .param = param, .count = LAYER_COUNT};
        check(ddp_model_create(g, t[k], N_LAYERS, &opts, &m[k]), "model");
    }
    for (int r = 0; r < 2 * repeats; r++) {
        const int k = r % 2;
        check(ddp_barrier(g), "barrier");
        const double began = now_us();
        for (int i = N_LAYERS; i-- > 0;) {
            compute(t[k][i].grad, work);
            check(ddp_model_ready(m[k], (size_t)i), "ready");
        }
        const double computed = now_us();
        check(ddp_model_sync(m[k]), "sync");
        step[k]->at[step[k]->n++] = now_us() - began;
        if (k == 1)
            continue;
        sync->at[sync->n++] = now_us() - computed;
        ddp_model_get_stats(m[0], &stats);
        overlapped += stats.n_overlapped;
        buckets += stats.n_buckets;
    }
    report(g, step[0]);
    report(g, sync);
    report(g, step[1]);
    report_ratio(g, step[0], step[1]);
    ddp_log0(g, "%zu buckets; %.0f %% of them ended before the backward pass\n",
             (size_t)stats.n_buckets, 100.0 * (double)overlapped / (double)buckets);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(struct ddp_group *g, int repeats);
    } what[] = {{"sync", compare_sync}, {"commit", compare_commit}, {"overlap", compare_overlap}};
    const int repeats = argc == 3 ? atoi(argv[2]) : 0;
    struct ddp_group *g;

    for (size_t i = 0; repeats > 0 && i < sizeof(what) / sizeof(what[0]); i++) {
        if (strcmp(argv[1], what[i].name) != 0)
            continue;
        if (ddp_init(NULL, &g) != 0)
            ddp_fatal("init");
        what[i].run(g, repeats);
        ddp_finalize(g);
        return 0;
    }
    fputs("usage: model_steps sync|commit|overlap REPEATS\n", stderr);
    return 2;
}
