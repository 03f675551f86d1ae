/* Nodes that check their health: they take part only when they have reported that they are fit. */
#include "one_roster.h"

#include "common/clock.h"

enum { CHECK_MS = 10000 };

static void join_to_check(int node)
{
    struct message_hello h = hello_of(node);
    h.checks = true;
    h.check_ms = CHECK_MS;
    say_hello(node, h, false);
}

static void fit(int link)
{
    say_message(link, (struct message){.type = MESSAGE_HEALTH,
                                       .generation = MESSAGE_NO_GENERATION,
                                       .health = {MESSAGE_FIT, "", ""}});
}

static void unfit(int link, const char *why)
{
    say_message(link, (struct message){.type = MESSAGE_HEALTH,
                                       .generation = MESSAGE_NO_GENERATION,
                                       .health = {MESSAGE_UNFIT, "", why}});
}

/* Two nodes that check, of min to max, in generation 0. */
static void create_checked(uint32_t min, uint32_t max, uint32_t max_restarts)
{
    create(min, max, max_restarts);
    for (int i = 1; i <= 2; i++) {
        join_to_check(i);
        fit(i);
    }
    if (roster_get_state(r) == ROSTER_OPEN)
        time_goes_on(2000); /* no node is silent yet */
    if (roster_get_state(r) == ROSTER_OPEN) {
        fit(1);
        fit(2);
        time_goes_on(1000);
    }
    say(1, MESSAGE_READY);
    assert_state(ROSTER_RUNNING);
}

START_TEST(a_node_does_not_count_before_it_reports_that_it_is_fit)
{
    create(2, 2, 0);
    join(1);
    join_to_check(2);
    assert_said(" 2<WELCOME");
    assert_state(ROSTER_GATHERING);
    fit(2);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(an_unfit_node_does_not_join_and_others_hear_why)
{
    create_running(1, 3, 2, 0);
    join_to_check(3);
    unfit(3, "gpu 1 is lost");
    assert_said(" 1<HEALTH 2<HEALTH");
    ck_assert_str_eq(told(1, MESSAGE_HEALTH)->health.node, "node3");
    ck_assert_str_eq(told(1, MESSAGE_HEALTH)->health.text, "gpu 1 is lost");
    unfit(3, "gpu 1 is lost"); /* nothing new */
    assert_said("");
    unfit(3, "gpu 2 is lost");
    assert_said(" 1<HEALTH 2<HEALTH");
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(a_node_that_is_fit_again_joins)
{
    create_running(1, 3, 2, 0);
    join_to_check(3);
    unfit(3, "no");
    fit(3);
    assert_said(" 1<HEALTH 2<HEALTH 1<STOP 2<STOP STOPPING");
    ck_assert_int_eq(told(1, MESSAGE_HEALTH)->health.fitness, MESSAGE_FIT);
    ck_assert_str_eq(told(1, MESSAGE_STOP)->stop.text, "node3 joins");
}
END_TEST

START_TEST(the_next_generation_waits_for_the_checks_of_its_members)
{
    create_checked(1, 2, 1);
    fails(1, 1, false);
    stops(1);
    stops(2);
    assert_state(ROSTER_STOPPING);
    fit(1);
    assert_state(ROSTER_STOPPING);
    fit(2);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 1);
    ck_assert_uint_eq(told(1, MESSAGE_SEALED)->sealed.n_nodes, 2);
}
END_TEST

START_TEST(an_unfit_member_is_left_out_if_enough_others_are_fit)
{
    create_checked(1, 2, 1);
    fails(2, 1, false);
    stops(1);
    stops(2);
    fit(1);
    unfit(2, "its disk is full");
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(told(1, MESSAGE_SEALED)->sealed.n_nodes, 1);
    ck_assert_str_eq(told(1, MESSAGE_HEALTH)->health.text, "its disk is full");
    say(1, MESSAGE_READY);
    fit(2);
    assert_said(" 1<HEALTH 1<STOP STOPPING");
}
END_TEST

START_TEST(too_few_fit_nodes_wait_and_the_end_names_the_reasons)
{
    create_checked(2, 2, 1);
    fails(2, 1, false);
    stops(1);
    stops(2);
    fit(1);
    unfit(2, "its disk is full");
    assert_state(ROSTER_GATHERING);
    for (int i = 0; i < 30; i++) {
        time_goes_on(2000);
        say(1, MESSAGE_KEEP_ALIVE);
        say(2, MESSAGE_KEEP_ALIVE);
    }
    assert_state(ROSTER_CLOSED);
    const struct message_verdict *v = roster_get_verdict(r);
    ck_assert_int_eq(v->exit_code, 75);
    ck_assert_msg(strstr(v->text, "; node2 is unhealthy: its disk is full") != NULL, "%s", v->text);
}
END_TEST

START_TEST(a_job_whose_nodes_are_all_unfit_ends_as_one_whose_nodes_did_not_join)
{
    create(1, 2, 0);
    join_to_check(1);
    join_to_check(2);
    unfit(1, "one");
    unfit(2, "two");
    for (int i = 0; i < 300; i++) {
        time_goes_on(2000);
        say(1, MESSAGE_KEEP_ALIVE);
        say(2, MESSAGE_KEEP_ALIVE);
    }
    assert_state(ROSTER_CLOSED);
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 69);
    ck_assert_msg(strstr(roster_get_verdict(r)->text,
                         "; node1 is unhealthy: one; node2 is unhealthy: two") != NULL,
                  "%s", roster_get_verdict(r)->text);
}
END_TEST

