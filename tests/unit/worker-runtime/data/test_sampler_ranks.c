/* Samplers of real ranks: one permutation for all, taken up again in the middle, verified. */
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/data/randperm.h"
#include "worker-runtime/data/sampler_priv.h"
#include "worker-runtime/data/shared_perm.h"

#include <check.h>
#include <ddp/collective.h>
#include <ddp/sampler.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>

enum { N = 1003, BATCH = 16 };

static struct ddp_sampler *make(struct ddp_group *g, int64_t seed)
{
    struct ddp_sampler *s;
    struct ddp_sampler_opts opts = {.n = N, .seed = seed, .shuffle = true};
    RANK_CHECK(ddp_rank(g), ddp_sampler_create(g, &opts, &s) == 0, "sampler");
    return s;
}

/* Take the rest of the epoch and compare it with the definition. */
static void expect_rest(struct ddp_sampler *s, int rank, int n_ranks, int64_t seed)
{
    uint32_t perm[N];
    const int64_t *index;
    int64_t place = ddp_sampler_consumed(s) + rank;
    randperm_fill(perm, N, (uint64_t)(seed + ddp_sampler_epoch(s)));
    for (size_t n; (n = ddp_sampler_next(s, BATCH, &index)) > 0;)
        for (size_t k = 0; k < n; k++, place += n_ranks)
            RANK_CHECK(rank, index[k] == perm[place % N], "place %lld", (long long)place);
    RANK_CHECK(rank, place - rank >= N, "%lld places taken", (long long)(place - rank));
}

