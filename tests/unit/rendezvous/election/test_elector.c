/* The elector's table, whole and drawn, and what it does in quiet and in trouble. All orders of
 * answers, and faults of all kinds: tests/sim/sim_elector.c. */
#include "rendezvous/election/elector.h"

#include "common/clock.h"
#include "tests/support/machine_checks.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>

static struct elector *e;
static struct elector_orders o;
static uint64_t now_ms;

static void step(struct elector_input in)
{
    in.now_ms = now_ms;
    elector_step(e, &in, &o);
}

static void time_goes_on(uint64_t by_ms)
{
    now_ms += by_ms;
    step((struct elector_input){.type = ELECTOR_TIME});
}

static void answer(struct elector_answer a)
{
    step((struct elector_input){.type = ELECTOR_ANSWER, .answer = &a});
}

static void fails(void)
{
    answer((struct elector_answer){.failed = true, .text = "nobody answers"});
}

static void assert_asked(enum elector_request_type type)
{
    ck_assert(o.request);
    ck_assert_int_eq(o.ask.type, type);
}

static void assert_state(enum elector_state state)
{
    ck_assert_msg(elector_get_state(e) == state, "in %s", elector_state_name(elector_get_state(e)));
}

static void create(bool never_leads)
{
    const struct elector_limits limits = {.ttl_s = 2,
                                          .record_ttl_s = 60,
                                          .ask_ms = 1000,
                                          .hurry_ms = 200,
                                          .prefer_ms = 1500,
                                          .never_leads = never_leads};
    const struct elector_address own = {"node1", 1001};
    now_ms = 100000;
    e = elector_create(&limits);
    ck_assert_ptr_nonnull(e);
    elector_set_address(e, &own);
    time_goes_on(0);
    assert_asked(ELECTOR_READ);
}

static struct elector_answer keys(int64_t leader_lease, uint32_t generation, int64_t mod_revision)
{
    return (struct elector_answer){.succeeded = true,
                                   .revision = 50,
                                   .has_leader = leader_lease != 0,
                                   .leader_lease = leader_lease,
                                   .leader_create_revision = 40,
                                   .leader = {"node2", 1002},
                                   .has_record = mod_revision != 0,
                                   .record_mod_revision = mod_revision,
                                   .record_lease = mod_revision != 0 ? 77 : 0,
                                   .record = {.generation = generation, .n_nodes = 2}};
}

static void lease_granted(int64_t lease)
{
    assert_asked(ELECTOR_GRANT);
    answer((struct elector_answer){.lease = lease, .ttl_s = o.ask.ttl_s});
}

/* No elector led, and no record existed. This one leads, with leases 7 and 77. */
static void create_leading(void)
{
    create(false);
    answer(keys(0, 0, 0));
    lease_granted(7);
    lease_granted(77);
    assert_asked(ELECTOR_CLAIM);
    ck_assert_str_eq(o.ask.address.host, "node1");
    ck_assert_int_eq(o.ask.lease, 7);
    answer(keys(7, 0, 0));
    assert_state(ELECTOR_LEADING);
    ck_assert(o.make);
    ck_assert(!o.has_past);
}

static void commit(uint32_t generation)
{
    const struct elector_record r = {.generation = generation, .n_nodes = 2};
    step((struct elector_input){.type = ELECTOR_COMMIT, .record = &r});
}

static void kept(uint32_t ttl_s)
{
    assert_asked(ELECTOR_KEEP);
    answer((struct elector_answer){.lease = o.ask.lease, .ttl_s = ttl_s});
}

static void set_up(void)
{
    e = NULL;
}

static void tear_down(void)
{
    elector_destroy(e);
}

START_TEST(each_pair_of_state_and_event_has_one_answer)
{
    assert_whole(&elector_machine);
}
END_TEST

START_TEST(the_drawing_is_the_table)
{
    assert_drawn(&elector_machine, "elector");
}
END_TEST

START_TEST(without_a_leader_it_takes_two_leases_and_the_key)
{
    create_leading();
}
END_TEST

START_TEST(it_follows_another_leader_and_asks_again_later)
{
    create(false);
    answer(keys(9, 3, 45));
    assert_state(ELECTOR_FOLLOWING);
    ck_assert(o.follow);
    ck_assert_str_eq(o.leader.host, "node2");
    ck_assert_uint_eq(elector_deadline_ms(e), now_ms + 1000);
    step((struct elector_input){.type = ELECTOR_HURRY, .hurries = true});
    assert_asked(ELECTOR_READ);
}
END_TEST

START_TEST(the_winner_gets_the_record_of_the_last_leader)
{
    create(false);
    answer(keys(0, 3, 45));
    ck_assert(o.vacant);
    lease_granted(7); /* the record has its lease */
    assert_asked(ELECTOR_CLAIM);
    answer(keys(7, 4, 49)); /* it was written once more meanwhile */
    ck_assert(o.make);
    ck_assert(o.has_past);
    ck_assert_uint_eq(o.past.generation, 4);
}
END_TEST

