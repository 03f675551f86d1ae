/* What a proposer asks, and when it is the coordinator. */
#include "rendezvous/quorum/proposer.h"

#include "tests/support/suite.h"

#include <check.h>

static const struct quorum_limits limits = {.lease_ms = 3000, .margin_ms = 500, .claim_ms = 500};
static struct quorum_proposer p;
static uint64_t now_ms;

static const struct quorum_record first = {.term = {1, 1},
                                           .settled = true,
                                           .voters = {3, {1, 2, 3}},
                                           .before = {3, {1, 2, 3}},
                                           .value = 7};

static void set_up(void)
{
    now_ms = 1000;
    quorum_proposer_init(&p, &limits, 2, &first);
}

static void answer(uint64_t from, struct quorum_vote vote)
{
    struct quorum_ask ask;
    ck_assert(quorum_proposer_question(&p, &ask));
    quorum_proposer_hear(&p, &ask, from, &vote);
}

static void yes(uint64_t from, const struct quorum_record *record)
{
    answer(from, (struct quorum_vote){.yes = true, .promised = p.term, .record = *record});
}

static void lead(void)
{
    quorum_proposer_claim(&p, now_ms);
    yes(2, &first);
    yes(3, &first);
    yes(2, &p.newest);
    yes(3, &p.newest);
    ck_assert_int_eq(p.phase, QUORUM_LEADING);
}

START_TEST(a_new_coordinator_writes_the_newest_record_again_first)
{
    struct quorum_record newer = first;
    newer.index = 4;
    newer.value = 8;
    quorum_proposer_claim(&p, now_ms);
    yes(2, &first);
    ck_assert_int_eq(p.phase, QUORUM_CLAIMING);
    yes(3, &newer);
    ck_assert_int_eq(p.phase, QUORUM_REWRITING);
    ck_assert_uint_eq(quorum_proposer_end_ms(&p), 0);
    now_ms += 100;
    yes(2, &p.newest);
    yes(3, &p.newest);
    ck_assert_int_eq(p.phase, QUORUM_LEADING);
    ck_assert_uint_eq(p.newest.value, 8);
    ck_assert_uint_eq(p.newest.term.number, 2);
    ck_assert_uint_eq(quorum_proposer_end_ms(&p), 4000); /* since it asked first */
}
END_TEST

START_TEST(a_newer_list_that_is_reported_has_to_be_carried)
{
    struct quorum_record newer = first;
    newer.index = 1;
    newer.settled = false;
    newer.voters = (struct quorum_list){3, {1, 4, 5}};
    quorum_proposer_claim(&p, now_ms);
    yes(2, &first);
    yes(3, &newer);
    ck_assert_int_eq(p.phase, QUORUM_CLAIMING);
    ck_assert(quorum_proposer_asks(&p, 4) && quorum_proposer_asks(&p, 3));
    yes(4, &newer);
    ck_assert_int_eq(p.phase, QUORUM_CLAIMING);
    yes(5, &newer);
    ck_assert_int_eq(p.phase, QUORUM_REWRITING);
    ck_assert(!p.newest.settled);
}
END_TEST

START_TEST(voters_change_only_when_the_last_change_is_settled)
{
    const struct quorum_list two = {2, {2, 3}}, one = {1, {2}};
    lead();
    ck_assert(quorum_proposer_write(&p, 9, &two, now_ms));
    ck_assert(!quorum_proposer_write(&p, 10, &two, now_ms)); /* one at a time */
    yes(2, &p.next);
    ck_assert_int_eq(p.phase, QUORUM_WRITING); /* the list before has three */
    yes(3, &p.next);
    ck_assert_int_eq(p.phase, QUORUM_LEADING);
    ck_assert(!quorum_proposer_write(&p, 10, &one, now_ms));
    quorum_proposer_keep(&p, now_ms);
    yes(2, &p.newest);
    yes(3, &p.newest);
    ck_assert(p.newest.settled);
    ck_assert(quorum_proposer_write(&p, 10, &one, now_ms));
}
END_TEST

START_TEST(a_renewal_counts_from_when_it_was_sent)
{
    lead();
    now_ms += 1000;
    quorum_proposer_keep(&p, now_ms);
    now_ms += 300;
    yes(2, &p.newest);
    ck_assert_uint_eq(quorum_proposer_end_ms(&p), 4000);
    yes(1, &p.newest);
    ck_assert_uint_eq(quorum_proposer_end_ms(&p), 5000);
}
END_TEST

START_TEST(a_coordinator_that_is_outbid_remains_one_until_its_lease_is_over)
{
    lead();
    quorum_proposer_keep(&p, now_ms);
    answer(3, (struct quorum_vote){.promised = {6, 3}});
    ck_assert_int_eq(p.phase, QUORUM_OUTBID);
    quorum_proposer_claim(&p, now_ms);
    ck_assert_uint_eq(p.term.number, 7);
    ck_assert_uint_eq(quorum_proposer_end_ms(&p), 4000);
    quorum_proposer_give_up(&p);
    ck_assert_uint_eq(quorum_proposer_end_ms(&p), 0);
}
END_TEST

