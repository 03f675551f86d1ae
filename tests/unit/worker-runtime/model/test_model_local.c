/* test_model_local.c - steps of each rank alone, and the outer step of all. */
#include "tests/unit/worker-runtime/model_ranks.h"

enum { COUNT = 50, N = 8, H = 4 };

/* --- what a rank does ------------------------------------------------------------------------- */

static double param_of(const struct small *s, size_t i, size_t k)
{
    return convert_get(s->t[i].param, s->t[i].dtype, k);
}

static void set_param(struct small *s, size_t i, size_t k, double value)
{
    struct ddp_tensor as_grad = s->t[i];
    as_grad.grad = s->t[i].param;
    small_set(&as_grad, k, value);
}

/* One inner step of plain SGD: all numbers are multiples of 1/64, and sums of them are exact. */
static double inner_change(int rank, int step, size_t i, size_t k)
{
    return small_value(rank, step, i, k) / 64;
}

static void inner_step(struct small *s, int rank, int step)
{
    small_backward(s, rank, step);
    if (step % 2 == 0)
        small_say_all(s);
    rank_expect(ddp_model_sync(s->m) == 0);
    rank_expect(small_get(&s->t[0], 1) == small_value(rank, step, 0, 1)); /* not averaged */
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->t[i].count; k++)
            set_param(s, i, k, param_of(s, i, k) - inner_change(rank, step, i, k));
}

/* The same on all ranks, bit for bit? */
static bool is_shared(struct ddp_group *g, const struct ddp_tensor *t)
{
    const size_t size = ddp_dtype_size(t->dtype);
    uint64_t bits[2 * COUNT] = {0};
    bool is_same = true;
    for (size_t k = 0; k < COUNT; k++) {
        memcpy(&bits[k], (const uint8_t *)t->param + k * size, size);
        bits[COUNT + k] = ~bits[k];
    }
    rank_expect(ddp_all_reduce(g, bits, bits, 2 * COUNT, DDP_UINT64, DDP_MAX, NULL) == 0);
    for (size_t k = 0; k < COUNT; k++)
        is_same &= bits[k] == ~bits[COUNT + k];
    return is_same;
}

static size_t n_shared(struct ddp_group *g, const struct small *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += is_shared(g, &s->t[i]);
    return n;
}

static void begin_small(struct small *s, enum ddp_dtype dtype, struct ddp_group *g,
                        const struct ddp_model_opts *opts)
{
    small_init(s, N, COUNT, dtype);
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < COUNT; k++)
            set_param(s, i, k, (double)i + (ddp_rank(g) == 0 ? 1 : 3)); /* rank 0's count */
    small_create(s, g, opts);
}

/* --- the outer step --------------------------------------------------------------------------- */

struct way {
    struct ddp_model_opts opts;
    enum ddp_dtype dtype;
    double lr, momentum, tolerance;
};

static const struct way ways[] = {
    {{.local_steps = H}, DDP_FLOAT64, 0.7, 0.9, 1e-12},
    {{.local_steps = H}, DDP_FLOAT32, 0.7, 0.9, 1e-4},
    {{.local_steps = 1, .outer_lr = 0.5, .outer_momentum = 0.25}, DDP_FLOAT64, 0.5, 0.25, 1e-12},
    {{.local_steps = H, .outer_lr = 1, .outer_momentum = DDP_OUTER_NO_MOMENTUM},
     DDP_FLOAT64,
     1,
     0,
     1e-12},
    {{.local_steps = H, .compress = DDP_COMPRESS_FLOAT16}, DDP_FLOAT32, 0.7, 0.9, 0.05},
    {{.local_steps = H, .check_finite = true, .bucket_bytes = 900, .predivide_factor = 2},
     DDP_FLOAT64,
     0.7,
     0.9,
     1e-12},
};

/* Of element k of tensor i: what the paper's formula gives after `rounds` outer steps. */
static double expected(const struct way *way, int ranks, int rounds, size_t i, size_t k)
{
    double outer = (double)i + 1, v = 0;
    for (int round = 0; round < rounds; round++) {
        double g = 0;
        for (int rank = 0; rank < ranks; rank++)
            for (int step = 0; step < (int)way->opts.local_steps; step++)
                g += inner_change(rank, round * (int)way->opts.local_steps + step, i, k) / ranks;
        v = way->momentum * v + g;
        outer -= way->lr * (g + way->momentum * v);
    }
    return outer;
}

