/* test_checkpoint_requestr.c - the loss scale, and steps that overflow. Vectors are those that
 * torch 2.11's GradScaler gives; tests/interop/scaler_vs_torch.py draws more of them. */
#include "tests/unit/worker-runtime/model_ranks.h"
#include "tests/unit/worker-runtime/nodes.h"

static struct ddp_scaler scaler_at(float scale, int32_t tracker)
{
    struct ddp_scaler s;
    ck_assert_int_eq(ddp_scaler_init(&s, NULL), 0);
    s.scale = scale;
    s.growth_tracker = tracker;
    return s;
}

static const struct {
    float scale;
    int32_t tracker;
    int found_inf;
    float next_scale;
    int32_t next_tracker;
} vectors[] = {
    {65536, 0, 0, 65536, 1},
    {65536, 1999, 0, 131072, 0},
    {65536, 2000, 0, 65536, 2001}, /* beyond the interval it never grows */
    {65536, 1999, 1, 32768, 0},
    {0x1p127f, 1999, 0, 0x1p127f, 0}, /* twice that is infinite */
    {0x1p-149f, 7, 1, 0, 0},          /* there is no floor */
    {3, 5, 1, 1.5f, 0},
};

START_TEST(the_scale_changes_as_in_torch)
{
    struct ddp_scaler s = scaler_at(vectors[_i].scale, vectors[_i].tracker);
    ddp_scaler_update(&s, vectors[_i].found_inf);
    ck_assert_float_eq(s.scale, vectors[_i].next_scale);
    ck_assert_int_eq(s.growth_tracker, vectors[_i].next_tracker);
}
END_TEST

START_TEST(factors_multiply_in_double_and_the_scale_is_rounded_once)
{
    struct ddp_scaler s;
    const struct ddp_scaler_opts o = {
        .init_scale = 3, .growth_factor = 1.1, .backoff_factor = 0.7, .growth_interval = 1};
    ck_assert_int_eq(ddp_scaler_init(&s, &o), 0);
    ddp_scaler_update(&s, 0);
    ck_assert_float_eq(s.scale, (float)(3 * 1.1));
    ddp_scaler_update(&s, 1);
    ck_assert_float_eq(s.scale, (float)((double)(float)(3 * 1.1) * 0.7));
}
END_TEST

START_TEST(a_scale_stays_within_its_bounds)
{
    struct ddp_scaler s;
    const struct ddp_scaler_opts o = {
        .init_scale = 4, .growth_interval = 1, .min_scale = 3, .max_scale = 6};
    ck_assert_int_eq(ddp_scaler_init(&s, &o), 0);
    ddp_scaler_update(&s, 0);
    ck_assert_float_eq(s.scale, 6);
    ddp_scaler_update(&s, 1);
    ddp_scaler_update(&s, 1);
    ck_assert_float_eq(s.scale, 3);
}
END_TEST

START_TEST(a_fixed_scale_never_changes)
{
    struct ddp_scaler s;
    ck_assert_int_eq(
        ddp_scaler_init(&s, &(struct ddp_scaler_opts){.init_scale = 8, .is_fixed = true}), 0);
    ddp_scaler_update(&s, 1);
    ck_assert_float_eq(s.scale, 8);
}
END_TEST

static const struct ddp_scaler_opts refused[] = {
    {.init_scale = -1},       {.init_scale = INFINITY},
    {.init_scale = NAN},      {.growth_factor = 1},
    {.growth_factor = NAN},   {.backoff_factor = 1},
    {.backoff_factor = -0.5}, {.growth_interval = -1},
    {.min_scale = -1},        {.min_scale = 4, .max_scale = 2},
};

START_TEST(options_out_of_their_bounds_are_refused)
{
    struct ddp_scaler s = scaler_at(5, 6);
    ck_assert_int_eq(ddp_scaler_init(&s, &refused[_i]), DDP_EINVAL);
    ck_assert_float_eq(s.scale, 5);
    ck_assert_int_eq(ddp_scaler_init(NULL, NULL), DDP_EINVAL);
}
END_TEST

