/* test_pipeline.c - stages on ranks compute what one rank does with all of them. */
#include "tests/unit/worker-runtime/model_ranks.h"
#include "tests/unit/worker-runtime/nodes.h"

enum { MOST_MICRO = 6, WIDTH = 3 };

/* Each stage multiplies by its weight, element by element; the loss is the sum of what comes out
 * times `target`. Micro-batches have their number in them. */
struct stage {
    int number, n_stages;
    double weight[WIDTH], d_weight[WIDTH], loss;
    int order[2 * MOST_MICRO], n_calls;
    int fails_at; /* the micro-batch; -1: none. 100 + m: in its backward pass; 200 + m: there, by
                     DDP_RETRY */
};

static double sample(int micro, int k)
{
    return micro * 10 + k + 1;
}

static double target(int micro, int k)
{
    return 0.5 * micro - k;
}

static int forward(void *arg, int micro, const void *in, void *out)
{
    struct stage *s = arg;
    s->order[s->n_calls++] = micro;
    if (micro == s->fails_at)
        return DDP_ENOTFINITE;
    for (int k = 0; k < WIDTH; k++) {
        const double x = in != NULL ? ((const double *)in)[k] : sample(micro, k);
        const double y = x * s->weight[k];
        if (out != NULL)
            ((double *)out)[k] = y;
        else
            s->loss += y * target(micro, k);
    }
    return 0;
}

static int backward(void *arg, int micro, const void *in, const void *d_out, void *d_in)
{
    struct stage *s = arg;
    s->order[s->n_calls++] = micro;
    if (micro + 100 == s->fails_at)
        return 5; /* no status */
    if (micro + 200 == s->fails_at)
        return DDP_RETRY; /* as a call of the library in here would */
    for (int k = 0; k < WIDTH; k++) {
        const double x = in != NULL ? ((const double *)in)[k] : sample(micro, k);
        const double d = d_out != NULL ? ((const double *)d_out)[k] : target(micro, k);
        s->d_weight[k] += d * x;
        if (d_in != NULL)
            ((double *)d_in)[k] = d * s->weight[k];
    }
    return 0;
}

static double weight_of(int stage, int k)
{
    return 1 + 0.25 * stage + 0.125 * k;
}

static struct ddp_pipeline_opts stage_init(struct stage *s, struct ddp_group *g, int n_micro)
{
    *s = (struct stage){.number = ddp_rank(g), .n_stages = ddp_world_size(g), .fails_at = -1};
    for (int k = 0; k < WIDTH; k++)
        s->weight[k] = weight_of(s->number, k);
    return (struct ddp_pipeline_opts){.n_micro = n_micro,
                                      .in_count = s->number > 0 ? WIDTH : 0,
                                      .out_count = s->number + 1 < s->n_stages ? WIDTH : 0,
                                      .dtype = DDP_FLOAT64,
                                      .forward = forward,
                                      .backward = backward,
                                      .arg = s};
}

/* What a rank with all stages would get. */
static void expect_gradients(const struct stage *s, int n_micro, int n_steps)
{
    for (int k = 0; k < WIDTH; k++) {
        double expected = 0;
        for (int m = 0; m < n_micro; m++) {
            double d = sample(m, k) * target(m, k);
            for (int r = 0; r < s->n_stages; r++)
                if (r != s->number)
                    d *= weight_of(r, k);
            expected += d;
        }
        RANK_CHECK(own_rank, fabs(s->d_weight[k] - n_steps * expected) <= 1e-9 * fabs(expected),
                   "%d: %g, not %g", k, s->d_weight[k], expected);
    }
}

static void run_steps(struct ddp_group *g, void *arg)
{
    const int n_micro = *(int *)arg;
    struct stage s;
    struct ddp_pipeline *p;
    struct ddp_pipeline_opts opts = stage_init(&s, g, n_micro);
    rank_expect(ddp_pipeline_create(g, &opts, &p) == 0);
    for (int step = 0; step < 3; step++) {
        s.n_calls = 0;
        rank_expect(ddp_pipeline_step(p) == 0);
        rank_expect(s.n_calls == 2 * n_micro);
        for (int m = 0; m < n_micro; m++) /* forward from first to last, back from last to first */
            rank_expect(s.order[m] == m && s.order[2 * n_micro - 1 - m] == m);
    }
    expect_gradients(&s, n_micro, 3);
    ddp_pipeline_destroy(p);
}

static const int shapes[][2] = {{1, 3}, {2, 1}, {2, 6}, {3, 4}, {4, 2}}; /* stages, micro-batches */

START_TEST(stages_compute_the_same_as_one_rank_with_all_of_them)
{
    int n_micro = shapes[_i][1];
    ranks_run(shapes[_i][0], run_steps, &n_micro);
}
END_TEST

static const struct nodes grid = {.n = 2, .n_ranks = 3, .size = {2, 1}};

START_TEST(stages_may_be_on_several_nodes)
{
    struct store_process store;
    struct ranks r;
    int n_micro = 5;
    store_start(&store);
    nodes_start(&r, &grid, ranks_job_run, &(struct ranks_job){run_steps, &n_micro});
    ranks_expect_success(&r);
    store_stop(&store);
}
END_TEST

