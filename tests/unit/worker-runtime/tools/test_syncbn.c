/* test_syncbn.c - batch normalization over several ranks: the same result as one rank with the
 * whole batch. */
#include "tests/unit/worker-runtime/model_ranks.h"

enum { CHANNELS = 3, INNER = 4, MOST = 24, STEPS = 3 };

static double value(size_t o, size_t c, size_t i, int step)
{
    return sin((double)(o * 7 + c * 3 + i * 5 + (size_t)step * 11)) * (double)(c + 1) + 10;
}

static double slope(size_t o, size_t c, size_t i, int step)
{
    return cos((double)(o * 5 + c * 2 + i * 3 + (size_t)step * 13));
}

/* The layer, and what it gives for samples first .. first + n - 1. */
struct layer {
    double weight[CHANNELS], bias[CHANNELS], mean[CHANNELS], var[CHANNELS];
    double x[MOST * CHANNELS * INNER], y[MOST * CHANNELS * INNER];
    double dy[MOST * CHANNELS * INNER], dx[MOST * CHANNELS * INNER];
    double dweight[CHANNELS], dbias[CHANNELS];
    struct ddp_syncbn *bn;
};

static void layer_init(struct layer *l, struct ddp_group *g)
{
    *l = (struct layer){.weight = {1, -2, 0.5}, .bias = {0, 1, 2}, .var = {1, 1, 1}};
    rank_expect(ddp_syncbn_create(g,
                                  &(struct ddp_syncbn_opts){.channels = CHANNELS,
                                                            .dtype = DDP_FLOAT64,
                                                            .weight = l->weight,
                                                            .bias = l->bias,
                                                            .running_mean = l->mean,
                                                            .running_var = l->var},
                                  &l->bn) == 0);
}

static void layer_step(struct layer *l, size_t first, size_t n, int step)
{
    const struct ddp_syncbn_shape shape = {.outer = n, .inner = INNER};
    for (size_t o = 0; o < n; o++)
        for (size_t c = 0; c < CHANNELS; c++)
            for (size_t i = 0; i < INNER; i++) {
                l->x[(o * CHANNELS + c) * INNER + i] = value(first + o, c, i, step);
                l->dy[(o * CHANNELS + c) * INNER + i] = slope(first + o, c, i, step);
            }
    rank_expect(ddp_syncbn_forward(l->bn, &shape, l->x, l->y) == 0);
    rank_expect(ddp_syncbn_backward(l->bn, &shape, l->x, l->dy, l->dx, l->dweight, l->dbias) == 0);
}

static void expect_near(const double *a, const double *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        RANK_CHECK(own_rank, fabs(a[i] - b[i]) <= 1e-12 * (1 + fabs(b[i])), "%zu: %.17g, not %.17g",
                   i, a[i], b[i]);
}

static const size_t shares[][5] = {{1, 24}, {2, 12, 12}, {2, 1, 23}, {4, 5, 0, 16, 3}};

static void compare_with_one(struct ddp_group *g, void *arg)
{
    static struct layer own, whole;
    const size_t *share = shares[*(int *)arg] + 1;
    struct ddp_group *alone;
    const int rank = ddp_rank(g);
    size_t first = 0;
    for (int r = 0; r < rank; r++)
        first += share[r];
    rank_expect(ddp_group_split(g, rank, 0, &alone) == 0);
    layer_init(&own, g);
    layer_init(&whole, alone);
    for (int step = 0; step < STEPS; step++) {
        layer_step(&own, first, share[rank], step);
        layer_step(&whole, 0, MOST, step);
        const size_t at = first * CHANNELS * INNER, count = share[rank] * CHANNELS * INNER;
        expect_near(own.y, whole.y + at, count);
        expect_near(own.dx, whole.dx + at, count);
        expect_near(own.mean, whole.mean, CHANNELS);
        expect_near(own.var, whole.var, CHANNELS);
        rank_expect(
            ddp_all_reduce(g, own.dweight, own.dweight, CHANNELS, DDP_FLOAT64, DDP_SUM, NULL) == 0);
        expect_near(own.dweight, whole.dweight, CHANNELS);
    }
    ddp_group_destroy(alone);
}

START_TEST(ranks_with_any_shares_compute_the_same_as_one_rank)
{
    ranks_run((int)shares[_i][0], compare_with_one, &_i);
}
END_TEST