static void train_in_a_way(struct ddp_group *g, void *arg)
{
    enum { ROUNDS = 3 };
    const struct way *way = arg;
    const int steps = (int)way->opts.local_steps;
    struct small s;
    begin_small(&s, way->dtype, g, &way->opts);
    for (int step = 0; step < ROUNDS * steps; step++) {
        rank_expect(small_stats(&s).n_steps == (uint64_t)(step / steps));
        inner_step(&s, ddp_rank(g), step);
        rank_expect(ddp_model_outer_step(s.m, false) == 0);
        rank_expect((n_shared(g, &s) == N) == (step % steps == steps - 1));
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < COUNT; k++)
            RANK_CHECK(own_rank,
                       fabs(param_of(&s, i, k) - expected(way, 3, ROUNDS, i, k)) <= way->tolerance,
                       "parameter %zu of tensor %zu is %.17g, not %.17g", k, i, param_of(&s, i, k),
                       expected(way, 3, ROUNDS, i, k));
    small_fini(&s);
}

START_TEST(every_H_steps_parameters_are_those_of_the_outer_optimizer_on_all_ranks)
{
    ranks_run(3, train_in_a_way, (void *)&ways[_i]);
}
END_TEST

static void compare_bytes(struct ddp_group *g, void *arg)
{
    struct small s, local;
    (void)arg;
    begin_small(&s, DDP_FLOAT32, g, NULL);
    begin_small(&local, DDP_FLOAT32, g, &(struct ddp_model_opts){.local_steps = H});
    for (int step = 0; step < 2 * H; step++) {
        rank_expect(ddp_model_sync(s.m) == 0);
        inner_step(&local, ddp_rank(g), step);
        rank_expect(ddp_model_outer_step(local.m, false) == 0);
        rank_expect(ddp_model_outer_step(s.m, false) == 0); /* nothing */
    }
    rank_expect(small_stats(&s).wire_bytes >= 2 * H * N * COUNT * sizeof(float));
    rank_expect(small_stats(&s).wire_bytes == H * small_stats(&local).wire_bytes);
    small_fini(&s);
    small_fini(&local);
}

START_TEST(a_model_with_H_local_steps_sends_an_Hth_of_the_bytes)
{
    ranks_run(2, compare_bytes, NULL);
}
END_TEST

static void train_in_fragments(struct ddp_group *g, void *arg)
{
    const size_t steps = *(size_t *)arg;
    struct small s;
    bool was_shared[N] = {false};
    size_t n_exchanged = 0;
    begin_small(&s, DDP_FLOAT64, g,
                &(struct ddp_model_opts){.local_steps = steps, .local_fragments = true});
    rank_expect(small_stats(&s).n_buckets == (steps < N ? steps : N));
    for (size_t step = 0; step < steps; step++) {
        inner_step(&s, ddp_rank(g), (int)step);
        rank_expect(ddp_model_outer_step(s.m, false) == 0);
        for (size_t i = 0; i < N; i++) {
            const bool now = is_shared(g, &s.t[i]);
            n_exchanged += now;
            rank_expect(!now || !was_shared[i]); /* each of them once */
            was_shared[i] |= now;
        }
        rank_expect(n_exchanged <= (step + 1) * (N / (steps < N ? steps : N)));
    }
    rank_expect(n_exchanged == N);
    rank_expect(small_stats(&s).n_steps == (steps < N ? steps : N)); /* others exchange nothing */
    rank_expect(small_stats(&s).wire_bytes < 2 * N * COUNT * sizeof(double));
    inner_step(&s, ddp_rank(g), 0);
    rank_expect(ddp_model_outer_step(s.m, true) == 0);
    rank_expect(n_shared(g, &s) == N);
    small_fini(&s);
}

START_TEST(with_fragments_each_parameter_is_exchanged_once_in_H_steps)
{
    ranks_run(2, train_in_fragments, &(size_t){_i == 0 ? 4 : 16});
}
END_TEST

static void end_early(struct ddp_group *g, void *arg)
{
    struct small s;
    (void)arg;
    begin_small(&s, DDP_FLOAT64, g, &(struct ddp_model_opts){.local_steps = H});
    inner_step(&s, ddp_rank(g), 0);
    rank_expect(ddp_model_outer_step(s.m, true) == 0);
    rank_expect(n_shared(g, &s) == N);
    for (int step = 0; step < H; step++) { /* and H begins again */
        inner_step(&s, ddp_rank(g), step);
        rank_expect(ddp_model_outer_step(s.m, false) == 0);
        rank_expect((n_shared(g, &s) == N) == (step == H - 1));
    }
    small_fini(&s);
}

START_TEST(an_outer_step_can_be_made_early)
{
    ranks_run(2, end_early, NULL);
}
END_TEST