START_TEST(an_elector_that_never_leads_only_reports_a_vacancy)
{
    create(true);
    answer(keys(0, 3, 45));
    assert_state(ELECTOR_LOOKING);
    ck_assert(o.vacant);
    ck_assert_uint_eq(o.asked_ms, now_ms);
    ck_assert(!o.request);
}
END_TEST

START_TEST(without_an_address_it_does_not_lead)
{
    const struct elector_limits limits = {.ttl_s = 2, .record_ttl_s = 60, .hurry_ms = 200};
    now_ms = 1;
    e = elector_create(&limits);
    ck_assert_ptr_nonnull(e);
    time_goes_on(0);
    answer(keys(0, 0, 0));
    assert_state(ELECTOR_LOOKING);
}
END_TEST

START_TEST(without_a_record_the_node_with_the_roster_goes_first)
{
    create(false);
    answer(keys(9, 3, 45));
    time_goes_on(1000);
    answer(keys(0, 0, 0));
    assert_state(ELECTOR_LOOKING);
    for (int i = 0; i < 7; i++) {
        time_goes_on(200);
        answer(keys(0, 0, 0));
        assert_state(ELECTOR_LOOKING);
    }
    time_goes_on(200);
    answer(keys(0, 0, 0));
    assert_state(ELECTOR_PREPARING);
}
END_TEST

START_TEST(a_node_that_reaches_the_coordinator_does_not_take_its_key)
{
    create(false);
    answer(keys(9, 3, 45));
    time_goes_on(1000);
    answer(keys(0, 3, 45)); /* etcd was stopped, and its leases were over */
    assert_state(ELECTOR_LOOKING);
    step((struct elector_input){.type = ELECTOR_HURRY, .hurries = true});
    assert_asked(ELECTOR_READ);
    answer(keys(0, 3, 45));
    assert_state(ELECTOR_PREPARING);
}
END_TEST

START_TEST(a_lease_is_renewed_four_times_in_its_time)
{
    create_leading();
    ck_assert_uint_eq(elector_deadline_ms(e), now_ms + 500);
    time_goes_on(500);
    kept(2);
    ck_assert_uint_eq(elector_deadline_ms(e), now_ms + 500);
}
END_TEST

START_TEST(a_record_is_written_only_while_the_key_is_held)
{
    create_leading();
    commit(0);
    assert_asked(ELECTOR_WRITE);
    ck_assert_int_eq(o.ask.create_revision, 40);
    ck_assert_int_eq(o.ask.lease, 77);
    answer((struct elector_answer){.succeeded = true, .revision = 51});
    ck_assert(o.committed);
}
END_TEST

START_TEST(a_refused_write_deposes)
{
    create_leading();
    commit(0);
    answer((struct elector_answer){.succeeded = false, .revision = 51});
    ck_assert(o.give_up);
    ck_assert(!o.committed);
    assert_state(ELECTOR_LOOKING);
}
END_TEST

START_TEST(a_failed_write_is_repeated)
{
    create_leading();
    commit(0);
    fails();
    assert_state(ELECTOR_LEADING);
    ck_assert_str_eq(elector_trouble(e), "nobody answers");
    time_goes_on(200);
    assert_asked(ELECTOR_WRITE);
}
END_TEST

START_TEST(a_record_whose_lease_is_lost_gets_a_new_lease)
{
    create_leading();
    commit(0);
    answer((struct elector_answer){.failed = true, .lacks_lease = true});
    time_goes_on(200);
    lease_granted(78);
    assert_asked(ELECTOR_WRITE);
    ck_assert_int_eq(o.ask.lease, 78);
}
END_TEST

START_TEST(without_an_answer_it_doubts_before_another_one_can_lead)
{
    create_leading();
    uint64_t kept_ms = now_ms;
    time_goes_on(500);
    assert_asked(ELECTOR_KEEP);
    time_goes_on(1299);
    assert_state(ELECTOR_LEADING);
    time_goes_on(1);
    ck_assert_uint_lt(now_ms, kept_ms + 2000);
    assert_state(ELECTOR_IN_DOUBT);
    ck_assert(o.doubt);
    answer((struct elector_answer){.lease = 7, .ttl_s = 2}); /* late, but it was sent in time */
    assert_state(ELECTOR_LEADING);
    ck_assert(o.certain);
}
END_TEST

static void create_doubting(void)
{
    create_leading();
    time_goes_on(500);
    kept(0);
    assert_state(ELECTOR_IN_DOUBT);
    ck_assert(o.doubt);
    time_goes_on(200);
    assert_asked(ELECTOR_READ);
}

