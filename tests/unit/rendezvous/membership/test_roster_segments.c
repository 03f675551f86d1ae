/* --segment: only whole segments of nodes of one domain take part. */
#include "one_roster.h"

#include <errno.h>

static const char *domain_of(int node) /* nodes 1, 2: "d1"; 3, 4: "d2"; ... */
{
    static const char *const names[] = {"d0", "d1", "d2", "d3", "d4"};
    return names[(node + 1) / 2 % 5];
}

static struct message_hello hello_in(int node, const char *domain)
{
    struct message_hello h = hello_of(node);
    h.domain = domain;
    return h;
}

static void enter(int node)
{
    say_hello(node, hello_in(node, domain_of(node)), false);
}

static void create_segments(uint32_t min, uint32_t max, uint32_t segment, uint32_t n_spares)
{
    const struct roster_limits limits = {0};
    create(min, max, 0);
    roster_destroy(r);
    terms.segment = segment;
    terms.spares = n_spares;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
}

/* Nodes 1 to n, all members. */
static void create_with(uint32_t min, uint32_t max, int n)
{
    create_segments(min, max, 2, 0);
    for (int i = 1; i <= n; i++)
        enter(i);
    if (roster_get_state(r) == ROSTER_OPEN)
        time_goes_on(3000);
    say(1, MESSAGE_READY);
    assert_state(ROSTER_RUNNING);
}

static void lose(int node)
{
    gone(node);
    time_goes_on(50);
}

static void assert_index(int link, uint32_t index)
{
    const struct message *m = told(link, MESSAGE_SEALED);
    ck_assert_uint_eq(m->sealed.node_index, index);
}

START_TEST(nodes_without_a_whole_segment_do_not_begin_a_job)
{
    create_segments(2, 2, 2, 0);
    enter(1);
    enter(3);
    enter(5);
    assert_state(ROSTER_GATHERING);
    say(1, MESSAGE_KEEP_ALIVE);
    const struct message_progress *p = told(1, MESSAGE_LEASE)->lease.progress;
    ck_assert_uint_eq(p->n_here, 0);
    ck_assert_uint_eq(p->n_wanted, 2);
    ck_assert_str_eq(p->names[0], "d1(1/2)");
    ck_assert_uint_eq(p->n_all_names, 3);
    enter(6);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(told(5, MESSAGE_SEALED)->sealed.n_nodes, 2);
}
END_TEST

START_TEST(a_job_that_does_not_begin_names_the_domains)
{
    create_segments(2, 2, 2, 0);
    enter(1);
    enter(3);
    now_ms += 599999;
    say(1, MESSAGE_KEEP_ALIVE);
    say(3, MESSAGE_KEEP_ALIVE);
    time_goes_on(1);
    assert_state(ROSTER_CLOSED);
    const char *text = roster_get_verdict(r)->text;
    ck_assert_msg(strstr(text, "0 of at least 2 have joined;") != NULL &&
                      strstr(text, "; --segment: domain d1 has 1 of 2 nodes of a segment, domain "
                                   "d2 has 1 of 2 nodes of a segment") != NULL,
                  "%s", text);
}
END_TEST

START_TEST(domains_are_consecutive_whatever_the_order_of_arrival)
{
    create_segments(4, 4, 2, 0);
    enter(3);
    enter(1);
    enter(4);
    enter(2);
    say(1, MESSAGE_READY);
    assert_index(2, 1);
    assert_index(3, 2);
    assert_index(4, 3);
}
END_TEST

START_TEST(the_rest_of_a_broken_segment_becomes_a_spare)
{
    create_with(2, 4, 4);
    lose(4);
    stops(1);
    stops(2);
    stops(3);
    assert_state(ROSTER_RUNNING);
    const struct message *m = told(3, MESSAGE_REFUSED);
    ck_assert_int_eq(m->refused.why, MESSAGE_REFUSED_LOST);
    ck_assert(m->refused.again);
    ck_assert_ptr_nonnull(strstr(m->refused.text, "fewer than 2 nodes of its domain"));
    say(1, MESSAGE_READY);
    ck_assert_uint_eq(told(2, MESSAGE_SEALED)->sealed.n_nodes, 2);
    say_hello(13, hello_in(3, "d2"), false); /* it has come again */
    assert_state(ROSTER_RUNNING);
    struct message_hello h = hello_in(4, "d2");
    h.instance[1] = 9;
    say_hello(14, h, false);
    assert_state(ROSTER_STOPPING);
    stops(1);
    stops(2);
    say(1, MESSAGE_READY);
    assert_index(13, 2);
    assert_index(14, 3);
}
END_TEST

