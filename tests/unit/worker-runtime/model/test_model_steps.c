/* test_model_steps.c - steps, and what goes wrong in them. */
#include "tests/unit/worker-runtime/model_ranks.h"

#include "segments/control.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { COUNT = 64, LONG_COUNT = 16 << 10 };
static const struct ddp_model_opts two_a_bucket = {.bucket_bytes = 2 * COUNT * sizeof(float)};

/* --- order ------------------------------------------------------------------------------------ */

/* Reports odd gradients before even ones: no two adjacent ones share a bucket. */
static void say_odd_ones_first(struct small *s, size_t from)
{
    for (size_t i = from; i < s->n; i += 2)
        rank_expect(ddp_model_ready(s->m, i) == 0);
    for (size_t i = 1 - from; i < s->n; i += 2)
        rank_expect(ddp_model_ready(s->m, i) == 0);
}

struct order_case {
    struct ddp_model_opts opts;
    size_t count; /* elements of a tensor */
    bool users, reorders, copies;
};

static void ready_in_another_order(struct ddp_group *g, void *arg)
{
    const struct order_case *c = arg;
    static float array[8 * LONG_COUNT];
    struct small s;
    small_init(&s, 8, c->count, DDP_FLOAT32);
    for (size_t i = 0; i < 8 && c->users; i++)
        s.t[i].grad = array + i * c->count;
    small_create(&s, g, &c->opts);
    rank_expect(!small_stats(&s).was_reordered);
    for (int step = 0; step < 4; step++) {
        small_backward(&s, ddp_rank(g), step);
        say_odd_ones_first(&s,
                           ddp_rank(g) == 0 ? 1 : 0); /* rank 0's order is the one that counts */
        rank_expect(ddp_model_sync(s.m) == 0);
        small_expect_sums(&s, 3, step, 1.0 / 3, c->opts.compress ? 2e-3 : 1e-6);
        rank_expect(small_stats(&s).was_reordered == c->reorders);
        rank_expect(small_stats(&s).n_buckets == 4);
        rank_expect(small_stats(&s).n_in_place ==
                    (small_stats(&s).was_reordered && c->copies ? 0 : 4));
    }
    rank_expect(small_stats(&s).n_steps == 4 && g->world->line->progress.steps == 4);
    small_fini(&s);
}

START_TEST(buckets_follow_the_order_of_rank_0)
{
    static struct order_case cases[] = {
        {.opts.message_size = 2 * COUNT, .count = COUNT, .reorders = true, .copies = true},
        {.opts.message_size = 2 * COUNT,
         .count = COUNT,
         .reorders = true,
         .copies = true,
         .users = true},
        {.opts = {.message_size = 2 * COUNT, .keep_order = true}, .count = COUNT},
        {.opts = {.message_size = 2 * COUNT, .allow_unused = true}, .count = COUNT},
        /* long ones stay where they are, and are averaged one by one */
        {.opts.message_size = 2 * LONG_COUNT, .count = LONG_COUNT, .reorders = true},
        {.opts.message_size = 2 * LONG_COUNT, .count = LONG_COUNT, .reorders = true, .users = true},
        {.opts = {.message_size = 2 * LONG_COUNT, .compress = DDP_COMPRESS_FLOAT16},
         .count = LONG_COUNT,
         .reorders = true},
        {.opts = {.message_size = 2 * LONG_COUNT, .check_finite = true},
         .count = LONG_COUNT,
         .reorders = true},
    };
    ranks_run(3, ready_in_another_order, &cases[_i]);
}
END_TEST

static void say_nothing_on_rank_0(struct ddp_group *g, void *arg)
{
    struct small s;
    (void)arg;
    small_init(&s, 8, COUNT, DDP_FLOAT32);
    small_create(&s, g, &two_a_bucket);
    for (int step = 0; step < 3; step++) {
        small_backward(&s, ddp_rank(g), step);
        if (ddp_rank(g) != 0)
            say_odd_ones_first(&s, 1);
        rank_expect(ddp_model_sync(s.m) == 0);
        small_expect_sums(&s, 2, step, 0.5, 0);
        rank_expect(!small_stats(&s).was_reordered);
    }
    small_fini(&s);
}

