/* The roster's table, as a whole and as a drawing, and its rules one by one: which nodes take part,
 * with which ranks, and which do not. test_roster_changes.c and test_roster_failures.c test what
 * happens to a generation; tests/sim has all orders of messages, and faults of all kinds. */
#include "one_roster.h"

#include "rendezvous/membership/lease.h"

#include "tests/support/machine_checks.h"

#include <errno.h>

/* --- The table --- */

START_TEST(each_pair_of_state_and_event_has_one_answer)
{
    assert_whole(&roster_machine);
}
END_TEST

START_TEST(the_drawing_is_the_table)
{
    assert_drawn(&roster_machine, "roster");
}
END_TEST

/* --- Gathering --- */

START_TEST(a_fixed_number_of_nodes_is_sealed_when_the_last_one_joins)
{
    create(2, 2, 0);
    join(1);
    assert_said(" 1<WELCOME");
    join(2);
    assert_said(" 2<WELCOME 1<MEMBERS 1<SEALED RUNNING");
    const struct message *m = told(1, MESSAGE_SEALED);
    ck_assert(m->sealed.leads);
    ck_assert_uint_eq(m->generation, 0);
    ck_assert_uint_eq(m->sealed.world_size, 4);
    say(1, MESSAGE_READY);
    assert_said(" 2<SEALED");
    m = told(2, MESSAGE_SEALED);
    ck_assert_uint_eq(m->sealed.first_rank, 2);
    ck_assert_uint_eq(m->sealed.node_index, 1);
    ck_assert_str_eq(m->sealed.host, "host");
    ck_assert_uint_eq(m->sealed.port, 1234);
}
END_TEST

START_TEST(a_window_is_open_from_the_minimum_to_the_maximum)
{
    create(1, 3, 0);
    join(1);
    assert_state(ROSTER_OPEN);
    time_goes_on(2999);
    assert_state(ROSTER_OPEN);
    join(2);
    time_goes_on(1);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(told(1, MESSAGE_SEALED)->sealed.n_nodes, 2);
}
END_TEST