static void train_alone(struct ddp_group *g, void *arg)
{
    struct small s;
    (void)arg;
    begin_small(&s, DDP_FLOAT64, g, &ways[0].opts);
    for (int step = 0; step < 2 * H; step++) {
        inner_step(&s, 0, step);
        rank_expect(ddp_model_outer_step(s.m, false) == 0);
    }
    for (size_t k = 0; k < COUNT; k++)
        rank_expect(fabs(param_of(&s, 3, k) - expected(&ways[0], 1, 2, 3, k)) < 1e-12);
    rank_expect(small_stats(&s).wire_bytes == 0);
    small_fini(&s);
}

START_TEST(a_rank_alone_makes_outer_steps)
{
    ranks_run(1, train_alone, NULL);
}
END_TEST

/* --- bad input -------------------------------------------------------------------------------- */

static int a_hook(struct ddp_group *g, const struct ddp_bucket *b, void *arg)
{
    (void)g;
    (void)b;
    (void)arg;
    return 0;
}

static const struct bad {
    struct ddp_model_opts opts;
    enum ddp_dtype dtype;
    const char *text;
} bad[] = {
    {{.local_steps = H, .outer_lr = -1}, DDP_FLOAT32, "invalid value -1 for outer_lr"},
    {{.local_steps = H, .outer_lr = INFINITY}, DDP_FLOAT32, "for outer_lr: expected a number"},
    {{.local_steps = H, .outer_momentum = 1}, DDP_FLOAT32, "invalid value 1 for outer_momentum"},
    {{.local_steps = H, .outer_momentum = -0.5}, DDP_FLOAT32, "value -0.5 for outer_momentum"},
    {{.local_steps = H, .outer_momentum = NAN}, DDP_FLOAT32, "for outer_momentum"},
    {{.local_steps = (size_t)1 << 32}, DDP_FLOAT32, "value 4294967296 for local_steps"},
    {{.local_steps = H, .allow_unused = true}, DDP_FLOAT32, "together with allow_unused"},
    {{.local_steps = H, .tell_nonfinite = true}, DDP_FLOAT32, "together with tell_nonfinite"},
    {{.local_steps = H, .stream = (void *)8}, DDP_FLOAT32, "together with a stream"},
    {{.local_fragments = true}, DDP_FLOAT32, "require local_steps"},
    {{.outer_lr = 0.5}, DDP_FLOAT32, "require local_steps"},
    {{.outer_momentum = 0.5}, DDP_FLOAT32, "require local_steps"},
    {{.local_steps = H}, DDP_BFLOAT16, "has 16-bit elements"},
    {{.local_steps = H, .hook = a_hook, .compress = 1}, DDP_FLOAT32, "hook cannot"},
};

static void create_badly(struct ddp_group *g, void *arg)
{
    const struct bad *b = arg;
    struct small s;
    small_init(&s, 2, COUNT, b->dtype);
    rank_expect(ddp_model_create(g, s.t, s.n, &b->opts, &s.m) == DDP_EINVAL);
    rank_expect_text(b->text);
    small_fini(&s);
}

START_TEST(options_out_of_their_bounds_are_refused)
{
    ranks_run(1, create_badly, (void *)&bad[_i]);
}
END_TEST

static void give_different_options(struct ddp_group *g, void *arg)
{
    struct small s;
    (void)arg;
    small_init(&s, 2, COUNT, DDP_FLOAT32);
    const struct ddp_model_opts opts = {.local_steps = (size_t)(ddp_rank(g) == 1 ? 8 : H)};
    rank_expect(ddp_model_create(g, s.t, s.n, &opts, &s.m) == DDP_EMISMATCH);
    rank_expect_text("rank 0 has local_steps 4, rank 1 has local_steps 8");
    small_fini(&s);
}

START_TEST(different_options_of_two_ranks_are_named)
{
    ranks_run(2, give_different_options, NULL);
}
END_TEST

static void call_badly(struct ddp_group *g, void *arg)
{
    void *memory;
    struct small s, plain;
    (void)arg;
    begin_small(&s, DDP_FLOAT32, g, &(struct ddp_model_opts){.local_steps = H});
    begin_small(&plain, DDP_FLOAT32, g, NULL);
    rank_expect(ddp_join(s.m) == DDP_EINVAL);
    rank_expect_text("the model has local_steps");
    rank_expect(ddp_model_outer(s.m, N, &memory, NULL) == DDP_EINVAL);
    rank_expect_text("there is no tensor 8");
    rank_expect(ddp_model_outer(plain.m, 0, &memory, NULL) == DDP_EINVAL);
    rank_expect_text("without ddp_model_opts.local_steps");
    rank_expect(ddp_model_outer_loaded(plain.m) == DDP_EINVAL);
    rank_expect(ddp_model_ready(s.m, 0) == 0);
    rank_expect(ddp_model_outer_loaded(s.m) == DDP_EINVAL);
    rank_expect_text("1 gradients are marked ready");
    small_fini(&s);
    small_fini(&plain);
}

