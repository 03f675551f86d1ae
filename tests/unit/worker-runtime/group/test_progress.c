#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/core/group.h"
#include "worker-runtime/group/progress_line.h"

#include <math.h>

static const char *line_of(struct progress_line l)
{
    static char text[PROGRESS_LINE_BYTES];
    return progress_line(&l, text);
}

START_TEST(a_line_shows_progress_and_remaining_time)
{
    struct progress_line l = {
        .title = "epoch 3", .what = "loss 0.25", .done = 512, .total = 1024, .passed_ms = 40000};
    ck_assert_str_eq(line_of(l), "epoch 3  512/1024  50 %  12.8/s  40 s left  loss 0.25");
    l.total = 0;
    ck_assert_str_eq(line_of(l), "epoch 3  512  12.8/s  40 s  loss 0.25");
    l.total = 512;
    l.what = "";
    ck_assert_str_eq(line_of(l), "epoch 3  512/512  100 %  12.8/s  40 s");
    l.done = 600; /* more than there should be */
    ck_assert_str_eq(line_of(l), "epoch 3  600/512  100 %  15/s  40 s");
}
END_TEST

START_TEST(a_bar_grows_with_the_progress)
{
    struct progress_line l = {.title = "t", .what = "", .total = 24, .has_bar = true};
    ck_assert_str_eq(line_of(l), "t [>                       ]  0/24  0 %");
    l.done = 12;
    ck_assert_str_eq(line_of(l), "t [============>           ]  12/24  50 %");
    l.done = 24;
    ck_assert_str_eq(line_of(l), "t [========================]  24/24  100 %");
}
END_TEST

START_TEST(long_times_are_shown_in_minutes_and_hours)
{
    struct progress_line l = {.title = "t", .what = "", .done = 1, .total = 11, .passed_ms = 60000};
    ck_assert_str_eq(line_of(l), "t  1/11  9 %  0.0167/s  10 min left");
    l.passed_ms = 3600 * 1000;
    ck_assert_str_eq(line_of(l), "t  1/11  9 %  0.000278/s  10.0 h left");
}
END_TEST

START_TEST(texts_are_cut_and_have_no_control_characters)
{
    char what[1000];
    memset(what, 'x', sizeof what - 1);
    what[sizeof what - 1] = '\0';
    what[0] = '\n';
    what[1] = '\033';
    const char *text =
        line_of((struct progress_line){.title = "a\tb", .what = what, .done = 1, .total = 2});
    ck_assert_uint_eq(strlen(text), PROGRESS_LINE_BYTES - 1);
    ck_assert_int_eq(strncmp(text, "a?b  1/2  50 %  ??xxx", 21), 0);
}
END_TEST

/* What a report of this rank writes to stderr, which is not a terminal. */
static size_t report(int rank, char *text, size_t size)
{
    struct ddp_group g = {.rank = rank, .world_size = 2};
    struct ddp_progress *p;
    char path[] = "/tmp/progress-XXXXXX";
    int file = mkstemp(path), kept = dup(STDERR_FILENO);
    ck_assert_int_ge(file, 0);
    unlink(path);
    dup2(file, STDERR_FILENO);
    ck_assert_int_eq(ddp_progress_create(&g, "steps", 10, &p), 0);
    for (uint64_t done = 1; done <= 10; done++)
        ddp_progress_update(p, done, "loss %d", (int)(100 - done));
    ddp_progress_destroy(p);
    dup2(kept, STDERR_FILENO);
    close(kept);
    ssize_t n = pread(file, text, size - 1, 0);
    close(file);
    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    return (size_t)n;
}

START_TEST(rank_0_reports_lines_to_a_file_and_the_last_state_at_the_end)
{
    char text[4096];
    report(0, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "steps  10/10  100 %"));
    ck_assert_ptr_nonnull(strstr(text, "loss 90\n"));
    ck_assert_ptr_null(strchr(text, '\r'));
    ck_assert_uint_eq(report(1, text, sizeof text), 0); /* other ranks print nothing */
}
END_TEST

START_TEST(missing_arguments_are_refused)
{
    struct ddp_group g = {.world_size = 1};
    struct ddp_progress *p;
    ck_assert_int_eq(ddp_progress_create(NULL, "t", 1, &p), DDP_EINVAL);
    ck_assert_int_eq(ddp_progress_create(&g, NULL, 1, &p), DDP_EINVAL);
    ck_assert_int_eq(ddp_progress_create(&g, "t", 1, NULL), DDP_EINVAL);
    ddp_progress_destroy(NULL);
}
END_TEST

static int compare_seeds(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

START_TEST(seeds_differ_between_ranks_and_bases_and_stay_the_same)
{
    enum { N_RANKS = 64, N_BASES = 64 };
    static uint64_t seed[N_RANKS * N_BASES];
    for (int rank = 0; rank < N_RANKS; rank++)
        for (uint64_t base = 0; base < N_BASES; base++) {
            const struct ddp_group g = {.rank = rank, .world_size = N_RANKS};
            seed[rank * N_BASES + (int)base] = ddp_seed(&g, base);
            ck_assert_uint_eq(ddp_seed(&g, base), seed[rank * N_BASES + (int)base]);
        }
    qsort(seed, N_RANKS * N_BASES, sizeof(seed[0]), compare_seeds);
    for (int i = 1; i < N_RANKS * N_BASES; i++)
        ck_assert_uint_ne(seed[i], seed[i - 1]);
}
END_TEST

static int mean_of_ranks(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 30000);
    double values[] = {rank, 10.0 * rank};
    RANK_CHECK(rank, ddp_mean(g, values, 2) == 0, "the mean");
    RANK_CHECK(rank, fabs(values[0] - 1) < 1e-12 && fabs(values[1] - 10) < 1e-12, "%g", values[0]);
    RANK_CHECK(rank, ddp_mean(g, NULL, 0) == 0, "of nothing");
    ddp_finalize(g);
    return 0;
}

START_TEST(the_mean_is_over_all_ranks)
{
    struct ranks r;
    ranks_start(&r, 3, mean_of_ranks, NULL);
    ranks_expect_success(&r);
}
END_TEST

TEST_SUITE(progress)
{
    Suite *s = suite_create("progress");
    TCase *t = tcase_create("progress");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_line_shows_progress_and_remaining_time);
    tcase_add_test(t, a_bar_grows_with_the_progress);
    tcase_add_test(t, long_times_are_shown_in_minutes_and_hours);
    tcase_add_test(t, texts_are_cut_and_have_no_control_characters);
    tcase_add_test(t, rank_0_reports_lines_to_a_file_and_the_last_state_at_the_end);
    tcase_add_test(t, missing_arguments_are_refused);
    tcase_add_test(t, seeds_differ_between_ranks_and_bases_and_stay_the_same);
    tcase_add_test(t, the_mean_is_over_all_ranks);
    suite_add_tcase(s, t);
    return s;
}