START_TEST(without_an_order_of_rank_0_buckets_do_not_change)
{
    ranks_run(2, say_nothing_on_rank_0, NULL);
}
END_TEST

/* --- overlap ---------------------------------------------------------------------------------- */

static void go_on_together(struct ddp_group *g, void *arg)
{
    pthread_barrier_t *meeting = arg;
    struct small s;
    small_init(&s, 32, COUNT, DDP_FLOAT32);
    small_create(&s, g, &two_a_bucket);
    for (int step = 0; step < 3; step++) {
        small_backward(&s, ddp_rank(g), step);
        for (size_t i = 32; i-- > 0;) { /* a layer takes both ranks equally long */
            rank_expect(ddp_model_ready(s.m, i) == 0);
            pthread_barrier_wait(meeting);
        }
        rank_expect(ddp_model_sync(s.m) == 0);
        small_expect_sums(&s, 2, step, 0.5, 0);
        rank_expect(small_stats(&s).n_buckets == 16 && small_stats(&s).n_overlapped >= 8);
    }
    small_fini(&s);
}

START_TEST(most_buckets_are_averaged_before_the_backward_pass_is_over)
{
    pthread_barrier_t *meeting =
        mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(meeting, &shared, 2);
    ranks_run(2, go_on_together, meeting);
    munmap(meeting, sizeof(*meeting));
}
END_TEST

static void go_on_with_a_thread(struct ddp_group *g, void *arg)
{
    (void)arg;
    struct small s;
    small_init(&s, 32, COUNT, DDP_FLOAT32);
    small_create(&s, g, &two_a_bucket);
    for (int step = 0; step < 20; step++) {
        small_backward(&s, ddp_rank(g), step);
        small_say_all(&s);
        rank_expect(ddp_model_sync(s.m) == 0);
        small_expect_sums(&s, 2, step, 0.5, 0);
    }
    small_backward(&s, ddp_rank(g), 0);
    rank_expect(ddp_model_ready_range(s.m, 16, 16) == 0);
    small_fini(&s); /* with buckets on their way */
}

START_TEST(a_progress_thread_averages_the_same)
{
    setenv("DDP_PROGRESS_THREAD", "1", 1);
    ranks_run(2, go_on_with_a_thread, NULL);
    unsetenv("DDP_PROGRESS_THREAD");
}
END_TEST

static void give_up_in_the_middle(struct ddp_group *g, void *arg)
{
    struct small s;
    (void)arg;
    small_init(&s, 8, COUNT, DDP_FLOAT32);
    small_create(&s, g, &two_a_bucket);
    float word;
    if (ddp_rank(g) == 0)
        rank_expect(ddp_model_ready_range(s.m, 4, 4) == 0); /* no other rank makes this call */
    else
        rank_expect(ddp_recv(g, &word, 1, DDP_FLOAT32, 0, 0, NULL) == DDP_EPEER); /* it has left */
    ddp_finalize(g);
    exit(0);
}

START_TEST(a_program_that_exits_in_a_step_waits_for_no_rank)
{
    ranks_run(2, give_up_in_the_middle, NULL);
}
END_TEST

/* --- accumulation ----------------------------------------------------------------------------- */

static void accumulate(struct ddp_group *g, void *arg)
{
    enum { PASSES = 3 };
    struct small s;
    (void)arg;
    small_init(&s, 4, COUNT, DDP_FLOAT64);
    small_create(&s, g, &two_a_bucket);
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < 4; i++)
            memset(s.t[i].grad, 0, COUNT * sizeof(double));
        for (int pass = 0; pass < PASSES; pass++) {
            rank_expect(ddp_model_accumulate(s.m, pass + 1 < PASSES) == 0);
            for (size_t i = 4; i-- > 0;) {
                for (size_t k = 0; k < COUNT; k++)
                    ((double *)s.t[i].grad)[k] += small_value(ddp_rank(g), 10 * step + pass, i, k);
                rank_expect(ddp_model_ready(s.m, i) == 0);
            }
            if (pass + 1 == PASSES)
                rank_expect(ddp_model_accumulate(s.m, true) == DDP_EINVAL); /* too late */
            rank_expect(ddp_model_sync(s.m) == 0);
            rank_expect(small_stats(&s).n_steps == (uint64_t)(step + (pass + 1 == PASSES)));
        }
        for (size_t i = 0; i < 4; i++)
            for (size_t k = 0; k < COUNT; k++) {
                double sum = 0;
                for (int pass = 0; pass < PASSES; pass++)
                    for (int rank = 0; rank < 2; rank++)
                        sum += small_value(rank, 10 * step + pass, i, k);
                rank_expect(small_get(&s.t[i], k) == sum / 2);
            }
    }
    small_fini(&s);
}

