#include "tests/unit/worker-runtime/model_ranks.h"

#include "segments/control.h"
#include "worker-runtime/core/group.h"

#include <check.h>
#include <ddp/ddp.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#define N_TENSORS 7

/* --- a network ------------------------------------------------------------------------------ */

/* A network of both types, small and large tensors, and an empty one. */
struct net {
    struct ddp_tensor tensor[N_TENSORS];
};

static const struct {
    const char *name;
    size_t count;
    enum ddp_dtype dtype;
} shapes[N_TENSORS] = {
    {"conv1.weight", 400, DDP_FLOAT32}, {"conv1.bias", 16, DDP_FLOAT32},
    {"norm.scale", 33, DDP_FLOAT64},    {"conv2.weight", 70001, DDP_FLOAT32},
    {"norm.shift", 9001, DDP_FLOAT64},  {"unused", 0, DDP_FLOAT32},
    {"fc.bias", 1, DDP_FLOAT32},
};

/* Limits that give this network several buckets. */
static const struct ddp_model_opts small_buckets = {.first_bucket_bytes = 64, .bucket_bytes = 4096};

enum whose { LIBRARY, USER, MIXED }; /* owner of the gradients' memory */

static double element(const struct ddp_tensor *t, const void *values, size_t k)
{
    return t->dtype == DDP_FLOAT32 ? ((const float *)values)[k] : ((const double *)values)[k];
}

static void set_element(const struct ddp_tensor *t, void *values, size_t k, double value)
{
    if (t->dtype == DDP_FLOAT32)
        ((float *)values)[k] = (float)value;
    else
        ((double *)values)[k] = value;
}

static void net_init(struct net *net, enum whose whose, int rank)
{
    for (size_t i = 0; i < N_TENSORS; i++) {
        struct ddp_tensor *t = &net->tensor[i];
        size_t bytes = (shapes[i].count + 1) * sizeof(double);
        *t = (struct ddp_tensor){
            .name = shapes[i].name,
            .param = malloc(bytes),
            .grad = whose == USER || (whose == MIXED && i % 2 == 0) ? calloc(1, bytes) : NULL,
            .count = shapes[i].count,
            .dtype = shapes[i].dtype,
        };
        for (size_t k = 0; k < t->count; k++)
            set_element(t, t->param, k, (double)k + 1000.0 * (double)i + 0.5 * rank);
    }
}

static void net_fini(struct net *net, enum whose whose)
{
    for (size_t i = 0; i < N_TENSORS; i++) {
        free(net->tensor[i].param);
        if (whose == USER || (whose == MIXED && i % 2 == 0))
            free(net->tensor[i].grad);
    }
}

static double gradient(int rank, int step, size_t i, size_t k)
{
    return sin((double)(k % 1000) + 7.0 * rank + 31.0 * step) * (double)(i + 1);
}

static void backward(struct net *net, int rank, int step)
{
    for (size_t i = 0; i < N_TENSORS; i++)
        for (size_t k = 0; k < net->tensor[i].count; k++)
            set_element(&net->tensor[i], net->tensor[i].grad, k, gradient(rank, step, i, k));
}

static void expect_averages(const struct net *net, int world_size, int step)
{
    for (size_t i = 0; i < N_TENSORS; i++) {
        const struct ddp_tensor *t = &net->tensor[i];
        for (size_t k = 0; k < t->count; k++) {
            double average = 0;
            for (int rank = 0; rank < world_size; rank++)
                average += gradient(rank, step, i, k) / world_size;
            double tolerance = t->dtype == DDP_FLOAT32 ? 1e-5 : 1e-13;
            rank_expect(fabs(element(t, t->grad, k) - average) <= tolerance);
        }
    }
}

/* Whether all ranks have the same bytes. */
static void expect_same_on_all(struct ddp_group *g, const void *values, const struct ddp_tensor *t)
{
    size_t bytes = t->count * ddp_dtype_size(t->dtype);
    void *of_rank_0 = malloc(bytes + 1);
    rank_expect(ddp_broadcast(g, values, of_rank_0, t->count, t->dtype, 0, NULL) == 0);
    rank_expect(memcmp(values, of_rank_0, bytes) == 0);
    free(of_rank_0);
}