START_TEST(a_saved_state_continues_where_it_was)
{
    double state[DDP_SCALER_N_STATE];
    struct ddp_scaler s = scaler_at(1024, 1998), t = scaler_at(1, 0);
    s.backoff_factor = 0.25;
    ddp_scaler_save(&s, state);
    ck_assert_int_eq(ddp_scaler_load(&t, state), 0);
    for (int i = 0; i < 3; i++) {
        ddp_scaler_update(&s, i == 2);
        ddp_scaler_update(&t, i == 2);
        ck_assert_float_eq(t.scale, s.scale);
        ck_assert_int_eq(t.growth_tracker, s.growth_tracker);
    }
    ck_assert_float_eq(t.scale, 512);
}
END_TEST

START_TEST(a_state_of_other_bounds_is_clamped)
{
    static const struct {
        float saved, loaded;
    } cases[] = {{1, 3}, {3, 3}, {5, 5}, {6, 6}, {1024, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double state[DDP_SCALER_N_STATE];
        struct ddp_scaler s, saved = scaler_at(cases[i].saved, 7);
        const struct ddp_scaler_opts o = {.init_scale = 4, .min_scale = 3, .max_scale = 6};
        ck_assert_int_eq(ddp_scaler_init(&s, &o), 0);
        ddp_scaler_save(&saved, state);
        ck_assert_int_eq(ddp_scaler_load(&s, state), 0);
        ck_assert_float_eq(s.scale, cases[i].loaded);
        ck_assert_int_eq(s.growth_tracker, 7);
    }
}
END_TEST

static const double damaged[][DDP_SCALER_N_STATE] = {
    {-1, 2, 0.5, 2000, 0},  {NAN, 2, 0.5, 2000, 0},   {1, 0.5, 0.5, 2000, 0}, {1, 2, 2, 2000, 0},
    {1, 2, 0.5, 0, 0},      {1, 2, 0.5, 2.5, 0},      {1, 2, 0.5, 2000, -1},  {1, 2, 0.5, 1e300, 0},
    {1, 2, 0.5, 2000, NAN}, {1e300, 2, 0.5, 2000, 0},
};

START_TEST(a_damaged_state_is_refused_and_changes_nothing)
{
    struct ddp_scaler s = scaler_at(5, 6);
    ck_assert_int_eq(ddp_scaler_load(&s, damaged[_i]), DDP_EINVAL);
    ck_assert_float_eq(s.scale, 5);
    ck_assert_int_eq(s.growth_tracker, 6);
}
END_TEST

START_TEST(unscaling_divides_by_the_scale_and_finds_nonfinite_values)
{
    float a[3] = {6, -3, 0.5f};
    double b[2] = {9, 1};
    struct ddp_tensor t[] = {{.name = "a", .grad = a, .count = 3, .dtype = DDP_FLOAT32},
                             {.name = "b", .grad = b, .count = 2, .dtype = DDP_FLOAT64}};
    struct ddp_scaler s = scaler_at(3, 0);
    int found = 0;
    ck_assert_int_eq(ddp_scaler_unscale(&s, t, 2, &found), 0);
    ck_assert_int_eq(found, 0);
    ck_assert_float_eq(a[0], 6 * (float)(1.0 / 3.0));
    ck_assert_double_eq(b[0], 9 * (double)(float)(1.0 / 3.0)); /* torch's, rounded to float */
    b[1] = NAN;
    ck_assert_int_eq(ddp_scaler_unscale(&s, t, 2, &found), 0);
    ck_assert_int_eq(found, 1);
    b[1] = 0;
    ck_assert_int_eq(ddp_scaler_unscale(&s, t, 2, &found), 0);
    ck_assert_int_eq(found, 1); /* what was found before stays */
    t[1].dtype = DDP_INT64;
    ck_assert_int_eq(ddp_scaler_unscale(&s, t, 2, &found), DDP_EINVAL);
    ck_assert_int_eq(ddp_scaler_unscale(&s, NULL, 1, &found), DDP_EINVAL);
}
END_TEST

/* --- on several ranks ------------------------------------------------------------------------- */

static const struct {
    int n;
    enum ddp_dtype dtype;
    struct ddp_model_opts opts;
} jobs[] = {
    {1, DDP_FLOAT16, {.tell_nonfinite = true}},
    {2, DDP_FLOAT16, {.tell_nonfinite = true}},
    {4, DDP_BFLOAT16, {.tell_nonfinite = true, .bucket_bytes = 64}},
    {2, DDP_FLOAT32, {.tell_nonfinite = true, .compress = DDP_COMPRESS_FLOAT16}},
    {4, DDP_FLOAT32, {.tell_nonfinite = true, .predivide_factor = 2}},
};

/* In step 2 a single gradient of the last rank overflows. */
static void overflow_once(struct ddp_group *g, void *arg)
{
    const int job = *(int *)arg;
    struct small s;
    struct ddp_scaler scaler;
    int n_steps_made = 0;
    small_init(&s, 4, 50, jobs[job].dtype);
    small_create(&s, g, &jobs[job].opts);
    rank_expect(ddp_scaler_init(&scaler, NULL) == 0);
    for (int step = 0; step < 5; step++) {
        small_backward(&s, ddp_rank(g), step);
        if (step == 2 && ddp_rank(g) == ddp_world_size(g) - 1)
            small_set(&s.t[1], 17, INFINITY);
        small_say_all(&s);
        rank_expect(ddp_model_sync(s.m) == 0);
        int found = ddp_model_found_inf(s.m);
        rank_expect(found == (step == 2));
        rank_expect(ddp_scaler_unscale(&scaler, s.t, s.n, &found) == 0);
        n_steps_made += !found;
        ddp_scaler_update(&scaler, found);
        rank_expect(scaler.scale == (step < 2 ? 65536.0f : 32768.0f));
    }
    rank_expect(n_steps_made == 4);
    rank_expect(small_stats(&s).n_steps == 5);
    small_fini(&s);
}

START_TEST(an_overflow_on_one_rank_skips_the_step_and_halves_the_scale_on_all)
{
    ranks_run(jobs[_i].n, overflow_once, &_i);
}
END_TEST

static const struct nodes grid = {.n = 2, .n_ranks = 3, .size = {2, 1}};

START_TEST(ranks_on_several_nodes_skip_the_same_steps)
{
    struct store_process store;
    struct ranks r;
    store_start(&store);
    nodes_start(&r, &grid, ranks_job_run, &(struct ranks_job){overflow_once, &_i});
    ranks_expect_success(&r);
    store_stop(&store);
}
END_TEST

static void ask_all(struct ddp_group *g, void *arg)
{
    (void)arg;
    for (int who = -1; who < ddp_world_size(g); who++) {
        int found = ddp_rank(g) == who;
        rank_expect(ddp_scaler_agree(g, &found) == 0);
        rank_expect(found == (who >= 0));
    }
    rank_expect(ddp_scaler_agree(g, NULL) == DDP_EINVAL);
}

START_TEST(all_ranks_know_what_one_rank_finds_in_its_part)
{
    ranks_run(_i, ask_all, NULL);
}
END_TEST

TEST_SUITE(scaler)
{
    Suite *s = suite_create("scaler");
    TCase *t = tcase_create("scaler");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, the_scale_changes_as_in_torch, 0, sizeof(vectors) / sizeof(vectors[0]));
    tcase_add_test(t, factors_multiply_in_double_and_the_scale_is_rounded_once);
    tcase_add_test(t, a_scale_stays_within_its_bounds);
    tcase_add_test(t, a_fixed_scale_never_changes);
    tcase_add_loop_test(t, options_out_of_their_bounds_are_refused, 0,
                        sizeof(refused) / sizeof(refused[0]));
    tcase_add_test(t, a_saved_state_continues_where_it_was);
    tcase_add_test(t, a_state_of_other_bounds_is_clamped);
    tcase_add_loop_test(t, a_damaged_state_is_refused_and_changes_nothing, 0,
                        sizeof(damaged) / sizeof(damaged[0]));
    tcase_add_test(t, unscaling_divides_by_the_scale_and_finds_nonfinite_values);
    tcase_add_loop_test(t, an_overflow_on_one_rank_skips_the_step_and_halves_the_scale_on_all, 0,
                        sizeof(jobs) / sizeof(jobs[0]));
    tcase_add_loop_test(t, ranks_on_several_nodes_skip_the_same_steps, 1, 5);
    tcase_add_loop_test(t, all_ranks_know_what_one_rank_finds_in_its_part, 1, 5);
    suite_add_tcase(s, t);
    return s;
}
