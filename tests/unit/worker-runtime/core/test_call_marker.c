/* What ranks write into their progress pages, as another process reads it. */
#include "segments/control.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/core/group.h"
#include "worker-runtime/shm/transport_shm.h"

static struct progress page_of(const struct ddp_group *g)
{
    struct progress p;
    rank_status_read(&g->world->line->progress, &p);
    return p;
}

static void barrier(int rank, struct ddp_group *g)
{
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "barrier");
}

/* Rank 1 looks at rank 0's page until that waits; rank 0 waits until rank 1 comes. */
static int run_late(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    float data[100] = {0};
    barrier(rank, g);
    if (rank == 1) {
        const struct control_line *other = g->world->line - 1;
        struct progress p;
        const uint64_t deadline_ms = co_deadline_ms(60000);
        do {
            rank_status_read(&other->progress, &p);
            RANK_CHECK(rank, co_left_ms(deadline_ms) > 0, "rank 0 is not seen to wait");
        } while (p.n_calls == 0 || p.call[0].number < 2);
        RANK_CHECK(rank, p.waits && p.call[0].state == RANK_STATUS_WAITS, "it waits");
        RANK_CHECK(rank, p.call[0].kind == CALL_ALL_REDUCE && p.call[0].dtype == DDP_FLOAT32,
                   "in all_reduce");
        RANK_CHECK(rank, p.call[0].number == 2 && p.call[0].bytes == 400, "call 2");
        RANK_CHECK(rank, page_of(g).call[0].number == 1 && !page_of(g).waits, "this one doesn't");
    }
    RANK_CHECK(rank, ddp_all_reduce(g, data, data, 100, DDP_FLOAT32, DDP_SUM, NULL) == DDP_OK,
               "sum");
    const struct progress p = page_of(g);
    RANK_CHECK(rank, p.n_calls == 1 && p.call[0].state == RANK_STATUS_OUTSIDE && !p.waits, "out");
    barrier(rank, g); /* the pages go with the ranks */
    ddp_finalize(g);
    return 0;
}

