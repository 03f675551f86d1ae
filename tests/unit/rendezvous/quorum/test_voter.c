/* What a voter stores and promises. */
#include "rendezvous/quorum/voter.h"

#include "tests/support/suite.h"

#include <check.h>

static const struct quorum_limits limits = {.lease_ms = 3000, .margin_ms = 500, .claim_ms = 500};
static struct quorum_voter v;
static struct quorum_vote vote;
static uint64_t now_ms;

static const struct quorum_record first = {.term = {1, 1},
                                           .settled = true,
                                           .voters = {3, {1, 2, 3}},
                                           .before = {3, {1, 2, 3}},
                                           .value = 7};

static void set_up(void)
{
    now_ms = 1000;
    quorum_voter_init(&v, &limits, 2, &first);
}

static void ask(struct quorum_ask a)
{
    quorum_voter_ask(&v, &a, now_ms, &vote);
}

static void claim(uint64_t number, uint64_t owner)
{
    ask((struct quorum_ask){.type = QUORUM_CLAIM, .term = {number, owner}});
}

static void write(uint64_t number, uint64_t owner, uint64_t index)
{
    struct quorum_ask a = {.type = QUORUM_WRITE, .term = {number, owner}, .record = first};
    a.record.term = a.term;
    a.record.index = index;
    a.record.settled = false;
    a.record.value = 100 * number + index;
    ask(a);
}

START_TEST(a_free_voter_promises_and_reports_its_record)
{
    claim(2, 3);
    ck_assert(vote.yes);
    ck_assert_uint_eq(vote.record.value, 7);
    ck_assert_uint_eq(vote.promised.number, 2);
}
END_TEST

START_TEST(a_refused_claim_leaves_no_trace)
{
    write(2, 1, 0);
    claim(9, 3);
    ck_assert(!vote.yes);
    ck_assert_uint_eq(vote.left_ms, 3500);
    ck_assert_uint_eq(vote.promised.number, 2);
    write(2, 1, 1);
    ck_assert(vote.yes);
}
END_TEST

START_TEST(a_silent_host_ends_the_longer_stay_but_not_the_lease)
{
    struct quorum_limits longer = limits;
    longer.stay_ms = 1000;
    quorum_voter_init(&v, &longer, 2, &first);
    write(2, 1, 0);
    now_ms += 3499;
    ck_assert_uint_eq(quorum_voter_free_silent(&v, now_ms), now_ms + 1);
    claim(3, 3);
    ck_assert(!vote.yes);
    ck_assert_uint_eq(vote.left_ms, 1001);
    now_ms += 1;
    ck_assert_uint_eq(quorum_voter_free_silent(&v, now_ms), 0);
    claim(3, 3);
    ck_assert(vote.yes);
}
END_TEST

START_TEST(the_promise_is_over_after_the_lease_and_the_margin)
{
    write(2, 1, 0);
    now_ms += 3499;
    claim(3, 3);
    ck_assert(!vote.yes);
    now_ms += 1;
    claim(3, 3);
    ck_assert(vote.yes);
    write(2, 1, 1);
    ck_assert(!vote.yes);
    ck_assert_uint_eq(vote.record.value, 200);
}
END_TEST

START_TEST(a_candidate_is_obeyed_for_a_short_time)
{
    claim(2, 3);
    claim(2, 3); /* once more */
    ck_assert(vote.yes);
    claim(2, 1);
    ck_assert(!vote.yes);
    now_ms += 500;
    claim(3, 1);
    ck_assert(vote.yes);
}
END_TEST

START_TEST(a_candidate_with_a_higher_term_replaces_another_one_but_no_coordinator)
{
    claim(2, 3);
    claim(3, 1);
    ck_assert(vote.yes);
    write(3, 1, 0);
    claim(4, 1); /* it is in doubt, and its lease may still run */
    ck_assert(vote.yes);
    claim(5, 3);
    ck_assert(!vote.yes);
}
END_TEST