/* --- side by side with data parallelism ------------------------------------------------------- */

static void run_replicas(struct ddp_group *g, void *arg)
{
    struct ddp_group *stages, *replicas;
    struct ddp_pipeline *p;
    struct ddp_model *m;
    struct stage s;
    (void)arg;
    rank_expect(ddp_pipeline_groups(g, 3, &stages, &replicas) == DDP_EINVAL);
    rank_expect(ddp_pipeline_groups(g, 0, &stages, &replicas) == DDP_EINVAL);
    rank_expect(ddp_pipeline_groups(g, 2, &stages, &replicas) == 0);
    rank_expect(ddp_rank(stages) == ddp_rank(g) % 2 && ddp_world_size(stages) == 2);
    rank_expect(ddp_rank(replicas) == ddp_rank(g) / 2 && ddp_world_size(replicas) == 2);
    struct ddp_pipeline_opts opts = stage_init(&s, stages, 4);
    struct ddp_tensor t = {.name = "weight",
                           .param = s.weight,
                           .grad = s.d_weight,
                           .count = WIDTH,
                           .dtype = DDP_FLOAT64};
    rank_expect(ddp_pipeline_create(stages, &opts, &p) == 0);
    rank_expect(ddp_model_create(replicas, &t, 1, NULL, &m) == 0);
    rank_expect(ddp_pipeline_step(p) == 0);
    if (ddp_rank(replicas) == 1)
        for (int k = 0; k < WIDTH; k++)
            s.d_weight[k] *= 3; /* as of other samples: the mean is twice the first one's */
    rank_expect(ddp_model_sync(m) == 0);
    for (int k = 0; k < WIDTH; k++)
        s.d_weight[k] /= 2;
    expect_gradients(&s, 4, 1);
}

START_TEST(pipelines_side_by_side_average_stage_by_stage)
{
    ranks_run(4, run_replicas, NULL);
}
END_TEST

/* --- failures --------------------------------------------------------------------------------- */

static void fail_once(struct ddp_group *g, void *arg)
{
    const int at = *(int *)arg;
    struct stage s;
    struct ddp_pipeline *p;
    struct ddp_pipeline_opts opts = stage_init(&s, g, 4);
    rank_expect(ddp_pipeline_create(g, &opts, &p) == 0);
    if (ddp_rank(g) == 1)
        s.fails_at = at;
    int rc = ddp_pipeline_step(p);
    if (ddp_rank(g) == 1) {
        rank_expect(rc == (at < 100 ? DDP_ENOTFINITE : at < 200 ? DDP_EINVAL : DDP_RETRY));
    } else {
        rank_expect(rc == DDP_EMISMATCH);
        rank_expect_text("stage 1 failed in this step");
    }
    opts = stage_init(&s, g, 4); /* and clean again */
    rank_expect(ddp_pipeline_step(p) == 0);
    expect_gradients(&s, 4, 1);
}

START_TEST(a_failed_stage_fails_the_step_on_all_and_no_rank_waits)
{
    static const int places[] = {0, 2, 103, 100, 202};
    int at = places[_i];
    ranks_run(3, fail_once, &at);
}
END_TEST

static void differ(struct ddp_group *g, void *arg)
{
    const int which = *(int *)arg;
    struct stage s;
    struct ddp_pipeline *p;
    struct ddp_pipeline_opts opts = stage_init(&s, g, 2);
    const bool is_odd = ddp_rank(g) == 1;
    int expected = DDP_EMISMATCH;
    if (which == 0 && is_odd)
        opts.in_count++;
    if (which == 1 && is_odd)
        opts.n_micro++;
    if (which == 2 && is_odd)
        opts.out_count = 7; /* of the last stage */
    if (which == 3)
        opts.n_micro = is_odd ? 0 : 2;
    if (which == 4 && is_odd)
        opts.forward = NULL;
    if (which == 5 && is_odd)
        opts.dtype = DDP_INT8;
    if (which >= 3)
        expected = DDP_EINVAL; /* of one rank, on all of them */
    rank_expect(ddp_pipeline_create(g, &opts, &p) == expected);
    opts = stage_init(&s, g, 2);
    rank_expect(ddp_pipeline_create(g, &opts, &p) == 0); /* the group is whole */
    rank_expect(ddp_pipeline_step(NULL) == DDP_EINVAL);
}

START_TEST(stages_that_do_not_fit_are_refused_on_all_ranks)
{
    ranks_run(2, differ, &_i);
}
END_TEST

TEST_SUITE(pipeline)
{
    Suite *s = suite_create("pipeline");
    TCase *t = tcase_create("pipeline");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, stages_compute_the_same_as_one_rank_with_all_of_them, 0,
                        sizeof(shapes) / sizeof(shapes[0]));
    tcase_add_test(t, stages_may_be_on_several_nodes);
    tcase_add_test(t, pipelines_side_by_side_average_stage_by_stage);
    tcase_add_loop_test(t, a_failed_stage_fails_the_step_on_all_and_no_rank_waits, 0, 5);
    tcase_add_loop_test(t, stages_that_do_not_fit_are_refused_on_all_ranks, 0, 6);
    suite_add_tcase(s, t);
    return s;
}