/* --- averages ------------------------------------------------------------------------------- */

enum order { BACKWARDS, FORWARDS, SHUFFLED, NOTHING, SOME_RANKS, N_ORDERS };

static void say_ready(struct ddp_model *m, enum order order, int rank)
{
    size_t turn[N_TENSORS];
    for (size_t i = 0; i < N_TENSORS; i++)
        turn[i] = order == BACKWARDS ? N_TENSORS - 1 - i : i;
    if (order == SHUFFLED) { /* another order on each rank */
        unsigned seed = 17u + (unsigned)rank;
        for (size_t i = N_TENSORS; i > 1; i--) {
            size_t j = (size_t)rand_r(&seed) % i, kept = turn[i - 1];
            turn[i - 1] = turn[j];
            turn[j] = kept;
        }
    }
    size_t n = order == NOTHING || (order == SOME_RANKS && rank % 2 == 1) ? 0 : N_TENSORS;
    for (size_t i = 0; i < n; i++)
        rank_expect(ddp_model_ready(m, turn[i]) == 0);
}

static void train_three_steps(struct ddp_group *g, void *arg)
{
    const enum whose *whose = arg;
    int rank = ddp_rank(g), world_size = ddp_world_size(g);
    for (int with_opts = 0; with_opts < 2; with_opts++) {
        struct net net;
        struct ddp_model *m;
        net_init(&net, *whose, rank);
        rank_expect(
            ddp_model_create(g, net.tensor, N_TENSORS, with_opts ? &small_buckets : NULL, &m) == 0);
        for (size_t i = 0; i < N_TENSORS; i++) {
            const struct ddp_tensor *t = &net.tensor[i];
            rank_expect(t->grad != NULL && (uintptr_t)t->grad % sizeof(double) == 0);
            for (size_t k = 0; k < t->count; k++) {
                rank_expect(element(t, t->param, k) ==
                            (double)k + 1000.0 * (double)i); /* rank 0's */
                rank_expect(element(t, t->grad, k) == 0.0);
            }
        }
        for (int step = 0; step < N_ORDERS; step++) {
            backward(&net, rank, step);
            say_ready(m, (enum order)step, rank);
            rank_expect(ddp_model_sync(m) == 0);
            expect_averages(&net, world_size, step);
            for (size_t i = 0; i < N_TENSORS; i++)
                expect_same_on_all(g, net.tensor[i].grad, &net.tensor[i]);
        }
        ddp_model_destroy(m);
        net_fini(&net, *whose);
    }
}

START_TEST(gradients_are_averaged_in_any_order_with_equal_results)
{
    enum whose whose = (enum whose)(_i % 3);
    ranks_run(_i / 3 + 1, train_three_steps, &whose);
}
END_TEST

static void use_gradients_after_the_end(struct ddp_group *g, void *arg)
{
    struct net net;
    struct ddp_model *m, *second;
    (void)arg;
    net_init(&net, LIBRARY, ddp_rank(g));
    rank_expect(ddp_model_create(g, net.tensor, N_TENSORS, NULL, &m) == 0);
    void *grad = net.tensor[3].grad;
    backward(&net, ddp_rank(g), 1);
    rank_expect(ddp_model_sync(m) == 0);
    ddp_model_destroy(m);
    expect_averages(&net, ddp_world_size(g), 1);

    /* and continue with them in another model */
    rank_expect(ddp_model_create(g, net.tensor, N_TENSORS, NULL, &second) == 0);
    rank_expect(net.tensor[3].grad == grad);
    backward(&net, ddp_rank(g), 2);
    rank_expect(ddp_model_sync(second) == 0);
    expect_averages(&net, ddp_world_size(g), 2);

    int world_size = ddp_world_size(g);
    rank_expect(ddp_barrier(g) == 0);
    ddp_finalize(g);
    expect_averages(&net, world_size, 2);
    backward(&net, 0, 3);
    net_fini(&net, LIBRARY);
    exit(0);
}