START_TEST(a_job_that_may_not_wait_ends_with_the_reason)
{
    create_checked(2, 2, 0);
    say(1, MESSAGE_RESTART);
    stops(1);
    stops(2);
    fit(2);
    unfit(1, "no memory");
    assert_state(ROSTER_CLOSED);
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 75);
    ck_assert(strstr(roster_get_verdict(r)->text, "node1 is unhealthy: no memory") != NULL);
}
END_TEST

START_TEST(an_open_window_closes_when_a_node_becomes_unfit)
{
    create(2, 3, 0);
    join(1);
    join_to_check(2);
    fit(2);
    assert_state(ROSTER_OPEN);
    unfit(2, "no");
    assert_state(ROSTER_GATHERING);
    fit(2);
    assert_state(ROSTER_OPEN);
}
END_TEST

START_TEST(a_check_that_is_not_reported_in_time_counts_as_failed)
{
    create_checked(1, 2, 1);
    fails(2, 1, false);
    stops(1);
    stops(2);
    fit(1);
    for (int i = 0; i < (CHECK_MS + ROSTER_SLACK_MS) / 1000 - 1; i++) {
        time_goes_on(1000);
        say(1, MESSAGE_KEEP_ALIVE);
        say(2, MESSAGE_KEEP_ALIVE);
    }
    assert_state(ROSTER_STOPPING);
    ck_assert_uint_eq(roster_deadline_ms(r), now_ms + 1000);
    time_goes_on(1000);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(told(1, MESSAGE_SEALED)->sealed.n_nodes, 1);
}
END_TEST