START_TEST(the_window_closes_when_too_few_are_left_and_opens_again)
{
    create(2, 3, 0);
    join(1);
    join(2);
    assert_state(ROSTER_OPEN);
    gone(2);
    assert_state(ROSTER_GATHERING);
    now_ms += 2000;
    join(3);
    assert_state(ROSTER_OPEN);
    say(1, MESSAGE_KEEP_ALIVE);
    time_goes_on(2999);
    assert_state(ROSTER_OPEN);
    time_goes_on(1);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(nodes_that_do_not_join_end_the_job)
{
    create(3, 3, 0);
    join(1);
    join(2);
    for (int i = 0; i < 600; i++) {
        ck_assert_uint_le(roster_deadline_ms(r), 601000);
        say(1, MESSAGE_KEEP_ALIVE);
        say(2, MESSAGE_KEEP_ALIVE);
        time_goes_on(1000);
    }
    assert_state(ROSTER_CLOSED);
    const struct message_verdict *v = roster_get_verdict(r);
    ck_assert_int_eq(v->outcome, MESSAGE_MISSING);
    ck_assert_int_eq(v->exit_code, 69);
    ck_assert_str_eq(
        v->text, "timed out after 600 s waiting for nodes: 2 of at least 3 have joined; start the "
                 "others with the same --rdzv-id and --rdzv-endpoint, or raise --start-timeout");
}
END_TEST

/* --- Order of ranks, through the whole --- */

START_TEST(the_next_rank_follows_a_lost_rank_0_and_newcomers_fill_holes)
{
    create_running(2, 4, 4, 0);
    gone(1);
    time_goes_on(50);
    gone(3);
    time_goes_on(50);
    assert_state(ROSTER_STOPPING);
    say_hello(9, hello_of(9), false);
    say_hello(5, hello_of(5), false);
    stops(2);
    say(4, MESSAGE_STOPPING);
    say(4, MESSAGE_STOPPED);
    assert_said(" 2<MEMBERS 2<SEALED RUNNING");
    say(2, MESSAGE_READY);
    ck_assert_uint_eq(told(5, MESSAGE_SEALED)->sealed.node_index, 1); /* the hole */
    ck_assert_uint_eq(told(4, MESSAGE_SEALED)->sealed.node_index, 2);
    ck_assert_uint_eq(told(9, MESSAGE_SEALED)->sealed.node_index, 3);
}
END_TEST

START_TEST(a_host_file_orders_ranks)
{
    static const char *const expected[] = {"node3", "node1", "node2"};
    create_expecting(3, 3, 0, expected, 3);
    join(1);
    join(2);
    join(3);
    assert_said(" 3<WELCOME 3<MEMBERS 3<SEALED RUNNING");
}
END_TEST

/* --- Refusals --- */

static void assert_refused(struct message_hello h, enum message_refusal why, bool again,
                           const char *text)
{
    say_hello(99, h, false);
    ck_assert_str_eq(said, " 99<REFUSED 99 closed");
    const struct message_refused *m = &told(99, MESSAGE_REFUSED)->refused;
    ck_assert_int_eq(m->why, why);
    ck_assert_int_eq(m->again, again);
    ck_assert_str_eq(m->text, text);
}

START_TEST(unequal_numbers_of_nodes_are_refused_and_both_named)
{
    create(2, 4, 0);
    join(1);
    struct message_hello h = hello_of(2);
    h.terms.max_nodes = 2;
    assert_refused(h, MESSAGE_REFUSED_TERMS, false,
                   "node2 was started with --nnodes=2:2, node1 with --nnodes=2:4: use the same "
                   "--nnodes on all nodes");
}
END_TEST

START_TEST(two_nodes_with_one_node_rank_are_both_named)
{
    create(2, 4, 0);
    struct message_hello h = hello_of(1);
    h.node_rank = 3;
    say_hello(1, h, false);
    h = hello_of(2);
    h.node_rank = 3;
    assert_refused(h, MESSAGE_REFUSED_NODE_RANK, false,
                   "node1 and node2 were both started with --node-rank=3: give each node its own");
    now_ms +=
        LEASE_KEEP_ALIVE_MS + LEASE_MARGIN_MS + 1; /* is it gone, and this one in its place? */
    assert_refused(h, MESSAGE_REFUSED_NODE_RANK, true,
                   "node1 and node2 were both started with --node-rank=3: give each node its own");
    gone(1);
    assert_refused(h, MESSAGE_REFUSED_NODE_RANK, true,
                   "node1 and node2 were both started with --node-rank=3: give each node its own");
    time_goes_on(50);
    say_hello(2, h, false);
    assert_said(" 2<WELCOME");
}
END_TEST

START_TEST(rank_0_is_parked_by_one_node)
{
    create(2, 2, 0);
    struct message_hello h = hello_of(5);
    h.keeps_rank_0 = true;
    say_hello(5, h, false);
    h = hello_of(1);
    h.keeps_rank_0 = true;
    assert_refused(h, MESSAGE_REFUSED_NOT_FIRST, false,
                   "node5 and node1 were both started with --node-rank 0: give each node its own");
    join(1);
    ck_assert(told(5, MESSAGE_SEALED)->sealed.leads);
}
END_TEST

START_TEST(other_different_terms_only_cause_a_note)
{
    create(2, 2, 0);
    struct message_hello h = hello_of(1);
    h.terms.max_restarts = 3;
    h.terms.admit_at = MESSAGE_ADMIT_AT_CHECKPOINT;
    say_hello(1, h, false);
    ck_assert_str_eq(told(1, MESSAGE_WELCOME)->welcome.note, "--max-restarts, --admit-at");
}
END_TEST

START_TEST(conflicting_limits_are_refused)
{
    struct roster_limits limits = {.lease_ms = 1000, .keep_alive_ms = 1000};
    struct co_error err;
    create(1, 1, 0);
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, 0, &(struct roster *){NULL}, &err),
                     -EINVAL);
    limits = (struct roster_limits){.max_nodes = 3};
    terms.max_nodes = 4;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, 0, &(struct roster *){NULL}, &err),
                     -EINVAL);
    ck_assert_str_eq(err.text, "invalid number of nodes: minimum 1, maximum 4; expected 1 to 3");
    roster_destroy(NULL);
}
END_TEST

START_TEST(more_nodes_than_the_limit_are_refused)
{
    struct roster_limits limits = {.max_nodes = 2};
    create(2, 2, 0);
    roster_destroy(r);
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
    join(1);
    join(2);
    assert_refused(hello_of(3), MESSAGE_REFUSED_FULL, false,
                   "2 nodes have joined, which is the maximum");
}
END_TEST

/* --- What is waited for --- */