START_TEST(library_gradients_outlive_model_and_group)
{
    ranks_run(2, use_gradients_after_the_end, NULL);
}
END_TEST

static void make_many_models(struct ddp_group *g, void *arg)
{
    enum { COUNT = 1 << 20 }; /* 4 MiB a model, 32 times what the segment holds */
    struct ddp_tensor t = {.name = "w",
                           .param = calloc(COUNT, sizeof(float)),
                           .grad = calloc(COUNT, sizeof(float)),
                           .count = COUNT,
                           .dtype = DDP_FLOAT32};
    (void)arg;
    for (int i = 0; i < 256; i++) {
        struct ddp_model *m;
        rank_expect(ddp_model_create(g, &t, 1, NULL, &m) == 0);
        ddp_model_destroy(m);
    }
    free(t.param);
    free(t.grad);
}

START_TEST(buckets_without_library_gradients_are_freed)
{
    setenv("DDP_SEGMENT_BYTES", "33554432", 1);
    ranks_run(2, make_many_models, NULL);
    unsetenv("DDP_SEGMENT_BYTES");
}
END_TEST

/* --- ranks that differ ---------------------------------------------------------------------- */

struct difference {
    size_t tensor; /* the last rank changes this one */
    struct ddp_tensor to;
    size_t n_tensors; /* how many the last rank has */
    struct ddp_model_opts opts;
    const char *text; /* of all ranks, %d being the last rank */
};

#define LONG_NAME                                                                                  \
    "transformer.blocks.17.attention.projection.weight.of.the.third.head.in.the.second.group.of."  \
    "the.decoder.stack"

static const struct difference differences[] = {
    {0,
     {.name = "conv1.weights", .count = 400},
     N_TENSORS,
     {0},
     "ddp_model_create: the ranks' models differ at tensor 0: rank 0 has 'conv1.weight', 400 x "
     "float32, "
     "rank %d has 'conv1.weights', 400 x float32"},
    {3,
     {.name = "conv2.weight", .count = 70000},
     N_TENSORS,
     {0},
     "ddp_model_create: the ranks' models differ at tensor 3: rank 0 has 'conv2.weight', 70001 x "
     "float32, "
     "rank %d has 'conv2.weight', 70000 x float32"},
    {4,
     {.name = "norm.shift", .count = 9001, .dtype = DDP_FLOAT32},
     N_TENSORS,
     {0},
     "ddp_model_create: the ranks' models differ at tensor 4: rank 0 has 'norm.shift', 9001 x "
     "float64, "
     "rank %d has 'norm.shift', 9001 x float32"},
    {0,
     {.name = "conv1.weight", .count = 400},
     N_TENSORS - 1,
     {0},
     "ddp_model_create: the ranks' models differ at tensor 6: rank 0 has 'fc.bias', 1 x float32, "
     "rank %d has 6 tensors"},
    {2,
     {.name = LONG_NAME, .count = 33, .dtype = DDP_FLOAT64},
     N_TENSORS,
     {0},
     "ddp_model_create: the ranks' models differ at tensor 2: rank 0 has 'norm.scale', 33 x "
     "float64, "
     "rank %d has 'transformer.blocks.17.attention.projection.weight.of.the.third.head.in"
     ".the.second.group.of.t...', 33 x float64"},
    {0,
     {.name = "conv1.weight", .count = 400},
     N_TENSORS,
     {.first_bucket_bytes = 1 << 20, .bucket_bytes = 12345},
     "ddp_model_create: the ranks' ddp_model_opts differ: rank 0 has bucket_bytes 26214400, "
     "rank %d has bucket_bytes 12345"},
    {0,
     {.name = "conv1.weight", .count = 400},
     N_TENSORS,
     {.predivide_factor = 2.5},
     "ddp_model_create: the ranks' ddp_model_opts differ: rank 0 has predivide_factor 0, "
     "rank %d has predivide_factor 2.5"},
    {0,
     {.name = "conv1.weight", .count = 400, .layout = "strides 100 1 20 4"},
     N_TENSORS,
     {0},
     "ddp_model_create: the ranks' models differ at tensor 0: rank 0 has 'conv1.weight', 400 x "
     "float32, "
     "rank %d has 'conv1.weight', 400 x float32, strides 100 1 20 4"},
    {0,
     {.name = "conv1.weight", .count = 400},
     N_TENSORS,
     {.keep_buffers = true},
     "ddp_model_create: the ranks' ddp_model_opts differ: rank 0 has keep_buffers 0, "
     "rank %d has keep_buffers 1"},
};