START_TEST(a_node_that_makes_no_segment_whole_does_not_end_a_generation)
{
    create_with(2, 4, 2);
    enter(3);
    enter(5);
    assert_state(ROSTER_RUNNING);
    enter(6);
    assert_state(ROSTER_STOPPING);
}
END_TEST

START_TEST(a_spare_steps_in_for_its_own_domain_only)
{
    create_segments(4, 4, 2, 2);
    for (int i = 1; i <= 4; i++)
        enter(i);
    say(1, MESSAGE_READY);
    enter(5);
    say_hello(9, hello_in(9, "d2"), false);
    assert_state(ROSTER_RUNNING);
    lose(3);
    for (int i = 1; i <= 4; i++)
        if (i != 3)
            stops(i);
    assert_state(ROSTER_STOPPING);
    time_goes_on(ROSTER_LAST_CALL_MS);
    assert_state(ROSTER_RUNNING);
    say(1, MESSAGE_READY);
    assert_index(9, 2);
    assert_index(4, 3);
}
END_TEST

START_TEST(a_whole_spare_segment_replaces_a_broken_one)
{
    create_segments(4, 4, 2, 2);
    for (int i = 1; i <= 6; i++)
        enter(i);
    say(1, MESSAGE_READY);
    lose(3);
    stops(1);
    stops(2);
    stops(4);
    time_goes_on(ROSTER_LAST_CALL_MS);
    told(4, MESSAGE_REFUSED);
    say(1, MESSAGE_READY);
    assert_index(5, 2);
    assert_index(6, 3);
}
END_TEST

START_TEST(a_job_without_enough_segments_ends)
{
    create_with(4, 4, 4);
    lose(4);
    assert_state(ROSTER_CLOSED);
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 75);
    ck_assert_ptr_nonnull(strstr(roster_get_verdict(r)->text, "2 of at least 4 nodes remain"));
    ck_assert_ptr_nonnull(
        strstr(roster_get_verdict(r)->text, "domain d2 has 1 of 2 nodes of a segment"));
}
END_TEST

START_TEST(another_segment_size_is_refused)
{
    create_with(2, 4, 2);
    struct message_hello h = hello_in(3, "d2");
    h.terms.segment = 1;
    say_hello(3, h, false);
    const struct message *m = told(3, MESSAGE_REFUSED);
    ck_assert_int_eq(m->refused.why, MESSAGE_REFUSED_TERMS);
    ck_assert_ptr_nonnull(
        strstr(m->refused.text, "node3 was started with --segment=1, node1 with --segment=2"));
}
END_TEST

START_TEST(the_numbers_of_nodes_are_multiples)
{
    const struct roster_limits limits = {0};
    struct co_error err;
    struct roster *none;
    create(1, 4, 0);
    terms.segment = 2;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &none, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "expected multiples of the size of a segment, 2"));
    terms.min_nodes = 2;
    terms.max_nodes = 3;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &none, &err), -EINVAL);
}
END_TEST

START_TEST(the_domain_of_the_node_that_keeps_rank_0_must_be_whole)
{
    create_segments(2, 4, 2, 0);
    struct message_hello h = hello_in(1, "d1");
    h.keeps_rank_0 = true;
    say_hello(1, h, true);
    enter(3);
    enter(4);
    assert_state(ROSTER_GATHERING);
    enter(2);
    assert_state(ROSTER_RUNNING);
    told(1, MESSAGE_SEALED);
}
END_TEST

START_TEST(domains_come_and_go)
{
    create_segments(2, 2, 2, 0);
    for (int round = 0; round < 20; round++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", round);
        say_hello(50 + round, hello_in(20 + round, name), false);
        gone(50 + round);
        time_goes_on(50);
    }
    enter(1);
    enter(2);
    assert_state(ROSTER_RUNNING);
}
END_TEST