START_TEST(a_pause_and_the_checks_pass_at_the_same_time)
{
    create_checked(1, 2, 5);
    for (int i = 0; i < 2; i++) { /* from the second failure on there is a pause */
        fails(2, 1, false);
        stops(1);
        stops(2);
        fit(1);
        if (i == 0)
            fit(2);
        say(1, MESSAGE_READY);
    }
    assert_state(ROSTER_STOPPING);
    const uint64_t pause_ms = roster_deadline_ms(r) - now_ms;
    ck_assert_uint_gt(pause_ms, 0);
    fit(2);
    assert_state(ROSTER_STOPPING);
    time_goes_on(pause_ms);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(a_node_that_joins_hears_which_others_are_unfit_and_when_they_leave)
{
    create_running(1, 4, 2, 0);
    join_to_check(3);
    unfit(3, "no");
    join_to_check(4);
    assert_said(" 4<WELCOME 4<HEALTH");
    ck_assert_str_eq(told(4, MESSAGE_HEALTH)->health.node, "node3");
    leaves(3);
    gone(3);
    ck_assert_int_eq(told(4, MESSAGE_HEALTH)->health.fitness, MESSAGE_FIT_GONE);
    ck_assert_str_eq(told(4, MESSAGE_HEALTH)->health.node, "node3");
}
END_TEST

START_TEST(a_node_that_connects_again_repeats_that_it_is_fit)
{
    create(2, 2, 0);
    join_to_check(1);
    fit(1);
    gone(1);
    struct message_hello h = hello_of(1);
    h.checks = true;
    h.check_ms = CHECK_MS;
    say_hello(11, h, false);
    join(2);
    assert_state(ROSTER_GATHERING);
    fit(11);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(the_health_of_a_node_with_ranks_means_nothing)
{
    create_checked(1, 2, 1);
    unfit(2, "late");
    assert_said("");
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(a_member_of_an_earlier_roster_is_fit)
{
    struct roster_limits limits = {0};
    const struct roster_past past = {.generation = 4,
                                     .n_nodes = 1,
                                     .world_size = 2,
                                     .gone = -1,
                                     .before = {.generation = MESSAGE_NO_GENERATION}};
    create(1, 1, 1);
    roster_destroy(r);
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
    ck_assert_int_eq(roster_resume(r, &past, now_ms, NULL), 0);
    struct message_hello h = hello_of(1);
    h.checks = true;
    h.check_ms = CHECK_MS;
    h.resumes = 4;
    h.was = (struct message_was){.is_known = true,
                                 .generation = 4,
                                 .place = {.n_nodes = 1,
                                           .world_size = 2,
                                           .n_local = 2,
                                           .leads = true,
                                           .host = "host",
                                           .port = 7,
                                           .agent_store = true}};
    say_hello(1, h, false);
    struct roster_node_view view;
    ck_assert(roster_view_link(r, 1, &view));
    ck_assert(view.is_fit && view.here && view.is_member);
}
END_TEST

START_TEST(what_is_waited_for_is_named)
{
    create(2, 2, 1);
    join(1);
    join_to_check(2);
    unfit(2, "no");
    say_message(1, (struct message){.type = MESSAGE_KEEP_ALIVE});
    const struct message_progress *p = told(1, MESSAGE_LEASE)->lease.progress;
    ck_assert_int_eq(p->wait, MESSAGE_WAIT_NODES);
    ck_assert_uint_eq(p->n_here, 1);
    ck_assert_str_eq(p->names[0], "node2(unhealthy)");
}
END_TEST

TEST_SUITE(roster_health)
{
    Suite *suite = suite_create("roster_health");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_node_does_not_count_before_it_reports_that_it_is_fit);
    tcase_add_test(all, an_unfit_node_does_not_join_and_others_hear_why);
    tcase_add_test(all, a_node_that_is_fit_again_joins);
    tcase_add_test(all, the_next_generation_waits_for_the_checks_of_its_members);
    tcase_add_test(all, an_unfit_member_is_left_out_if_enough_others_are_fit);
    tcase_add_test(all, too_few_fit_nodes_wait_and_the_end_names_the_reasons);
    tcase_add_test(all, a_job_whose_nodes_are_all_unfit_ends_as_one_whose_nodes_did_not_join);
    tcase_add_test(all, a_job_that_may_not_wait_ends_with_the_reason);
    tcase_add_test(all, an_open_window_closes_when_a_node_becomes_unfit);
    tcase_add_test(all, a_check_that_is_not_reported_in_time_counts_as_failed);
    tcase_add_test(all, a_pause_and_the_checks_pass_at_the_same_time);
    tcase_add_test(all, a_node_that_joins_hears_which_others_are_unfit_and_when_they_leave);
    tcase_add_test(all, a_node_that_connects_again_repeats_that_it_is_fit);
    tcase_add_test(all, the_health_of_a_node_with_ranks_means_nothing);
    tcase_add_test(all, a_member_of_an_earlier_roster_is_fit);
    tcase_add_test(all, what_is_waited_for_is_named);
    suite_add_tcase(suite, all);
    return suite;
}