static void create_different_models(struct ddp_group *g, void *arg)
{
    const struct difference *d = arg;
    bool is_last = ddp_rank(g) == ddp_world_size(g) - 1;
    struct net net;
    struct ddp_model *m = NULL;
    char text[1024];

    net_init(&net, LIBRARY, ddp_rank(g));
    struct ddp_tensor kept = net.tensor[d->tensor];
    if (is_last) {
        net.tensor[d->tensor].name = d->to.name;
        net.tensor[d->tensor].count = d->to.count;
        net.tensor[d->tensor].dtype = d->to.dtype;
        net.tensor[d->tensor].layout = d->to.layout;
    }
    rank_expect(ddp_model_create(g, net.tensor, is_last ? d->n_tensors : N_TENSORS,
                                 is_last ? &d->opts : NULL, &m) == DDP_EMISMATCH);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof(text), d->text, ddp_world_size(g) - 1);
#pragma GCC diagnostic pop
    rank_expect(strstr(ddp_last_error(), text) == ddp_last_error());
    rank_expect(m == NULL);
    for (size_t i = 0; i < N_TENSORS; i++)
        rank_expect(net.tensor[i].grad == NULL); /* written on success only */

    /* the group is whole: the same ranks can make a model */
    net.tensor[d->tensor] = kept;
    rank_expect(ddp_model_create(g, net.tensor, N_TENSORS, NULL, &m) == 0);
    rank_expect(ddp_model_sync(m) == 0);
    ddp_model_destroy(m);
    net_fini(&net, LIBRARY);
}

START_TEST(ranks_with_different_models_all_learn_of_the_first_difference)
{
    ranks_run(2 + _i % 3, create_different_models, (void *)&differences[_i]);
}
END_TEST

static void create_more_on_rank_0(struct ddp_group *g, void *arg)
{
    enum { N = 64 }; /* a multiple of what is compared at once: the last one is alone */
    static float value[N + 1];
    struct ddp_tensor t[N + 1];
    struct ddp_model *m;
    const int *n_of_rank = arg;
    for (size_t i = 0; i < N + 1; i++)
        t[i] = (struct ddp_tensor){.name = "w", .param = &value[i], .count = 1};
    rank_expect(ddp_model_create(g, t, (size_t)n_of_rank[ddp_rank(g)], NULL, &m) == DDP_EMISMATCH);
    rank_expect(strstr(ddp_last_error(), "differ at tensor 64: ") != NULL);
    rank_expect(strstr(ddp_last_error(), " has 64 tensors") != NULL);
}

START_TEST(an_additional_tensor_is_reported_on_either_side)
{
    ranks_run(2, create_more_on_rank_0, (int[]){65, 64});
    ranks_run(2, create_more_on_rank_0, (int[]){64, 65});
}
END_TEST

static void create_unusable_on_rank_1(struct ddp_group *g, void *arg)
{
    const struct ddp_tensor *bad = arg;
    float value = 0;
    struct ddp_tensor t = {.name = "w", .param = &value, .count = 1, .dtype = DDP_FLOAT32};
    struct ddp_model *m = NULL;
    bool is_bad = ddp_rank(g) == 1;
    int rc = ddp_model_create(g, is_bad ? (struct ddp_tensor *)bad : &t, 1, NULL, &m);
    rank_expect(rc == (is_bad ? DDP_EINVAL : DDP_EMISMATCH));
    rank_expect(m == NULL);
    if (!is_bad)
        rank_expect(strstr(ddp_last_error(), "rank 1 failed: check its own message") != NULL);
    else if (bad != NULL && bad->name != NULL && bad->name[0] != '\0')
        rank_expect(strstr(ddp_last_error(), bad->name) != NULL);
    rank_expect(ddp_barrier(g) == 0);
}