START_TEST(an_answer_to_an_older_question_means_nothing)
{
    struct quorum_ask old;
    quorum_proposer_claim(&p, now_ms);
    ck_assert(quorum_proposer_question(&p, &old));
    quorum_proposer_claim(&p, now_ms);
    const struct quorum_vote vote = {.yes = true, .promised = old.term, .record = first};
    quorum_proposer_hear(&p, &old, 2, &vote);
    quorum_proposer_hear(&p, &old, 3, &vote);
    ck_assert_int_eq(p.phase, QUORUM_CLAIMING);
    ck_assert_uint_eq(p.yes.n, 0);
}
END_TEST

START_TEST(a_late_answer_to_an_earlier_renewal_does_not_count_for_the_present_one)
{
    struct quorum_ask old;
    lead();
    quorum_proposer_keep(&p, now_ms);
    ck_assert(quorum_proposer_question(&p, &old));
    now_ms += 2000;
    quorum_proposer_keep(&p, now_ms);
    const struct quorum_vote vote = {.yes = true, .promised = p.term, .record = p.newest};
    quorum_proposer_hear(&p, &old, 1, &vote);
    quorum_proposer_hear(&p, &old, 3, &vote);
    ck_assert_uint_eq(quorum_proposer_end_ms(&p), 4000);
    yes(1, &p.newest);
    yes(3, &p.newest);
    ck_assert_uint_eq(quorum_proposer_end_ms(&p), 6000);
}
END_TEST

START_TEST(an_answer_that_was_not_needed_may_outbid)
{
    struct quorum_ask ask;
    lead();
    quorum_proposer_keep(&p, now_ms);
    ck_assert(quorum_proposer_question(&p, &ask));
    yes(1, &p.newest);
    yes(2, &p.newest);
    const struct quorum_vote vote = {.promised = {9, 3}};
    quorum_proposer_hear(&p, &ask, 3, &vote);
    ck_assert_int_eq(p.phase, QUORUM_OUTBID);
}
END_TEST

/* Process 2, the second of two, which may continue alone. */
static void claim_alone(void)
{
    const struct quorum_record two = {
        .term = {1, 1}, .settled = true, .voters = {2, {1, 2}}, .before = {2, {1, 2}}, .value = 7};
    struct quorum_limits alone = limits;
    alone.alone = true;
    quorum_proposer_init(&p, &alone, 2, &two);
    quorum_proposer_claim(&p, now_ms);
    quorum_proposer_stand_alone(&p, now_ms + 500);
}

START_TEST(a_lease_that_was_claimed_alone_counts_from_the_end_of_the_questions)
{
    claim_alone();
    yes(2, &p.newest);
    ck_assert_int_eq(p.phase, QUORUM_REWRITING);
    yes(2, &p.newest);
    ck_assert_int_eq(p.phase, QUORUM_LEADING);
    ck_assert_uint_eq(quorum_proposer_end_ms(&p), now_ms + 500 + limits.lease_ms);
}
END_TEST

START_TEST(an_answer_ends_a_claim_that_is_alone)
{
    claim_alone();
    answer(1, (struct quorum_vote){.promised = {1, 1}, .record = p.newest});
    yes(2, &p.newest);
    ck_assert_int_eq(p.phase, QUORUM_CLAIMING);
    quorum_proposer_stand_alone(&p, now_ms + 600); /* it has answered */
    yes(2, &p.newest);
    ck_assert_int_eq(p.phase, QUORUM_CLAIMING);
}
END_TEST

START_TEST(an_idle_proposer_asks_nothing)
{
    struct quorum_ask ask;
    ck_assert(!quorum_proposer_question(&p, &ask));
    quorum_proposer_keep(&p, now_ms);
    ck_assert(!quorum_proposer_write(&p, 1, &first.voters, now_ms));
    ck_assert(!quorum_proposer_question(&p, &ask));
}
END_TEST

TEST_SUITE(proposer)
{
    Suite *suite = suite_create("proposer");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, NULL);
    tcase_add_test(all, a_new_coordinator_writes_the_newest_record_again_first);
    tcase_add_test(all, a_newer_list_that_is_reported_has_to_be_carried);
    tcase_add_test(all, voters_change_only_when_the_last_change_is_settled);
    tcase_add_test(all, a_renewal_counts_from_when_it_was_sent);
    tcase_add_test(all, a_coordinator_that_is_outbid_remains_one_until_its_lease_is_over);
    tcase_add_test(all, an_answer_to_an_older_question_means_nothing);
    tcase_add_test(all, a_late_answer_to_an_earlier_renewal_does_not_count_for_the_present_one);
    tcase_add_test(all, an_answer_that_was_not_needed_may_outbid);
    tcase_add_test(all, a_lease_that_was_claimed_alone_counts_from_the_end_of_the_questions);
    tcase_add_test(all, an_answer_ends_a_claim_that_is_alone);
    tcase_add_test(all, an_idle_proposer_asks_nothing);
    suite_add_tcase(suite, all);
    return suite;
}
