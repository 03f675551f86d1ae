#include "segments/call_kind.h"
#include "segments/rank_status.h"
#include "tests/support/suite.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct rank_status_page page;

static void set_up(void)
{
    memset(&page, 0, sizeof page);
}

static struct progress read_page(void)
{
    struct progress p;
    rank_status_read(&page, &p);
    return p;
}

START_TEST(a_new_page_is_empty)
{
    struct progress p = read_page();
    ck_assert_uint_eq(p.steps, 0);
    ck_assert_uint_eq(p.step_ns, 0);
    ck_assert_uint_eq(p.first_ns, 0);
    ck_assert_uint_eq(p.last_ns, 0);
    ck_assert_uint_eq(p.n_calls, 0);
    ck_assert(!p.waits);
}
END_TEST

START_TEST(steps_are_counted_and_timed)
{
    rank_status_begin(&page, 400);
    rank_status_step(&page, 5000, 100);
    ck_assert_uint_eq(read_page().last_ns, 0); /* it is not known when the first one began */
    rank_status_step(&page, 5800, 300);
    struct progress p = read_page();
    ck_assert_uint_eq(p.steps, 2);
    ck_assert_uint_eq(p.steps_before, 400);
    ck_assert_uint_eq(p.step_ns, 5800);
    ck_assert_uint_eq(p.first_ns, 5000);
    ck_assert_uint_eq(p.last_ns, 800);
    ck_assert_uint_eq(p.mean_ns, 800);
    ck_assert_uint_eq(p.inside_ns, 300);
}
END_TEST

START_TEST(the_mean_follows_slowly_in_both_directions)
{
    rank_status_step(&page, 1000, 0);
    rank_status_step(&page, 1800, 400);
    rank_status_step(&page, 3400, 1200);
    ck_assert_uint_eq(read_page().last_ns, 1600);
    ck_assert_uint_eq(read_page().mean_ns, 900);
    ck_assert_uint_eq(read_page().inside_ns, 500);
    rank_status_step(&page, 3500, 100);
    ck_assert_uint_eq(read_page().mean_ns, 800);
    for (uint64_t i = 1; i <= 100; i++)
        rank_status_step(&page, 3500 + 100 * i, 10);
    ck_assert_uint_lt(read_page().mean_ns, 110);
}
END_TEST

static const struct rank_status_call reduction = {.number = 812,
                                                  .group = 0xabcd,
                                                  .kind = CALL_ALL_REDUCE,
                                                  .dtype = 9,
                                                  .bytes = 4 << 20,
                                                  .state = RANK_STATUS_WAITS};

START_TEST(the_page_shows_the_last_call_inside_and_outside_of_it)
{
    struct rank_status_place *place = rank_status_open(&page);
    rank_status_enter(place, &reduction);
    struct progress p = read_page();
    ck_assert_uint_eq(p.n_calls, 1);
    ck_assert_uint_eq(p.call[0].number, 812);
    ck_assert_uint_eq(p.call[0].group, 0xabcd);
    ck_assert_uint_eq(p.call[0].kind, CALL_ALL_REDUCE);
    ck_assert_uint_eq(p.call[0].dtype, 9);
    ck_assert_uint_eq(p.call[0].bytes, 4 << 20);
    ck_assert_int_eq(p.call[0].state, RANK_STATUS_WAITS);
    ck_assert(p.waits);
    rank_status_turn(place, RANK_STATUS_OUTSIDE);
    p = read_page();
    ck_assert_uint_eq(p.call[0].number, 812);
    ck_assert_uint_eq(p.call[0].bytes, 4 << 20);
    ck_assert_int_eq(p.call[0].state, RANK_STATUS_OUTSIDE);
    ck_assert(!p.waits);
}
END_TEST

START_TEST(the_page_shows_the_largest_numbers)
{
    const struct rank_status_call large = {.number = UINT32_MAX,
                                           .group = UINT16_MAX,
                                           .kind = 63,
                                           .dtype = 31,
                                           .bytes = RANK_STATUS_MOST,
                                           .state = RANK_STATUS_BEGUN};
    rank_status_enter(rank_status_open(&page), &large);
    const struct rank_status_call is = read_page().call[0];
    ck_assert_uint_eq(is.number, large.number);
    ck_assert_uint_eq(is.group, large.group);
    ck_assert_uint_eq(is.kind, large.kind);
    ck_assert_uint_eq(is.dtype, large.dtype);
    ck_assert_uint_eq(is.bytes, large.bytes);
    ck_assert_int_eq(is.state, large.state);
}
END_TEST

/* Readers have words for each state there is; the page is the rank's to write. */
START_TEST(a_call_in_an_invalid_state_is_not_shown)
{
    struct rank_status_place *places[2] = {rank_status_open(&page), rank_status_open(&page)};
    for (int i = 0; i < 2; i++)
        rank_status_enter(places[i], &reduction);
    atomic_fetch_or(&places[0]->word, RANK_STATUS_STATE_MASK);
    const struct progress p = read_page();
    ck_assert_uint_eq(p.n_calls, 1);
    ck_assert_int_eq(p.call[0].state, reduction.state);
}
END_TEST

/* Readers add two of these numbers, and write them as signed ones. */
START_TEST(numbers_that_no_rank_reaches_are_limited)
{
    memset(&page, 0xfd, sizeof page); /* 1 of 4 states */
    const struct progress p = read_page();
    ck_assert_uint_eq(p.steps, RANK_STATUS_MOST);
    ck_assert_uint_eq(p.steps_before, RANK_STATUS_MOST);
    ck_assert_uint_le(p.steps + p.steps_before, INT64_MAX);
    ck_assert_uint_eq(p.n_calls, RANK_STATUS_GROUPS);
    for (unsigned i = 0; i < p.n_calls; i++)
        ck_assert_uint_eq(p.call[i].bytes, RANK_STATUS_MOST);
}
END_TEST