START_TEST(accumulated_gradients_are_averaged_once)
{
    ranks_run(2, accumulate, NULL);
}
END_TEST

/* --- misuse ----------------------------------------------------------------------------------- */

static void forget_some_on_rank_1(struct ddp_group *g, void *arg)
{
    struct small s;
    (void)arg;
    small_init(&s, 12, COUNT, DDP_FLOAT32);
    small_create(&s, g, &two_a_bucket);
    for (int step = 0; step < 3; step++) {
        const bool forgets = step == 1 && ddp_rank(g) == 1;
        small_backward(&s, ddp_rank(g), step);
        if (forgets)
            rank_expect(ddp_model_ready(s.m, 3) == 0 && ddp_model_ready(s.m, 11) == 0);
        else
            small_say_all(&s);
        int rc = ddp_model_sync(s.m);
        if (step != 1) {
            rank_expect(rc == 0);
            small_expect_sums(&s, 2, step, 0.5, 0);
        } else if (forgets) {
            rank_expect(rc == DDP_EINVAL);
            rank_expect_text(
                "ddp_model_sync: 10 of 12 gradients were not marked ready in this step: 0 't0', "
                "1 't1', 2 't2', 4 't4', 5 't5', 6 't6', 7 't7', 8 't8', ...; call "
                "ddp_model_ready()");
        } else {
            rank_expect(rc == DDP_EMISMATCH);
            rank_expect_text("rank 1 could not finish this step");
        }
    }
    rank_expect(g->world->line->progress.steps == 2);
    small_fini(&s);
}

START_TEST(gradients_that_are_never_ready_are_named)
{
    ranks_run(2, forget_some_on_rank_1, NULL);
}
END_TEST

static void make_another_number_of_steps(struct ddp_group *g, void *arg)
{
    struct small a, b;
    (void)arg;
    small_init(&a, 2, COUNT, DDP_FLOAT32);
    small_init(&b, 2, COUNT, DDP_FLOAT32);
    small_create(&a, g, &two_a_bucket);
    small_create(&b, g, &two_a_bucket);
    rank_expect(ddp_model_sync(a.m) == 0);
    /* two models of one shape, in another order on each rank: the calls look alike */
    rank_expect(ddp_model_sync(ddp_rank(g) == 0 ? a.m : b.m) == DDP_EMISMATCH);
    rank_expect_text("the ranks are in different steps of the model");
    small_fini(&a);
    small_fini(&b);
}

START_TEST(ranks_in_different_steps_get_an_error)
{
    ranks_run(2, make_another_number_of_steps, NULL);
}
END_TEST

/* --- ranks that have no more batches ---------------------------------------------------------- */

struct uneven {
    int n_batches[3];
    bool weighted;
    bool has_buffers;
};