static void without_variance(struct ddp_group *g, void *arg)
{
    static struct layer l;
    const size_t n = ddp_rank(g) == 0;
    const struct ddp_syncbn_shape one = {.outer = n, .inner = 1}, two = {.outer = 1, .inner = 1};
    (void)arg;
    layer_init(&l, g);
    rank_expect(ddp_syncbn_forward(l.bn, &one, l.x, l.y) == DDP_EINVAL);
    rank_expect_text("needs at least 2");
    rank_expect(l.var[0] == 1);
    rank_expect(ddp_syncbn_backward(l.bn, &one, l.x, l.dy, l.dx, NULL, NULL) == DDP_EINVAL);
    rank_expect(ddp_syncbn_forward(l.bn, &two, l.x, l.y) == 0); /* the group is whole */
    rank_expect(ddp_syncbn_backward(l.bn, &two, l.x, l.dy, l.dx, NULL, NULL) == 0);
}

START_TEST(all_ranks_report_a_single_value_without_variance)
{
    ranks_run(2, without_variance, NULL);
}
END_TEST

static void infer(struct ddp_group *g, void *arg)
{
    static struct layer l;
    const struct ddp_syncbn_shape shape = {.outer = 2, .inner = 2};
    (void)arg;
    layer_init(&l, g);
    for (size_t c = 0; c < CHANNELS; c++) {
        l.mean[c] = (double)c;
        l.var[c] = 4;
    }
    for (size_t k = 0; k < 2 * CHANNELS * 2; k++)
        l.x[k] = (double)k;
    rank_expect(ddp_syncbn_infer(l.bn, &shape, l.x, l.y) == 0);
    for (size_t k = 0; k < 2 * CHANNELS * 2; k++) {
        const size_t c = k / 2 % CHANNELS;
        const double expected = ((double)k - (double)c) / sqrt(4 + 1e-5) * l.weight[c] + l.bias[c];
        expect_near(&l.y[k], &expected, 1);
    }
}

START_TEST(inference_uses_the_running_moments)
{
    ranks_run(1, infer, NULL);
}
END_TEST

static const struct ddp_syncbn_opts refused[] = {
    {.channels = 0, .dtype = DDP_FLOAT32},
    {.channels = SIZE_MAX / 8, .dtype = DDP_FLOAT32},
    {.channels = 1, .dtype = DDP_FLOAT16},
    {.channels = 1, .dtype = DDP_FLOAT32, .eps = -1},
    {.channels = 1, .dtype = DDP_FLOAT32, .eps = NAN},
    {.channels = 1, .dtype = DDP_FLOAT32, .momentum = 1.5},
    {.channels = 1, .dtype = DDP_FLOAT32, .running_mean = (void *)&refused},
};

static void refuse(struct ddp_group *g, void *arg)
{
    struct ddp_syncbn *bn;
    double count = -1, x = 0;
    rank_expect(ddp_syncbn_create(g, &refused[*(int *)arg], &bn) == DDP_EINVAL);
    rank_expect(ddp_syncbn_create(g, NULL, &bn) == DDP_EINVAL);
    rank_expect(ddp_syncbn_forward(NULL, NULL, NULL, NULL) == DDP_EINVAL);
    rank_expect(ddp_syncbn_merge(g, &count, &x, &x, 1) == DDP_EINVAL);
    count = 1;
    rank_expect(ddp_syncbn_merge(g, &count, &x, &x, 0) == DDP_EINVAL);
    rank_expect(ddp_syncbn_merge(g, &count, &x, &x, SIZE_MAX / 2 + 1) == DDP_EINVAL); /* 1 + 2^64 */
    ddp_syncbn_destroy(NULL);
}

START_TEST(options_out_of_their_bounds_are_refused)
{
    ranks_run(1, refuse, &_i);
}
END_TEST

TEST_SUITE(syncbn)
{
    Suite *s = suite_create("syncbn");
    TCase *t = tcase_create("syncbn");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, ranks_with_any_shares_compute_the_same_as_one_rank, 0,
                        sizeof(shares) / sizeof(shares[0]));
    tcase_add_test(t, all_ranks_report_a_single_value_without_variance);
    tcase_add_test(t, inference_uses_the_running_moments);
    tcase_add_loop_test(t, options_out_of_their_bounds_are_refused, 0,
                        sizeof(refused) / sizeof(refused[0]));
    suite_add_tcase(s, t);
    return s;
}
