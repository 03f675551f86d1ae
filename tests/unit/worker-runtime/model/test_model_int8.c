/* test_model_int8.c - gradients that travel between nodes as int8. */
#include "tests/unit/worker-runtime/model_ranks.h"
#include "tests/unit/worker-runtime/nodes.h"

enum { COUNT = 1000, N = 4 };

static const struct nodes grids[] = {
    {.n = 2, .n_ranks = 3, .size = {2, 1}},
    {.n = 3, .n_ranks = 3, .size = {1, 1, 1}},
    {.n = 2, .n_ranks = 4, .size = {2, 2}, .dealt = true},
    {.n = 1, .n_ranks = 2, .size = {2}},
};

struct job {
    const struct nodes *grid;
    void (*body)(struct ddp_group *g, const struct nodes *grid);
};

static int run_on_a_node(int rank, void *arg)
{
    const struct job *job = arg;
    own_rank = rank;
    struct ddp_group *g = rank_init(rank, SMALL_TIMEOUT_MS);
    job->body(g, job->grid);
    ddp_finalize(g);
    return 0;
}

static void run_on_nodes(const struct nodes *grid,
                         void (*body)(struct ddp_group *g, const struct nodes *grid))
{
    struct store_process store;
    struct ranks r;
    store_start(&store);
    nodes_start(&r, grid, run_on_a_node, &(struct job){grid, body});
    ranks_expect_success(&r);
    store_stop(&store);
}

static double gradient(int rank, size_t i, size_t k)
{
    return sin((double)(k + 1) * (rank + 1)) * (double)(i + 1);
}

static double average(int n, size_t i, size_t k)
{
    double sum = 0;
    for (int rank = 0; rank < n; rank++)
        sum += gradient(rank, i, k) / n;
    return sum;
}

static void backward(struct small *s, int rank)
{
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->t[i].count; k++)
            small_set(&s->t[i], k, gradient(rank, i, k));
}

static void expect_the_same_bits(struct ddp_group *g, const struct small *s)
{
    for (size_t i = 0; i < s->n; i++) {
        const size_t bytes = s->t[i].count * ddp_dtype_size(s->t[i].dtype);
        uint8_t *of_0 = malloc(bytes);
        memcpy(of_0, s->t[i].grad, bytes);
        rank_expect(ddp_broadcast_bytes(g, of_0, bytes, 0) == 0);
        rank_expect(memcmp(of_0, s->t[i].grad, bytes) == 0);
        free(of_0);
    }
}

/* The errors of one step stay within two roundings; those of many steps do not add up. */
static void repeat_a_step(struct ddp_group *g, const struct nodes *grid, enum ddp_dtype dtype,
                          bool weighted)
{
    enum { STEPS = 32 };
    const struct ddp_model_opts opts = {
        .compress = DDP_COMPRESS_INT8, .bucket_bytes = 6000, .weighted = weighted};
    static double sums[N][COUNT];
    const bool is_exact = grid->n == 1;
    const double most_error = (double)N / 127 * 2.5; /* a block may have values of two tensors */
    struct small s;
    memset(sums, 0, sizeof sums);
    small_init(&s, N, COUNT, dtype);
    small_create(&s, g, &opts);
    for (int step = 0; step < STEPS; step++) {
        backward(&s, ddp_rank(g));
        if (step % 2 == 0)
            small_say_all(&s);
        rank_expect(ddp_model_sync(s.m) == 0);
        expect_the_same_bits(g, &s);
        for (size_t i = 0; i < N; i++)
            for (size_t k = 0; k < COUNT; k++) {
                const double x = small_get(&s.t[i], k);
                sums[i][k] += x;
                rank_expect(fabs(x - average(grid->n_ranks, i, k)) <=
                            (is_exact ? 1e-5 : most_error));
            }
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < COUNT; k++)
            rank_expect(fabs(sums[i][k] / STEPS - average(grid->n_ranks, i, k)) <=
                        most_error * 2 / STEPS);
    const uint64_t plain = (uint64_t)STEPS * N * COUNT * ddp_dtype_size(dtype);
    const uint64_t bytes = small_stats(&s).wire_bytes;
    if (is_exact)
        rank_expect(bytes >= plain);
    else if (ddp_local_rank(g) != 0)
        rank_expect(bytes == 0);
    else
        rank_expect(bytes > (uint64_t)STEPS * N * COUNT &&
                    bytes < (uint64_t)STEPS * N * COUNT * 27 / 25);
    small_fini(&s);
}

static void repeat_floats(struct ddp_group *g, const struct nodes *grid)
{
    repeat_a_step(g, grid, DDP_FLOAT32, false);
}

static void repeat_doubles(struct ddp_group *g, const struct nodes *grid)
{
    repeat_a_step(g, grid, DDP_FLOAT64, true);
}