START_TEST(after_an_expired_lease_it_claims_again_and_keeps_its_roster)
{
    create_doubting();
    answer(keys(0, 0, 0));
    lease_granted(8);
    assert_asked(ELECTOR_CLAIM);
    answer(keys(8, 0, 0));
    assert_state(ELECTOR_LEADING);
    ck_assert(o.certain);
    ck_assert(!o.make);
}
END_TEST

START_TEST(after_another_leader_the_roster_restarts_from_its_record)
{
    create_doubting();
    answer(keys(0, 5, 60));
    lease_granted(8);
    answer(keys(8, 5, 60));
    ck_assert(o.give_up);
    ck_assert(o.make);
    ck_assert_uint_eq(o.past.generation, 5);
}
END_TEST

START_TEST(the_roster_is_dropped_if_another_one_leads)
{
    create_doubting();
    answer(keys(9, 5, 60));
    assert_state(ELECTOR_FOLLOWING);
    ck_assert(o.give_up);
    ck_assert(o.follow);
}
END_TEST

START_TEST(a_claim_whose_answer_was_lost_is_recognized)
{
    create(false);
    answer(keys(0, 0, 0));
    lease_granted(7);
    lease_granted(77);
    fails();
    assert_state(ELECTOR_LOOKING);
    time_goes_on(200);
    answer(keys(7, 0, 0));
    ck_assert(o.make);
    assert_state(ELECTOR_LEADING);
}
END_TEST

START_TEST(a_claim_answered_after_the_lease_does_not_count)
{
    create(false);
    answer(keys(0, 0, 0));
    lease_granted(7);
    lease_granted(77);
    now_ms += 1900;
    answer(keys(7, 0, 0));
    assert_state(ELECTOR_LOOKING);
    ck_assert(!o.make);
}
END_TEST

START_TEST(a_leader_that_resigns_leaves_the_record_and_removes_the_key)
{
    const struct elector_record r = {.generation = 4, .n_nodes = 2, .gone = 1};
    create_leading();
    step((struct elector_input){.type = ELECTOR_STOP, .record = &r});
    assert_asked(ELECTOR_GIVE_UP);
    ck_assert(o.ask.has_record);
    ck_assert_int_eq(o.ask.record.gone, 1);
    fails(); /* nothing more can be done */
    ck_assert(o.over);
    assert_state(ELECTOR_ENDED);
    ck_assert_uint_eq(elector_deadline_ms(e), CO_NEVER_MS);
}
END_TEST

START_TEST(the_last_request_does_not_wait_for_an_answer)
{
    create_leading();
    time_goes_on(500);
    assert_asked(ELECTOR_KEEP);
    step((struct elector_input){.type = ELECTOR_STOP});
    assert_asked(ELECTOR_GIVE_UP);
    ck_assert(!o.ask.has_record);
}
END_TEST

START_TEST(a_follower_resigns_at_once)
{
    create(false);
    step((struct elector_input){.type = ELECTOR_STOP});
    ck_assert(o.over);
}
END_TEST

TEST_SUITE(elector)
{
    Suite *suite = suite_create("elector");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, each_pair_of_state_and_event_has_one_answer);
    tcase_add_test(all, the_drawing_is_the_table);
    tcase_add_test(all, without_a_leader_it_takes_two_leases_and_the_key);
    tcase_add_test(all, it_follows_another_leader_and_asks_again_later);
    tcase_add_test(all, the_winner_gets_the_record_of_the_last_leader);
    tcase_add_test(all, an_elector_that_never_leads_only_reports_a_vacancy);
    tcase_add_test(all, without_an_address_it_does_not_lead);
    tcase_add_test(all, without_a_record_the_node_with_the_roster_goes_first);
    tcase_add_test(all, a_node_that_reaches_the_coordinator_does_not_take_its_key);
    tcase_add_test(all, a_lease_is_renewed_four_times_in_its_time);
    tcase_add_test(all, a_record_is_written_only_while_the_key_is_held);
    tcase_add_test(all, a_refused_write_deposes);
    tcase_add_test(all, a_failed_write_is_repeated);
    tcase_add_test(all, a_record_whose_lease_is_lost_gets_a_new_lease);
    tcase_add_test(all, without_an_answer_it_doubts_before_another_one_can_lead);
    tcase_add_test(all, after_an_expired_lease_it_claims_again_and_keeps_its_roster);
    tcase_add_test(all, after_another_leader_the_roster_restarts_from_its_record);
    tcase_add_test(all, the_roster_is_dropped_if_another_one_leads);
    tcase_add_test(all, a_claim_whose_answer_was_lost_is_recognized);
    tcase_add_test(all, a_claim_answered_after_the_lease_does_not_count);
    tcase_add_test(all, a_leader_that_resigns_leaves_the_record_and_removes_the_key);
    tcase_add_test(all, the_last_request_does_not_wait_for_an_answer);
    tcase_add_test(all, a_follower_resigns_at_once);
    suite_add_tcase(suite, all);
    return suite;
}