START_TEST(each_group_has_a_place_until_all_are_taken)
{
    struct rank_status_place *places[RANK_STATUS_GROUPS];
    for (unsigned i = 0; i < RANK_STATUS_GROUPS; i++) {
        struct rank_status_call call = reduction;
        call.group = (uint16_t)i;
        places[i] = rank_status_open(&page);
        ck_assert_ptr_nonnull(places[i]);
        rank_status_enter(places[i], &call);
    }
    ck_assert_ptr_null(rank_status_open(&page));
    struct progress p = read_page();
    ck_assert_uint_eq(p.n_calls, RANK_STATUS_GROUPS);
    for (unsigned i = 0; i < RANK_STATUS_GROUPS; i++)
        ck_assert_uint_eq(p.call[i].group, i);
    rank_status_close(&page, places[3]);
    rank_status_close(&page, NULL);
    ck_assert_uint_eq(read_page().n_calls, RANK_STATUS_GROUPS - 1);
    ck_assert_ptr_eq(rank_status_open(&page), places[3]);
}
END_TEST

START_TEST(a_wait_without_a_place_is_shown)
{
    page.n_unplaced = 1;
    struct progress p = read_page();
    ck_assert(p.waits);
    ck_assert_uint_eq(p.n_calls, 0);
}
END_TEST

START_TEST(the_digest_changes_with_all_that_is_progress)
{
    struct rank_status_place *place = rank_status_open(&page);
    uint64_t seen[5];
    seen[0] = rank_status_digest(&page);
    ck_assert_uint_eq(rank_status_digest(&page), seen[0]);
    rank_status_enter(place, &reduction);
    seen[1] = rank_status_digest(&page);
    rank_status_turn(place, RANK_STATUS_OUTSIDE);
    seen[2] = rank_status_digest(&page);
    rank_status_step(&page, 1, 0);
    seen[3] = rank_status_digest(&page);
    page.n_unplaced = 1;
    seen[4] = rank_status_digest(&page);
    for (unsigned i = 0; i < 5; i++)
        for (unsigned k = 0; k < i; k++)
            ck_assert_msg(seen[i] != seen[k], "%u and %u", k, i);
}
END_TEST

enum { N_CALLS = 300000 };

/* Calls whose bytes are known by their number. */
static void *make_calls(void *arg)
{
    struct rank_status_place *place = arg;
    for (uint32_t i = 1; i <= N_CALLS; i++) {
        struct rank_status_call call = reduction;
        call.number = i;
        call.bytes = (uint64_t)i * 8;
        rank_status_enter(place, &call);
        rank_status_turn(place, RANK_STATUS_OUTSIDE);
    }
    return NULL;
}

START_TEST(a_call_is_never_shown_with_the_bytes_of_another)
{
    struct rank_status_place *place = rank_status_open(&page);
    struct rank_status_call last = {0};
    pthread_t writer;
    ck_assert_int_eq(pthread_create(&writer, NULL, make_calls, place), 0);
    while (last.number < N_CALLS) { /* which the writer reaches by itself */
        struct progress p = read_page();
        if (p.n_calls == 0)
            continue;
        ck_assert_uint_ge(p.call[0].number, last.number);
        if (p.call[0].bytes != 0) /* else it was faster than 16 looks */
            ck_assert_uint_eq(p.call[0].bytes, (uint64_t)p.call[0].number * 8);
        last = p.call[0];
    }
    pthread_join(writer, NULL);
    ck_assert_uint_eq(read_page().call[0].bytes, (uint64_t)N_CALLS * 8);
}
END_TEST

START_TEST(calls_and_types_have_names_and_unknown_ones_too)
{
    ck_assert_str_eq(call_kind_name(CALL_ALL_REDUCE), "all_reduce");
    ck_assert_str_eq(call_dtype_name(0), "float32");
    ck_assert_str_eq(call_kind_name(0), "?");
    ck_assert_str_eq(call_kind_name(CALL_N_KINDS), "?");
    ck_assert_str_eq(call_dtype_name(255), "?");
    for (unsigned kind = CALL_BARRIER; kind < CALL_N_KINDS; kind++)
        ck_assert_str_ne(call_kind_name(kind), "?");
}
END_TEST

TEST_SUITE(rank_status)
{
    Suite *suite = suite_create("rank_status");
    TCase *tc = tcase_create("page");
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, a_new_page_is_empty);
    tcase_add_test(tc, steps_are_counted_and_timed);
    tcase_add_test(tc, the_mean_follows_slowly_in_both_directions);
    tcase_add_test(tc, the_page_shows_the_last_call_inside_and_outside_of_it);
    tcase_add_test(tc, the_page_shows_the_largest_numbers);
    tcase_add_test(tc, a_call_in_an_invalid_state_is_not_shown);
    tcase_add_test(tc, numbers_that_no_rank_reaches_are_limited);
    tcase_add_test(tc, each_group_has_a_place_until_all_are_taken);
    tcase_add_test(tc, a_wait_without_a_place_is_shown);
    tcase_add_test(tc, the_digest_changes_with_all_that_is_progress);
    tcase_add_test(tc, a_call_is_never_shown_with_the_bytes_of_another);
    tcase_add_test(tc, calls_and_types_have_names_and_unknown_ones_too);
    suite_add_tcase(suite, tc);
    return suite;
}