static void train_unevenly(struct ddp_group *g, void *arg)
{
    const struct uneven *u = arg;
    const int rank = ddp_rank(g), most = 3;
    float statistic = (float)rank;
    struct ddp_tensor buffer = {.name = "b", .param = &statistic, .count = 1, .dtype = DDP_FLOAT32};
    const struct ddp_model_opts opts = {.bucket_bytes = 2 * COUNT * sizeof(float),
                                        .weighted = u->weighted,
                                        .buffers = &buffer,
                                        .n_buffers = u->has_buffers ? 1 : 0};
    struct small s;
    small_init(&s, 4, COUNT, DDP_FLOAT32);
    small_create(&s, g, &opts);
    for (int epoch = 0; epoch < 2; epoch++) {
        for (int step = 0; step < u->n_batches[rank]; step++) {
            int n_active = 0, lowest = -1;
            small_backward(&s, rank, step);
            statistic = (float)(100 * (step + 1) + rank);
            small_say_all(&s);
            rank_expect(ddp_model_sync(s.m) == 0);
            for (int r = 2; r >= 0; r--)
                if (step < u->n_batches[r])
                    n_active++, lowest = r;
            for (size_t k = 0; k < COUNT; k++) {
                double sum = 0;
                for (int r = 0; r < 3; r++)
                    sum += step < u->n_batches[r] ? small_value(r, step, 1, k) : 0;
                const double average = sum / (u->weighted ? n_active : 3);
                rank_expect(fabs(small_get(&s.t[1], k) - average) < 1e-5);
            }
            if (u->has_buffers)
                rank_expect(statistic == (float)(100 * (step + 1) + lowest));
            ((float *)s.t[0].param)[0] += 1; /* what an optimizer would do */
        }
        rank_expect(ddp_join(s.m) == 0);
        rank_expect(((float *)s.t[0].param)[0] == (float)(most * (epoch + 1)));
        rank_expect(ddp_barrier(g) == 0);
    }
    small_fini(&s);
}

START_TEST(ranks_without_batches_take_part_until_all_are_done_and_get_the_last_state)
{
    static struct uneven cases[] = {
        {.n_batches = {1, 3, 2}},
        {.n_batches = {3, 0, 1}, .weighted = true},
        {.n_batches = {2, 2, 3}, .has_buffers = true},
        {.n_batches = {3, 3, 3}},
    };
    ranks_run(3, train_unevenly, &cases[_i]);
}
END_TEST

static void join_in_the_middle(struct ddp_group *g, void *arg)
{
    struct small s;
    (void)arg;
    small_init(&s, 4, COUNT, DDP_FLOAT32);
    small_create(&s, g, &two_a_bucket);
    rank_expect(ddp_model_ready(s.m, 3) == 0);
    if (ddp_rank(g) == 0) {
        rank_expect(ddp_join(s.m) == DDP_EINVAL);
        rank_expect_text("ddp_join: 1 gradients of a step");
    } else {
        rank_expect(ddp_model_ready_range(s.m, 0, 3) == 0);
        rank_expect(ddp_model_sync(s.m) == DDP_EMISMATCH);
    }
    rank_expect(ddp_join(s.m) == 0);
    rank_expect(ddp_join(NULL) == DDP_EINVAL);
    small_fini(&s);
}

START_TEST(joining_in_the_middle_of_a_step_fails_it_on_all_ranks)
{
    ranks_run(2, join_in_the_middle, NULL);
}
END_TEST

/* --- death at the end of a step --------------------------------------------------------------- */

START_TEST(the_survivors_of_a_death_agree_on_the_last_step_that_counts)
{
    for (unsigned trial = 0; trial < 8; trial++) {
        struct ranks r;
        small_count_begin();
        ranks_start(&r, 3, small_train_until_death, NULL);
        small_count_end(&r, 50 + 37 * trial);
    }
}
END_TEST

TEST_SUITE(model_steps)
{
    Suite *s = suite_create("model steps");
    TCase *t = tcase_create("steps");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, buckets_follow_the_order_of_rank_0, 0, 8);
    tcase_add_test(t, without_an_order_of_rank_0_buckets_do_not_change);
    tcase_add_test(t, most_buckets_are_averaged_before_the_backward_pass_is_over);
    tcase_add_test(t, a_progress_thread_averages_the_same);
    tcase_add_test(t, a_program_that_exits_in_a_step_waits_for_no_rank);
    tcase_add_test(t, accumulated_gradients_are_averaged_once);
    suite_add_tcase(s, t);
    t = tcase_create("failures");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, gradients_that_are_never_ready_are_named);
    tcase_add_test(t, ranks_in_different_steps_get_an_error);
    tcase_add_test(t, the_survivors_of_a_death_agree_on_the_last_step_that_counts);
    suite_add_tcase(s, t);
    t = tcase_create("join");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(
        t, ranks_without_batches_take_part_until_all_are_done_and_get_the_last_state, 0, 4);
    tcase_add_test(t, joining_in_the_middle_of_a_step_fails_it_on_all_ranks);
    suite_add_tcase(s, t);
    return s;
}