static int share(int rank, void *arg)
{
    const int n_ranks = *(int *)arg;
    struct ddp_group *g = rank_init(rank, 20000);
    struct ddp_sampler *s = make(g, 7);
    while (ddp_sampler_next_epoch(s, 5)) {
        struct ddp_sampler_report report;
        RANK_CHECK(rank, s->perm != s->own, "epoch %lld is its own", (long long)s->epoch);
        expect_rest(s, rank, n_ranks, 7);
        RANK_CHECK(rank, ddp_sampler_verify(s, &report) == 0, "verify");
        RANK_CHECK(rank, report.is_complete && report.n_distinct == N, "%lld distinct",
                   (long long)report.n_distinct);
        RANK_CHECK(rank, report.n_taken == (N + n_ranks - 1) / n_ranks * n_ranks, "%lld taken",
                   (long long)report.n_taken);
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(the_ranks_of_a_node_share_one_permutation)
{
    int n_ranks = _i;
    struct ranks r;
    ranks_start(&r, n_ranks, share, &n_ranks);
    ranks_expect_success(&r);
}
END_TEST

/* Rank 0 runs ahead of all others, by more epochs than the shared memory has space for. */
static int run_ahead(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 20000);
    struct ddp_sampler *s = make(g, 1);
    const int64_t last = rank == 0 ? 5 : rank == 1 ? 1 : 0;
    for (int64_t epoch = 0; epoch <= last; epoch++) {
        ddp_sampler_set_epoch(s, epoch);
        RANK_CHECK(rank, ddp_barrier(g) == 0, "barrier"); /* all are in their epochs */
        RANK_CHECK(rank, (s->perm == s->own) == (epoch >= 2), "epoch %lld", (long long)epoch);
        expect_rest(s, rank, 3, 1);
    }
    for (int64_t epoch = last + 1; epoch <= 5; epoch++)
        RANK_CHECK(rank, ddp_barrier(g) == 0, "barrier");
    if (rank != 0)
        ddp_sampler_set_epoch(s, 6);
    RANK_CHECK(rank, ddp_barrier(g) == 0, "barrier"); /* the others have left their epochs */
    if (rank == 0)
        ddp_sampler_set_epoch(s, 6);
    RANK_CHECK(rank, s->perm != s->own, "all are together again");
    expect_rest(s, rank, 3, 1);
    ddp_finalize(g);
    return 0;
}

START_TEST(ranks_in_three_epochs_at_once_draw_the_same_indices)
{
    struct ranks r;
    ranks_start(&r, 3, run_ahead, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* Rank 1 sees no processes: it cannot open what rank 0 has made. */
static int see_nobody(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 20000);
    int32_t can_hide = rank != 1 || (unshare(CLONE_NEWNS) == 0 &&
                                     mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                                     mount("tmpfs", "/proc", "tmpfs", 0, NULL) == 0);
    RANK_CHECK(rank, ddp_all_reduce(g, &can_hide, &can_hide, 1, DDP_INT32, DDP_MIN, NULL) == 0,
               "hide");
    if (can_hide) {
        struct ddp_sampler *s = make(g, 7);
        RANK_CHECK(rank, s->shared == NULL, "nobody shares, so that all are alike");
        ddp_sampler_set_epoch(s, 3);
        expect_rest(s, rank, 3, 7);
    } else if (rank == 0) {
        printf("not looked at: no mount namespace can be made here\n");
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(ranks_that_cannot_share_memory_draw_the_same_indices)
{
    struct ranks r;
    ranks_start(&r, 3, see_nobody, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int other_seed(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 20000);
    struct ddp_sampler *s = NULL;
    struct ddp_sampler_opts opts = {.n = N, .seed = rank == 2 ? 8 : 7, .shuffle = true};
    RANK_CHECK(rank, ddp_sampler_create(g, &opts, &s) == DDP_EMISMATCH, "seeds differ");
    RANK_CHECK(rank,
               strcmp(ddp_last_error(),
                      "ddp_sampler_create: the ranks' options differ: rank 0 has n 1003, seed 7, "
                      "shuffle, rank 2 has n 1003, seed 8, shuffle; pass the same on all ranks") ==
                   0,
               "text");
    opts.n = rank == 1 ? -1 : N;
    RANK_CHECK(rank, ddp_sampler_create(g, &opts, &s) == DDP_EINVAL, "rank 1 has a bad size");
    RANK_CHECK(rank,
               strncmp(ddp_last_error(), "rank 1: ddp_sampler_create: a sampler takes", 43) == 0,
               "text");
    RANK_CHECK(rank, s == NULL && ddp_barrier(g) == 0, "the group is whole");
    ddp_finalize(g);
    return 0;
}

START_TEST(all_ranks_report_different_samplers)
{
    struct ranks r;
    ranks_start(&r, 3, other_seed, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int verify_bad(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 20000);
    struct ddp_sampler *s = make(g, 7);
    struct ddp_sampler_report report;
    const int64_t *index;
    ddp_sampler_set_epoch(s, 0);
    ddp_sampler_next(s, rank == 1 ? 5 : 4, &index);
    RANK_CHECK(rank, ddp_sampler_verify(s, &report) == DDP_EMISMATCH, "not as many");
    RANK_CHECK(rank, strstr(ddp_last_error(), "one has taken 4 samples, another 5") != NULL,
               "text");

    if (rank == 1) /* as if its plan were another's */
        s->plan.rank = 0;
    ddp_sampler_set_epoch(s, 0);
    ddp_sampler_next(s, 4, &index);
    RANK_CHECK(rank, ddp_sampler_verify(s, &report) == DDP_EMISMATCH, "the same samples twice");
    RANK_CHECK(rank, strstr(ddp_last_error(), "4 different samples in 8 draws, not 8") != NULL,
               "text");

    if (rank == 1)
        s->digest++;
    RANK_CHECK(rank, ddp_sampler_verify(s, &report) == DDP_EMISMATCH, "the order has changed");
    RANK_CHECK(rank, strncmp(ddp_last_error(), "rank 1: the samples that were taken", 35) == 0,
               "text");
    ddp_finalize(g);
    return 0;
}

START_TEST(repeated_and_missing_samples_are_found)
{
    struct ranks r;
    ranks_start(&r, 2, verify_bad, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* A rank that is killed while it draws: the next one does it over. */
START_TEST(a_rank_that_dies_while_it_draws_blocks_no_other)
{
    struct shared_perm_shape shape = {.n = 4000000, .n_local = 2};
    const size_t bytes = shared_perm_bytes(&shape);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    shared_perm_init(memory, &shape);
    volatile uint32_t *second = (uint32_t *)((char *)memory + 4096) + 1;
    pid_t pid = fork();
    if (pid == 0) {
        for (uint64_t seed = 1;; seed++)
            shared_perm_take(memory, seed, 1, 20000);
    }
    uint64_t deadline = co_deadline_ms(60000);
    while (*second == 0 && co_left_ms(deadline) > 0)
        ;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    const uint32_t *perm = shared_perm_take(memory, 5, 0, 20000);
    uint32_t *expected = malloc(shape.n * sizeof *expected);
    randperm_fill(expected, shape.n, 5);
    ck_assert_ptr_nonnull(perm);
    ck_assert_mem_eq(perm, expected, shape.n * sizeof *perm);
    free(expected);
    munmap(memory, bytes);
}
END_TEST

/* --- in the middle of an epoch ---------------------------------------------------------------- */

/* What `n_ranks` take together from `from` on, until so many samples are consumed. */
static int64_t take_until(int n_ranks, int64_t from, int64_t until, unsigned *seen, bool drop_last)
{
    int64_t consumed = 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        struct world w = {.group = {.world = &w, .world_size = n_ranks, .rank = rank}};
        struct ddp_sampler *s;
        const int64_t *index;
        ck_assert_int_eq(
            ddp_sampler_create(&w.group,
                               &(struct ddp_sampler_opts){
                                   .n = N, .seed = 3, .shuffle = true, .drop_last = drop_last},
                               &s),
            0);
        ck_assert_int_eq(ddp_sampler_resume(s, 2, from), 0);
        while (ddp_sampler_consumed(s) < until && ddp_sampler_next(s, 1, &index) == 1)
            seen[*index]++;
        consumed = ddp_sampler_consumed(s);
        ddp_sampler_destroy(s);
    }
    return consumed;
}

START_TEST(an_epoch_continues_with_other_ranks_at_its_position)
{
    unsigned seen[N] = {0}, n_twice = 0;
    int64_t at = take_until(2, 0, 300, seen, false);
    ck_assert_int_eq(at, 300);
    at = take_until(3, at, 700, seen, false);
    ck_assert_int_eq(at, 702); /* ranks take turns of three */
    at = take_until(5, at, N, seen, false);
    ck_assert_int_eq(at, N);
    for (int i = 0; i < N; i++) {
        ck_assert(seen[i] == 1 || seen[i] == 2);
        n_twice += seen[i] == 2;
    }
    ck_assert_uint_eq(n_twice, 4); /* 301 left for 5 ranks: 61 turns are 305 */
}
END_TEST

START_TEST(with_drop_last_no_sample_is_repeated)
{
    unsigned seen[N] = {0}, n_left = 0;
    int64_t at = take_until(4, 0, 500, seen, true);
    at = take_until(3, at, N, seen, true);
    for (int i = 0; i < N; i++) {
        ck_assert(seen[i] <= 1);
        n_left += seen[i] == 0;
    }
    ck_assert_int_eq(at, N - (N - 500) % 3);
    ck_assert_uint_eq(n_left, (N - 500) % 3);
}
END_TEST

START_TEST(a_loop_over_epochs_resumes_in_the_middle)
{
    struct world w = {.group = {.world = &w, .world_size = 2}};
    struct ddp_sampler *s;
    const int64_t *index;
    ck_assert_int_eq(ddp_sampler_create(&w.group, &(struct ddp_sampler_opts){.n = 10}, &s), 0);
    ck_assert_int_eq(ddp_sampler_resume(s, 1, 4), 0);
    for (int64_t epoch = 1; epoch < 3; epoch++) {
        ck_assert(ddp_sampler_next_epoch(s, 3));
        ck_assert_int_eq(ddp_sampler_epoch(s), epoch);
        ck_assert_uint_eq(ddp_sampler_next(s, 9, &index), epoch == 1 ? 3 : 5);
        ck_assert_int_eq(index[0], epoch == 1 ? 4 : 0);
    }
    ck_assert(!ddp_sampler_next_epoch(s, 3));
    /* a rank that takes indices first has entered the epoch */
    ck_assert_int_eq(ddp_sampler_resume(s, 1, 4), 0);
    ck_assert_uint_eq(ddp_sampler_next(s, 1, &index), 1);
    ck_assert(ddp_sampler_next_epoch(s, 3));
    ck_assert_int_eq(ddp_sampler_epoch(s), 2);
    ck_assert_int_eq(ddp_sampler_resume(s, 1, 4), 0);
    ddp_sampler_set_epoch(s, 0);
    ck_assert(ddp_sampler_next_epoch(s, 3));
    ck_assert_int_eq(ddp_sampler_epoch(s), 1);
    ck_assert_int_eq(ddp_sampler_resume(s, 3, 0), 0); /* after the last one */
    ck_assert(!ddp_sampler_next_epoch(s, 3));
    ddp_sampler_destroy(s);
}
END_TEST

START_TEST(invalid_positions_are_refused)
{
    struct world w = {.group = {.world = &w, .world_size = 1}};
    struct ddp_sampler *s;
    const int64_t *index;
    ck_assert_int_eq(ddp_sampler_create(&w.group, &(struct ddp_sampler_opts){.n = 5}, &s), 0);
    ck_assert_int_eq(ddp_sampler_resume(s, 0, 6), DDP_EINVAL);
    ck_assert_int_eq(ddp_sampler_resume(s, 0, -1), DDP_EINVAL);
    ck_assert_int_eq(ddp_sampler_resume(s, 0, 5), 0);
    ck_assert_uint_eq(ddp_sampler_next(s, 1, &index), 0); /* the epoch is over */
    ck_assert_int_eq(ddp_sampler_consumed(s), 5);
    ddp_sampler_destroy(s);
}
END_TEST

START_TEST(stretches_are_disjoint_complete_and_even)
{
    for (int n_ranks = 1; n_ranks <= 7; n_ranks++) {
        for (int64_t n = 0; n < 40; n++) {
            int64_t next = 0;
            for (int rank = 0; rank < n_ranks; rank++) {
                struct world w = {.group = {.world = &w, .world_size = n_ranks, .rank = rank}};
                int64_t first, end;
                ddp_shard_range(&w.group, n, &first, &end);
                ck_assert_int_eq(first, next);
                ck_assert(end - first == n / n_ranks || end - first == n / n_ranks + 1);
                next = end;
            }
            ck_assert_int_eq(next, n);
        }
    }
}
END_TEST

TEST_SUITE(sampler_ranks)
{
    Suite *s = suite_create("sampler_ranks");
    TCase *t = tcase_create("ranks");
    tcase_set_timeout(t, 180);
    tcase_add_loop_test(t, the_ranks_of_a_node_share_one_permutation, 2, 4);
    tcase_add_test(t, ranks_in_three_epochs_at_once_draw_the_same_indices);
    tcase_add_test(t, ranks_that_cannot_share_memory_draw_the_same_indices);
    tcase_add_test(t, all_ranks_report_different_samplers);
    tcase_add_test(t, repeated_and_missing_samples_are_found);
    tcase_add_test(t, a_rank_that_dies_while_it_draws_blocks_no_other);
    suite_add_tcase(s, t);
    t = tcase_create("in the middle");
    tcase_add_test(t, an_epoch_continues_with_other_ranks_at_its_position);
    tcase_add_test(t, with_drop_last_no_sample_is_repeated);
    tcase_add_test(t, a_loop_over_epochs_resumes_in_the_middle);
    tcase_add_test(t, invalid_positions_are_refused);
    tcase_add_test(t, stretches_are_disjoint_complete_and_even);
    suite_add_tcase(s, t);
    return s;
}