static float a_value[2];
static const struct ddp_tensor unusable[] = {
    {.name = NULL, .param = a_value, .count = 1},
    {.name = "", .param = a_value, .count = 1},
    {.name = "no param", .param = NULL, .count = 1},
    {.name = "crooked param", .param = (char *)a_value + 1, .count = 1},
    {.name = "integers", .param = a_value, .count = 1, .dtype = DDP_INT32},
    {.name = "unknown type", .param = a_value, .count = 1, .dtype = (enum ddp_dtype)99},
    {.name = "too many", .param = a_value, .count = SIZE_MAX / 4 + 1, .dtype = DDP_FLOAT32},
};

START_TEST(an_unusable_tensor_on_one_rank_fails_all_ranks_and_hangs_none)
{
    ranks_run(3, create_unusable_on_rank_1, (void *)&unusable[_i]);
}
END_TEST

START_TEST(no_tensors_at_all_are_refused)
{
    ranks_run(2, create_unusable_on_rank_1, NULL);
}
END_TEST

/* --- misuse and death ----------------------------------------------------------------------- */

static void say_ready_twice_on_rank_0(struct ddp_group *g, void *arg)
{
    struct net net;
    struct ddp_model *m;
    bool is_bad = ddp_rank(g) == 0;
    (void)arg;
    net_init(&net, USER, ddp_rank(g));
    rank_expect(ddp_model_create(g, net.tensor, N_TENSORS, &small_buckets, &m) == 0);
    backward(&net, ddp_rank(g), 0);
    if (is_bad) {
        rank_expect(ddp_model_ready(m, 3) == 0);
        rank_expect(ddp_model_ready(m, 3) == DDP_EINVAL);
        rank_expect(strstr(ddp_last_error(), "gradient 3 'conv2.weight'") != NULL);
        rank_expect(ddp_model_ready(m, N_TENSORS) == DDP_EINVAL);
        rank_expect(strstr(ddp_last_error(), "no gradient 7") != NULL);
        rank_expect(ddp_model_ready(m, SIZE_MAX) == DDP_EINVAL);
        rank_expect(ddp_model_ready(m, 4) == 0);
    }
    rank_expect(ddp_model_sync(m) == (is_bad ? DDP_EINVAL : DDP_EMISMATCH)); /* no rank waits */
    /* sync reports the first failure; the other ranks learn whose it is */
    rank_expect(strstr(ddp_last_error(), is_bad ? "gradient 3 'conv2.weight'" : "rank 0 ") != NULL);
    backward(&net, ddp_rank(g), 1);
    rank_expect(ddp_model_sync(m) == 0); /* a new step, a new start */
    expect_averages(&net, ddp_world_size(g), 1);
    rank_expect(g->world->line->progress.steps == 1); /* that of a misuse counts on no rank */
    ddp_model_destroy(m);
    net_fini(&net, USER);
}

START_TEST(a_repeated_ready_fails_ready_and_sync_of_that_step)
{
    ranks_run(2, say_ready_twice_on_rank_0, NULL);
}
END_TEST