START_TEST(where_one_of_two_may_be_alone_no_candidate_replaces_another_one)
{
    v.limits.alone = true;
    claim(2, 3);
    claim(3, 1);
    ck_assert(!vote.yes);
}
END_TEST

START_TEST(the_coordinator_may_claim_again_at_once)
{
    write(2, 1, 0);
    claim(5, 1);
    ck_assert(vote.yes);
}
END_TEST

START_TEST(a_voter_that_is_freed_still_obeys_no_lower_term)
{
    write(3, 1, 0);
    quorum_voter_free(&v);
    claim(2, 3);
    ck_assert(!vote.yes);
    claim(4, 3);
    ck_assert(vote.yes);
}
END_TEST

START_TEST(an_older_write_of_the_term_changes_nothing)
{
    write(2, 1, 5);
    write(2, 1, 4);
    ck_assert(vote.yes);
    ck_assert_uint_eq(vote.record.value, 205);
}
END_TEST

START_TEST(a_renewal_settles_only_the_record_that_it_names)
{
    write(2, 1, 5);
    ask((struct quorum_ask){.type = QUORUM_KEEP, .term = {2, 1}, .index = 4, .settled = true});
    ck_assert(!vote.yes && !vote.record.settled);
    ask((struct quorum_ask){.type = QUORUM_KEEP, .term = {2, 1}, .index = 5, .settled = true});
    ck_assert(vote.yes && vote.record.settled);
    now_ms += 3499;
    claim(3, 3);
    ck_assert(!vote.yes);
}
END_TEST

START_TEST(a_voter_without_a_record_promises_and_stores)
{
    quorum_voter_init(&v, &limits, 4, NULL);
    claim(2, 3);
    ck_assert(vote.yes);
    ck_assert_uint_eq(vote.record.voters.n, 0);
    write(2, 3, 0);
    ck_assert(vote.yes);
    ck_assert_uint_eq(v.record.value, 200);
}
END_TEST

START_TEST(a_reserved_voter_obeys_no_other_process_at_any_time)
{
    write(2, 1, 0);
    quorum_voter_reserve(&v, true);
    now_ms += 1000000;
    claim(9, 3);
    ck_assert(!vote.yes);
    ck_assert_uint_eq(vote.left_ms, 0);
    write(9, 3, 0);
    ck_assert(!vote.yes);
    claim(10, 1);
    ck_assert(vote.yes);
    quorum_voter_reserve(&v, false);
    now_ms += 1000;
    claim(11, 3);
    ck_assert(vote.yes);
}
END_TEST

TEST_SUITE(voter)
{
    Suite *suite = suite_create("voter");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, NULL);
    tcase_add_test(all, a_free_voter_promises_and_reports_its_record);
    tcase_add_test(all, a_refused_claim_leaves_no_trace);
    tcase_add_test(all, the_promise_is_over_after_the_lease_and_the_margin);
    tcase_add_test(all, a_silent_host_ends_the_longer_stay_but_not_the_lease);
    tcase_add_test(all, a_candidate_is_obeyed_for_a_short_time);
    tcase_add_test(all, a_candidate_with_a_higher_term_replaces_another_one_but_no_coordinator);
    tcase_add_test(all, where_one_of_two_may_be_alone_no_candidate_replaces_another_one);
    tcase_add_test(all, the_coordinator_may_claim_again_at_once);
    tcase_add_test(all, a_voter_that_is_freed_still_obeys_no_lower_term);
    tcase_add_test(all, an_older_write_of_the_term_changes_nothing);
    tcase_add_test(all, a_renewal_settles_only_the_record_that_it_names);
    tcase_add_test(all, a_voter_without_a_record_promises_and_stores);
    tcase_add_test(all, a_reserved_voter_obeys_no_other_process_at_any_time);
    suite_add_tcase(suite, all);
    return suite;
}