START_TEST(a_waiting_node_learns_which_nodes_are_missing)
{
    static const char *const expected[] = {"node1", "node2", "node3", "node4"};
    create_expecting(4, 4, 0, expected, 4);
    join(1);
    join(3);
    now_ms += 200;
    say(1, MESSAGE_KEEP_ALIVE);
    const struct message_progress *p = told(1, MESSAGE_LEASE)->lease.progress;
    ck_assert_int_eq(p->wait, MESSAGE_WAIT_NODES);
    ck_assert_uint_eq(p->n_here, 2);
    ck_assert_uint_eq(p->n_wanted, 4);
    ck_assert_uint_eq(p->elapsed_ms, 200);
    ck_assert_uint_eq(p->left_ms, 600000 - 200);
    ck_assert_uint_eq(p->n_names, 2);
    ck_assert_str_eq(p->names[0], "node2");
    ck_assert_str_eq(p->names[1], "node4");
}
END_TEST

START_TEST(missing_node_ranks_are_named_when_names_are_unknown)
{
    create(20, 20, 0);
    struct message_hello h = hello_of(1);
    h.node_rank = 1;
    say_hello(1, h, false);
    now_ms += 200;
    say(1, MESSAGE_KEEP_ALIVE);
    const struct message_progress *p = told(1, MESSAGE_LEASE)->lease.progress;
    ck_assert_uint_eq(p->n_all_names, 19);
    ck_assert_uint_eq(p->n_names, MESSAGE_MAX_NAMES);
    ck_assert_str_eq(p->names[0], "--node-rank=0");
    ck_assert_str_eq(p->names[1], "--node-rank=2");
}
END_TEST

START_TEST(a_node_that_waits_for_a_stop_learns_which_nodes_must_stop)
{
    create_running(1, 3, 2, 0);
    join(3);
    stops(1);
    now_ms += 200;
    say(3, MESSAGE_KEEP_ALIVE);
    const struct message_progress *p = told(3, MESSAGE_LEASE)->lease.progress;
    ck_assert_int_eq(p->wait, MESSAGE_WAIT_STOP);
    ck_assert_uint_eq(p->n_names, 1);
    ck_assert_str_eq(p->names[0], "node2");
}
END_TEST

/* --- Addresses --- */

START_TEST(the_leader_gets_all_addresses_in_several_messages)
{
    static struct message_address many[MESSAGE_MAX_ADDRESSES];
    enum { N = 400 };
    create(N, N, 0);
    uint32_t n = 0, n_messages = 0;
    for (int i = 1; i <= N; i++) {
        struct message_hello h = hello_of(i % 100);
        h.instance[1] = (uint8_t)(i / 100 + 1);
        h.addresses = many;
        h.n_addresses = MESSAGE_MAX_ADDRESSES;
        say_hello(i, h, false);
    }
    for (size_t i = 0; i < last.n; i++) {
        const struct message *m = &last.items[i].message;
        if (last.items[i].type != ROSTER_SEND || m->type != MESSAGE_MEMBERS)
            continue;
        ck_assert_uint_eq(m->members.n_all, N * MESSAGE_MAX_ADDRESSES);
        ck_assert_uint_eq(m->members.first, n);
        n += (uint32_t)m->members.n;
        n_messages++;
    }
    ck_assert_uint_eq(n, N * MESSAGE_MAX_ADDRESSES);
    ck_assert_uint_eq(n_messages, 4);
}
END_TEST

TEST_SUITE(roster)
{
    Suite *suite = suite_create("roster");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, each_pair_of_state_and_event_has_one_answer);
    tcase_add_test(all, the_drawing_is_the_table);
    tcase_add_test(all, a_fixed_number_of_nodes_is_sealed_when_the_last_one_joins);
    tcase_add_test(all, a_window_is_open_from_the_minimum_to_the_maximum);
    tcase_add_test(all, the_window_closes_when_too_few_are_left_and_opens_again);
    tcase_add_test(all, nodes_that_do_not_join_end_the_job);
    tcase_add_test(all, the_next_rank_follows_a_lost_rank_0_and_newcomers_fill_holes);
    tcase_add_test(all, a_host_file_orders_ranks);
    tcase_add_test(all, unequal_numbers_of_nodes_are_refused_and_both_named);
    tcase_add_test(all, two_nodes_with_one_node_rank_are_both_named);
    tcase_add_test(all, rank_0_is_parked_by_one_node);
    tcase_add_test(all, other_different_terms_only_cause_a_note);
    tcase_add_test(all, conflicting_limits_are_refused);
    tcase_add_test(all, more_nodes_than_the_limit_are_refused);
    tcase_add_test(all, a_waiting_node_learns_which_nodes_are_missing);
    tcase_add_test(all, missing_node_ranks_are_named_when_names_are_unknown);
    tcase_add_test(all, a_node_that_waits_for_a_stop_learns_which_nodes_must_stop);
    tcase_add_test(all, the_leader_gets_all_addresses_in_several_messages);
    suite_add_tcase(suite, all);
    return suite;
}