START_TEST(averages_are_near_and_their_errors_do_not_add_up)
{
    run_on_nodes(&grids[_i / 2], _i % 2 == 0 ? repeat_floats : repeat_doubles);
}
END_TEST

static void spoil_a_step(struct ddp_group *g, const struct nodes *grid)
{
    struct small s;
    small_init(&s, N, COUNT, DDP_FLOAT32);
    small_create(&s, g,
                 &(struct ddp_model_opts){.compress = DDP_COMPRESS_INT8, .check_finite = true});
    for (int step = 0; step < 3; step++) {
        backward(&s, ddp_rank(g));
        if (step == 1 && ddp_rank(g) == 1)
            small_set(&s.t[2], 700, NAN);
        const int rc = ddp_model_sync(s.m);
        rank_expect(rc == (step == 1 ? DDP_ENOTFINITE : 0));
        if (step == 1)
            rank_expect_text("rank 1 computed the value");
        for (size_t k = 0; step != 1 && k < COUNT; k++)
            rank_expect(fabs(small_get(&s.t[2], k) - average(grid->n_ranks, 2, k)) < 0.1);
    }
    small_fini(&s);
}

START_TEST(a_step_that_is_not_finite_does_not_change_later_ones)
{
    run_on_nodes(&grids[0], spoil_a_step);
}
END_TEST

static void send_halves(struct ddp_group *g, const struct nodes *grid)
{
    struct small s;
    (void)grid;
    small_init(&s, N, COUNT, DDP_BFLOAT16);
    small_create(&s, g, &(struct ddp_model_opts){.compress = DDP_COMPRESS_INT8});
    small_backward(&s, ddp_rank(g), 0);
    rank_expect(ddp_model_sync(s.m) == 0);
    small_expect_sums(&s, 3, 0, 1.0 / 3, 0.07);
    rank_expect(small_stats(&s).wire_bytes >= N * COUNT * 2);
    small_fini(&s);
}

START_TEST(gradients_of_16_bits_travel_as_they_are)
{
    run_on_nodes(&grids[0], send_halves);
}
END_TEST

static void train_locally(struct ddp_group *g, const struct nodes *grid)
{
    struct small s;
    small_init(&s, N, COUNT, DDP_FLOAT32);
    small_create(&s, g,
                 &(struct ddp_model_opts){.compress = DDP_COMPRESS_INT8,
                                          .local_steps = 2,
                                          .outer_lr = 1,
                                          .outer_momentum = DDP_OUTER_NO_MOMENTUM});
    for (int step = 0; step < 2; step++) {
        backward(&s, ddp_rank(g));
        rank_expect(ddp_model_sync(s.m) == 0);
        for (size_t i = 0; i < N; i++)
            for (size_t k = 0; k < COUNT; k++)
                ((float *)s.t[i].param)[k] -= ((float *)s.t[i].grad)[k];
        rank_expect(ddp_model_outer_step(s.m, false) == 0);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < COUNT; k++)
            rank_expect(fabs(((float *)s.t[i].param)[k] + 2 * average(grid->n_ranks, i, k)) <
                        (double)(i + 1) / 127 * 5);
    small_fini(&s);
}

START_TEST(local_steps_may_be_exchanged_as_int8)
{
    run_on_nodes(&grids[0], train_locally);
}
END_TEST

static void create_badly(struct ddp_group *g, void *arg)
{
    struct small s;
    (void)arg;
    small_init(&s, 2, COUNT, DDP_FLOAT32);
    struct ddp_model_opts opts = {.compress = DDP_COMPRESS_INT8, .stream = (void *)8};
    rank_expect(ddp_model_create(g, s.t, s.n, &opts, &s.m) == DDP_EINVAL);
    rank_expect_text("DDP_COMPRESS_INT8 and stream cannot be used together");
    opts = (struct ddp_model_opts){.compress = (enum ddp_compress)(DDP_COMPRESS_INT8 + 1)};
    rank_expect(ddp_model_create(g, s.t, s.n, &opts, &s.m) == DDP_EINVAL);
    rank_expect_text("invalid value 4 for compress");
    small_fini(&s);
}

START_TEST(options_that_do_not_fit_are_refused)
{
    ranks_run(1, create_badly, NULL);
}
END_TEST

TEST_SUITE(model_int8)
{
    Suite *s = suite_create("model_int8");
    TCase *t = tcase_create("model_int8");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, averages_are_near_and_their_errors_do_not_add_up, 0,
                        2 * sizeof grids / sizeof *grids);
    tcase_add_test(t, a_step_that_is_not_finite_does_not_change_later_ones);
    tcase_add_test(t, gradients_of_16_bits_travel_as_they_are);
    tcase_add_test(t, local_steps_may_be_exchanged_as_int8);
    tcase_add_test(t, options_that_do_not_fit_are_refused);
    suite_add_tcase(s, t);
    return s;
}