START_TEST(calls_that_do_not_fit_are_refused)
{
    ranks_run(1, call_badly, NULL);
}
END_TEST

/* --- steps that do not count ------------------------------------------------------------------ */

static void fail_a_round(struct ddp_group *g, void *arg)
{
    const bool is_nan = *(bool *)arg;
    const bool is_it = ddp_rank(g) == 1;
    struct small s;
    begin_small(&s, DDP_FLOAT64, g,
                &(struct ddp_model_opts){.local_steps = 2, .check_finite = is_nan});
    inner_step(&s, ddp_rank(g), 0);
    rank_expect(ddp_model_outer_step(s.m, false) == 0);
    if (!is_nan && is_it) {
        rank_expect(ddp_model_ready(s.m, 1) == 0);
        rank_expect(ddp_model_sync(s.m) == DDP_EINVAL);
        rank_expect_text("7 of 8 gradients were not marked ready");
    } else {
        rank_expect(ddp_model_sync(s.m) == 0);
    }
    set_param(&s, 2, 3, is_nan && is_it ? NAN : 5);
    const int rc = ddp_model_outer_step(s.m, false);
    rank_expect(rc == (is_nan ? DDP_ENOTFINITE : is_it ? DDP_EINVAL : DDP_EMISMATCH));
    rank_expect_text(is_nan  ? "gradient 2 't2' is not finite"
                     : is_it ? "7 of 8 gradients"
                             : "rank 1 could not finish this step");
    for (size_t i = 0; i < N; i++) /* where all began */
        for (size_t k = 0; k < COUNT; k++)
            rank_expect(param_of(&s, i, k) == (double)i + 1);
    rank_expect(small_stats(&s).n_steps == 0);
    for (int step = 0; step < 2; step++) {
        inner_step(&s, ddp_rank(g), step);
        rank_expect(ddp_model_outer_step(s.m, false) == 0);
    }
    rank_expect(small_stats(&s).n_steps == 1 && n_shared(g, &s) == N);
    small_fini(&s);
}

START_TEST(after_an_outer_step_that_does_not_count_parameters_are_those_of_the_last_one)
{
    ranks_run(2, fail_a_round, &(bool){_i == 1});
}
END_TEST

static void forget_to_sync(struct ddp_group *g, void *arg)
{
    struct small s;
    (void)arg;
    begin_small(&s, DDP_FLOAT64, g, &(struct ddp_model_opts){.local_steps = 1});
    if (ddp_rank(g) == 0)
        rank_expect(ddp_model_ready(s.m, 1) == 0);
    rank_expect(ddp_model_outer_step(s.m, false) ==
                (ddp_rank(g) == 0 ? DDP_EINVAL : DDP_EMISMATCH));
    small_fini(&s);
}

START_TEST(an_outer_step_with_gradients_marked_ready_fails_on_all_ranks)
{
    ranks_run(2, forget_to_sync, NULL);
}
END_TEST

/* --- generations ------------------------------------------------------------------------------ */

/* Rank 2 dies `after` steps, and is new in the next generation. */
static void replace_a_rank(struct ddp_group *g, void *arg)
{
    const int after = *(int *)arg, counted = after / H;
    const struct ddp_model_opts opts = {.local_steps = H};
    const bool is_new = ddp_rank(g) == 2;
    struct recovery r;
    struct small s;
    struct {
        int step;
        float state; /* of the inner optimizer: each rank's own */
    } own = {0, 0};
    generation_begin(g, &r, 0, false);
    rank_expect(ddp_state_add(g, "own", &own, sizeof own) == 0);
    begin_small(&s, DDP_FLOAT64, g, &opts);
    while (own.step < after) {
        inner_step(&s, ddp_rank(g), own.step++);
        own.state = (float)(own.step * 10 + ddp_rank(g));
        rank_expect(ddp_model_outer_step(s.m, false) == 0);
    }
    group_destroy_children(g);
    generation_begin(g, &r, (uint64_t)counted, is_new);
    if (is_new) { /* another process: nothing is left, and it begins as a program does */
        generation_end(g, &r);
        generation_begin(g, &r, (uint64_t)counted, true);
        own.step = 0;
        own.state = 0;
        for (size_t i = 0; i < N; i++)
            for (size_t k = 0; k < COUNT; k++)
                set_param(&s, i, k, 77);
    }
    rank_expect(ddp_state_add(g, "own", &own, sizeof own) == 0);
    for (size_t i = 0; i < N; i++)
        s.t[i].grad = is_new ? NULL : s.t[i].grad;
    small_create(&s, g, &opts);
    rank_expect(own.step == counted * H);
    rank_expect(counted == 0 ||
                own.state == (float)(counted * H * 10 + (is_new ? 0 : ddp_rank(g))));
    rank_expect(n_shared(g, &s) == N);
    for (; own.step < 3 * H;) {
        inner_step(&s, ddp_rank(g), own.step++);
        rank_expect(ddp_model_outer_step(s.m, false) == 0);
    }
    for (size_t i = 0; i < N; i++) /* as without a death: parameters and momentum were the same */
        for (size_t k = 0; k < COUNT; k++)
            rank_expect(fabs(param_of(&s, i, k) - expected(&ways[0], 3, 3, i, k)) < 1e-12);
    small_fini(&s);
    generation_end(g, &r);
}