/* What the generation is after a takeover: all its nodes report their places, or too few do. */
static void take_over(uint32_t n_nodes)
{
    struct roster_past past;
    const struct roster_limits limits = {.confirm_ms = 1000};
    roster_get_past(r, &past);
    ck_assert_uint_eq(past.n_nodes, n_nodes);
    roster_destroy(r);
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
    ck_assert_int_eq(roster_resume(r, &past, now_ms, NULL), 0);
}

static struct message_hello hello_of_member(int node, uint32_t n_nodes)
{
    struct message_hello h = hello_in(node, domain_of(node));
    const uint32_t index = (uint32_t)node - 1;
    h.resumes = 0;
    h.returns = true;
    h.was = (struct message_was){.is_known = true,
                                 .generation = 0,
                                 .place = {.n_nodes = n_nodes,
                                           .node_index = index,
                                           .world_size = 2 * n_nodes,
                                           .first_rank = 2 * index,
                                           .n_local = 2,
                                           .leads = index == 0,
                                           .agent_store = true,
                                           .host = "host",
                                           .port = 1234}};
    return h;
}

START_TEST(a_takeover_learns_the_domains_from_the_nodes)
{
    create_with(2, 6, 4);
    take_over(4);
    for (int i = 1; i <= 4; i++)
        say_hello(20 + i, hello_of_member(i, 4), false);
    assert_state(ROSTER_RUNNING);
    say_hello(25, hello_in(5, "d3"), false);
    assert_state(ROSTER_RUNNING);
    say_hello(26, hello_in(6, "d3"), false);
    assert_state(ROSTER_STOPPING);
}
END_TEST

START_TEST(a_segment_that_comes_during_a_takeover_is_admitted_later)
{
    create_with(2, 6, 4);
    take_over(4);
    for (int i = 1; i <= 3; i++)
        say_hello(20 + i, hello_of_member(i, 4), false);
    say_hello(25, hello_in(5, "d3"), false);
    say_hello(26, hello_in(6, "d3"), false);
    assert_state(ROSTER_RUNNING);
    say_hello(24, hello_of_member(4, 4), false);
    assert_state(ROSTER_STOPPING);
}
END_TEST

START_TEST(a_record_of_broken_segments_is_refused)
{
    struct roster_past past;
    struct co_error err;
    create_with(2, 4, 4);
    roster_get_past(r, &past);
    past.n_nodes = 3;
    roster_destroy(r);
    create_segments(2, 4, 2, 0);
    ck_assert_int_eq(roster_resume(r, &past, now_ms, &err), -EINVAL);
}
END_TEST

TEST_SUITE(roster_segments)
{
    Suite *suite = suite_create("roster_segments");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, nodes_without_a_whole_segment_do_not_begin_a_job);
    tcase_add_test(all, a_job_that_does_not_begin_names_the_domains);
    tcase_add_test(all, domains_are_consecutive_whatever_the_order_of_arrival);
    tcase_add_test(all, the_rest_of_a_broken_segment_becomes_a_spare);
    tcase_add_test(all, a_node_that_makes_no_segment_whole_does_not_end_a_generation);
    tcase_add_test(all, a_spare_steps_in_for_its_own_domain_only);
    tcase_add_test(all, a_whole_spare_segment_replaces_a_broken_one);
    tcase_add_test(all, a_job_without_enough_segments_ends);
    tcase_add_test(all, another_segment_size_is_refused);
    tcase_add_test(all, the_numbers_of_nodes_are_multiples);
    tcase_add_test(all, the_domain_of_the_node_that_keeps_rank_0_must_be_whole);
    tcase_add_test(all, domains_come_and_go);
    tcase_add_test(all, a_takeover_learns_the_domains_from_the_nodes);
    tcase_add_test(all, a_segment_that_comes_during_a_takeover_is_admitted_later);
    tcase_add_test(all, a_record_of_broken_segments_is_refused);
    suite_add_tcase(suite, all);
    return suite;
}