START_TEST(a_waiting_rank_shows_its_call)
{
    struct ranks r;
    ranks_start(&r, 2, run_late, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_async(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_request *request;
    int32_t data = 1;
    RANK_CHECK(rank,
               ddp_iall_reduce(g, &data, &data, 1, DDP_INT32, DDP_SUM, NULL, &request) == DDP_OK,
               "begin");
    struct progress p = page_of(g);
    RANK_CHECK(rank, p.call[0].number == 1 && !p.waits, "begun, perhaps done, but not waited for");
    RANK_CHECK(rank, ddp_wait(request) == DDP_OK, "wait");
    RANK_CHECK(rank, page_of(g).call[0].state == RANK_STATUS_OUTSIDE, "out");
    barrier(rank, g);
    RANK_CHECK(rank, page_of(g).call[0].number == 2, "the next one");
    ddp_finalize(g);
    return 0;
}

START_TEST(an_asynchronous_call_is_begun_before_its_wait)
{
    struct ranks r;
    ranks_start(&r, 2, run_async, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* Marks and numbers must be the same on all ranks of a group: they show which rank waits for
 * which. */
static int run_groups(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000), *half, *again;
    int32_t said[2], all[8];
    RANK_CHECK(rank, ddp_group_split(g, rank % 2, 0, &half) == DDP_OK, "split");
    RANK_CHECK(rank, ddp_group_split(g, 0, 0, &again) == DDP_OK, "split");
    barrier(rank, half);
    struct progress p = page_of(g);
    RANK_CHECK(rank, p.n_calls == 2 && p.call[0].kind == CALL_GROUP_SPLIT, "the world's first");
    RANK_CHECK(rank, p.call[1].group == half->mark && p.call[1].number == 1, "then the half");
    said[0] = half->mark;
    said[1] = again->mark;
    RANK_CHECK(rank, ddp_all_gather(g, said, all, 2, DDP_INT32, NULL) == DDP_OK, "gather");
    for (int r = 0; r < 4; r++) {
        RANK_CHECK(rank, (all[2 * r] == half->mark) == (r % 2 == rank % 2), "marks of halves");
        RANK_CHECK(rank, all[2 * r + 1] == again->mark && again->mark != half->mark, "of all");
    }
    RANK_CHECK(rank, half->mark != 0 && again->mark != 0, "the world's is 0");
    ddp_group_destroy(half);
    p = page_of(g);
    RANK_CHECK(rank, p.n_calls == 1, "a group that is gone is not told"); /* `again` made no call */
    ddp_finalize(g);
    return 0;
}

START_TEST(groups_have_the_same_marks_on_all_ranks)
{
    struct ranks r;
    ranks_start(&r, 4, run_groups, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* More groups than the page has places: the groups without a place also work, and show when they
 * wait. */
static int run_many(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000), *sub[RANK_STATUS_GROUPS + 2];
    for (int i = 0; i < RANK_STATUS_GROUPS + 2; i++)
        RANK_CHECK(rank, ddp_group_split(g, 0, 0, &sub[i]) == DDP_OK, "split");
    struct ddp_group *last = sub[RANK_STATUS_GROUPS + 1];
    RANK_CHECK(rank, last->place == NULL, "it has no place");
    barrier(rank, g);
    if (rank == 1) {
        const uint64_t deadline_ms = co_deadline_ms(60000);
        while (atomic_load(&(g->world->line - 1)->progress.n_unplaced) == 0)
            RANK_CHECK(rank, co_left_ms(deadline_ms) > 0, "rank 0 is not seen to wait");
    }
    barrier(rank, last);
    RANK_CHECK(rank, atomic_load(&g->world->line->progress.n_unplaced) == 0 && !page_of(g).waits,
               "out");
    int32_t data = rank;
    struct ddp_request *request;
    RANK_CHECK(rank,
               ddp_iall_reduce(last, &data, &data, 1, DDP_INT32, DDP_SUM, NULL, &request) == DDP_OK,
               "begin");
    RANK_CHECK(rank, ddp_wait(request) == DDP_OK && data == 1, "asynchronous");
    RANK_CHECK(rank, atomic_load(&g->world->line->progress.n_unplaced) == 0, "out again");
    ddp_finalize(g);
    return 0;
}

START_TEST(groups_without_a_place_show_that_they_wait)
{
    struct ranks r;
    ranks_start(&r, 2, run_many, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_message(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    int32_t data = 7;
    barrier(rank, g);
    if (rank == 1) {
        const uint64_t deadline_ms = co_deadline_ms(60000);
        while (atomic_load(&(g->world->line - 1)->progress.n_unplaced) == 0)
            RANK_CHECK(rank, co_left_ms(deadline_ms) > 0, "rank 0 is not seen to wait");
        RANK_CHECK(rank, ddp_send(g, &data, 1, DDP_INT32, 0, 0, NULL) == DDP_OK, "send");
    } else {
        RANK_CHECK(rank, ddp_recv(g, &data, 1, DDP_INT32, 1, 0, NULL) == DDP_OK, "receive");
    }
    RANK_CHECK(rank, atomic_load(&g->world->line->progress.n_unplaced) == 0, "out");
    barrier(rank, g);
    ddp_finalize(g);
    return 0;
}

START_TEST(a_rank_that_waits_for_a_message_shows_it)
{
    struct ranks r;
    ranks_start(&r, 2, run_message, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* Numbers are those of libddp's own messages, so that a text names the call that ddprun names. */
static int run_numbers(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000), *half;
    char own[64];
    barrier(rank, g);
    RANK_CHECK(rank, ddp_group_split(g, 0, 0, &half) == DDP_OK, "split");
    barrier(rank, g);
    if (rank == 1) {
        RANK_CHECK(rank, ddp_barrier(g) == DDP_EPEER, "rank 0 is gone");
        snprintf(own, sizeof own, "call #%u", page_of(g).call[0].number);
        RANK_CHECK(rank, strstr(ddp_last_error(), own) != NULL, "not %s", own);
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(calls_have_the_numbers_of_the_error_messages)
{
    struct ranks r;
    ranks_start(&r, 2, run_numbers, NULL);
    ranks_expect_success(&r);
}
END_TEST

TEST_SUITE(call_marker)
{
    Suite *suite = suite_create("whereabouts");
    TCase *tc = tcase_create("pages");
    tcase_set_timeout(tc, 130);
    tcase_add_test(tc, a_waiting_rank_shows_its_call);
    tcase_add_test(tc, an_asynchronous_call_is_begun_before_its_wait);
    tcase_add_test(tc, groups_have_the_same_marks_on_all_ranks);
    tcase_add_test(tc, groups_without_a_place_show_that_they_wait);
    tcase_add_test(tc, a_rank_that_waits_for_a_message_shows_it);
    tcase_add_test(tc, calls_have_the_numbers_of_the_error_messages);
    suite_add_tcase(suite, tc);
    return suite;
}