START_TEST(a_generation_begins_with_the_state_after_the_last_outer_step)
{
    ranks_run(3, replace_a_rank, &(int){_i * H / 2 + 1});
}
END_TEST

static void load_a_checkpoint(struct ddp_group *g, void *arg)
{
    const struct ddp_model_opts opts = {.local_steps = H};
    double saved[N][2][COUNT];
    struct small s, later;
    int step = 0;
    (void)arg;
    begin_small(&s, DDP_FLOAT64, g, &opts);
    for (; step < 2 * H + 1; step++) { /* saved in the middle: the inner step is lost */
        inner_step(&s, ddp_rank(g), step);
        rank_expect(ddp_model_outer_step(s.m, false) == 0);
    }
    for (size_t i = 0; i < N; i++) {
        void *from[2];
        rank_expect(ddp_model_outer(s.m, i, &from[0], &from[1]) == 0);
        memcpy(saved[i][0], from[0], sizeof saved[i][0]);
        memcpy(saved[i][1], from[1], sizeof saved[i][1]);
    }
    begin_small(&later, DDP_FLOAT64, g, &opts);
    for (size_t i = 0; i < N; i++) {
        void *to[2];
        rank_expect(ddp_model_outer(later.m, i, &to[0], &to[1]) == 0);
        memcpy(to[0], saved[i][0], sizeof saved[i][0]);
        memcpy(to[1], saved[i][1], sizeof saved[i][1]);
    }
    rank_expect(ddp_model_outer_loaded(later.m) == 0);
    for (step = 2 * H; step < 3 * H; step++) {
        inner_step(&later, ddp_rank(g), step);
        rank_expect(ddp_model_outer_step(later.m, false) == 0);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < COUNT; k++)
            rank_expect(fabs(param_of(&later, i, k) - expected(&ways[0], 2, 3, i, k)) < 1e-12);
    small_fini(&s);
    small_fini(&later);
}

START_TEST(a_training_continues_from_a_saved_outer_state)
{
    ranks_run(2, load_a_checkpoint, NULL);
}
END_TEST

TEST_SUITE(model_local)
{
    Suite *s = suite_create("model_local");
    TCase *t = tcase_create("model_local");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, every_H_steps_parameters_are_those_of_the_outer_optimizer_on_all_ranks,
                        0, sizeof ways / sizeof *ways);
    tcase_add_test(t, a_model_with_H_local_steps_sends_an_Hth_of_the_bytes);
    tcase_add_loop_test(t, with_fragments_each_parameter_is_exchanged_once_in_H_steps, 0, 2);
    tcase_add_test(t, an_outer_step_can_be_made_early);
    tcase_add_test(t, a_rank_alone_makes_outer_steps);
    tcase_add_loop_test(t, options_out_of_their_bounds_are_refused, 0, sizeof bad / sizeof *bad);
    tcase_add_test(t, different_options_of_two_ranks_are_named);
    tcase_add_test(t, calls_that_do_not_fit_are_refused);
    tcase_add_loop_test(
        t, after_an_outer_step_that_does_not_count_parameters_are_those_of_the_last_one, 0, 2);
    tcase_add_test(t, an_outer_step_with_gradients_marked_ready_fails_on_all_ranks);
    tcase_add_loop_test(t, a_generation_begins_with_the_state_after_the_last_outer_step, 0, 5);
    tcase_add_test(t, a_training_continues_from_a_saved_outer_state);
    suite_add_tcase(s, t);
    return s;
}