static void die_on_rank_1(struct ddp_group *g, void *arg)
{
    struct net net;
    struct ddp_model *m;
    int rank = ddp_rank(g);
    bool dies_in_the_middle = *(bool *)arg;
    net_init(&net, USER, rank);
    rank_expect(ddp_model_create(g, net.tensor, N_TENSORS, &small_buckets, &m) == 0);
    backward(&net, rank, 0);
    rank_expect(ddp_model_sync(m) == 0);
    backward(&net, rank, 1);
    if (dies_in_the_middle)
        for (size_t i = N_TENSORS; i-- > 4;)
            if (ddp_model_ready(m, i) == DDP_EPEER) /* it makes progress, and may find out here */
                break;
    if (rank == 1)
        raise(SIGKILL);
    rank_expect(ddp_model_sync(m) == DDP_EPEER);
    rank_expect(strstr(ddp_last_error(), "gradient bucket") != NULL);
    for (size_t k = 0; k < net.tensor[0].count; k++) /* a failed step leaves them as they were */
        rank_expect(element(&net.tensor[0], net.tensor[0].grad, k) ==
                    (double)(float)gradient(rank, 1, 0, k));
    rank_expect(ddp_model_ready(m, 0) == DDP_EPEER); /* and stays so */
    rank_expect(ddp_model_sync(m) == DDP_EPEER);
    rank_expect(ddp_barrier(g) == DDP_EPEER);
    rank_expect(g->world->line->progress.steps ==
                1); /* for ddprun to see: the first one was completed */
    ddp_model_destroy(m);
    net_fini(&net, USER);
}

START_TEST(a_death_ends_sync_on_the_others_with_DDP_EPEER)
{
    struct ranks r;
    ranks_start(&r, 3, ranks_job_run, &(struct ranks_job){die_on_rank_1, &(bool){_i == 1}});
    ranks_wait(&r);
    ck_assert_int_eq(r.status[0], 0);
    ck_assert(WIFSIGNALED(r.status[1]) && WTERMSIG(r.status[1]) == SIGKILL);
    ck_assert_int_eq(r.status[2], 0);
}
END_TEST

static void die_before_creation_on_rank_1(struct ddp_group *g, void *arg)
{
    struct net net;
    struct ddp_model *m;
    (void)arg;
    net_init(&net, LIBRARY, ddp_rank(g));
    if (ddp_rank(g) == 1)
        raise(SIGKILL);
    rank_expect(ddp_model_create(g, net.tensor, N_TENSORS, NULL, &m) == DDP_EPEER);
    rank_expect(net.tensor[0].grad == NULL);
    net_fini(&net, LIBRARY);
}

START_TEST(a_death_ends_the_creation_on_the_others_with_DDP_EPEER)
{
    struct ranks r;
    ranks_start(&r, 2, ranks_job_run, &(struct ranks_job){die_before_creation_on_rank_1, NULL});
    ranks_wait(&r);
    ck_assert_int_eq(r.status[0], 0);
    ck_assert(WIFSIGNALED(r.status[1]));
}
END_TEST

START_TEST(missing_arguments_are_refused)
{
    struct ddp_model *m;
    ck_assert_int_eq(ddp_model_create(NULL, NULL, 0, NULL, &m), DDP_EINVAL);
    ddp_model_destroy(NULL);
}
END_TEST

TEST_SUITE(model)
{
    Suite *s = suite_create("model");
    TCase *t = tcase_create("averages");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, gradients_are_averaged_in_any_order_with_equal_results, 0, 4 * 3);
    tcase_add_test(t, library_gradients_outlive_model_and_group);
    tcase_add_test(t, buckets_without_library_gradients_are_freed);
    suite_add_tcase(s, t);
    t = tcase_create("differences");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, ranks_with_different_models_all_learn_of_the_first_difference, 0,
                        sizeof(differences) / sizeof(differences[0]));
    tcase_add_test(t, an_additional_tensor_is_reported_on_either_side);
    tcase_add_loop_test(t, an_unusable_tensor_on_one_rank_fails_all_ranks_and_hangs_none, 0,
                        sizeof(unusable) / sizeof(unusable[0]));
    tcase_add_test(t, no_tensors_at_all_are_refused);
    suite_add_tcase(s, t);
    t = tcase_create("misuse and death");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_repeated_ready_fails_ready_and_sync_of_that_step);
    tcase_add_loop_test(t, a_death_ends_sync_on_the_others_with_DDP_EPEER, 0, 2);
    tcase_add_test(t, a_death_ends_the_creation_on_the_others_with_DDP_EPEER);
    tcase_add_test(t, missing_arguments_are_refused);
    suite_add_tcase(s, t);
    return s;
}
