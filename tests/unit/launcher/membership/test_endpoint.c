/* Nodes that find each other, on real sockets of the loopback interface. tests/system has network
 * namespaces, and tests names and addresses that lead elsewhere. Several nodes are in this one
 * process; still, the kernel gives a port to only one of them. test_endpoint_port.c has the port on
 * loan, test_self_probe.c how an endpoint recognizes itself. */
#include "some_endpoints.h"

#include "launcher/membership/self_probe.h"

#include <stdlib.h>
#include <string.h>

/* --- election of the endpoint --- */

START_TEST(a_single_node_needs_no_socket)
{
    struct node *n = make(0, NULL, JOB_HOST_FOUND_OUT);
    begin(n);
    ck_assert_int_eq(n->n_up, 0); /* never from within a call */
    AWAIT(n->n_up == 1);
    ck_assert(endpoint_is_here(n->endpoint));
    ck_assert(!endpoint_lend_port(n->endpoint, port));
    say_hello(n);
    AWAIT(n->is_welcome);
    endpoint_disconnect(n->endpoint);
    endpoint_connect(n->endpoint);
    AWAIT(n->n_up == 2);
}
END_TEST

START_TEST(the_first_on_a_host_is_the_endpoint_and_others_join)
{
    struct node *a = make(0, "127.0.0.1", JOB_HOST_FOUND_OUT);
    struct node *b = make(1, "127.0.0.1", JOB_HOST_FOUND_OUT);
    char text[64];
    begin(a);
    AWAIT(a->n_up == 1);
    ck_assert(endpoint_is_here(a->endpoint));
    begin(b);
    AWAIT(b->n_up == 1);
    ck_assert(!endpoint_is_here(b->endpoint));
    say_hello(a);
    say_hello(b);
    AWAIT(a->is_welcome && b->is_welcome);
    ck_assert_int_eq(a->n_down + b->n_down, 0);
    ck_assert_int_eq(endpoint_own_address(b->endpoint, text, sizeof text), 0);
    ck_assert_str_eq(text, "127.0.0.1");
    ck_assert_int_eq(endpoint_own_address(a->endpoint, text, sizeof text), 0);
    ck_assert_str_eq(text, "127.0.0.1");
}
END_TEST

static bool all_are_up(void)
{
    bool all = true;
    for (int i = 0; i < MAX_NODES; i++) {
        struct node *n = &nodes[i];
        if (n->n_up == 0 && n->n_down > 0) {
            n->n_down = 0;
            begin(n);
        }
        all = all && n->n_up == 1;
    }
    return all;
}

static const char *const names[] = {"127.0.0.1", "localhost", "127.0.0.7", "::1"};

START_TEST(one_of_several_starting_nodes_becomes_the_endpoint)
{
    int n_here = 0;
    for (int i = 0; i < MAX_NODES; i++) {
        make(i, names[_i], JOB_HOST_FOUND_OUT)->spec.world.key = _i == 0 ? &keys[0] : NULL;
        begin(&nodes[i]);
    }
    AWAIT(all_are_up());
    for (int i = 0; i < MAX_NODES; i++)
        n_here += endpoint_is_here(nodes[i].endpoint);
    ck_assert_int_eq(n_here, 1);
    for (int i = 0; i < MAX_NODES; i++) {
        say_hello(&nodes[i]);
        AWAIT(nodes[i].is_welcome);
    }
}
END_TEST

START_TEST(the_second_of_two_starting_nodes_joins_without_a_pause)
{
    struct node *a = make(0, "127.0.0.1", JOB_HOST_FOUND_OUT);
    struct node *b = make(1, "127.0.0.1", JOB_HOST_FOUND_OUT);
    begin(a);
    begin(b);
    AWAIT(a->n_up == 1 && b->n_up == 1);
    ck_assert_int_eq(a->n_down + b->n_down, 0);
}
END_TEST

START_TEST(a_node_that_may_not_be_the_endpoint_names_it)
{
    struct node *n = make(0, "127.0.0.1", JOB_HOST_ELSEWHERE);
    char expected[100];
    begin(n);
    AWAIT(n->n_down == 1);
    snprintf(expected, sizeof expected, "127.0.0.1:%u: connection refused", (unsigned)port);
    ck_assert_str_eq(n->text, expected);
    ck_assert_int_eq(n->exit_code, 0);
    ck_assert(!endpoint_is_here(n->endpoint));
    struct node *host = make(1, "127.0.0.1", JOB_HOST_HERE);
    begin(host);
    AWAIT(host->n_up == 1);
    begin(n);
    AWAIT(n->n_up == 1);
}
END_TEST

START_TEST(an_unresolvable_name_is_reported)
{
    struct node *n = make(0, "no-such-node.invalid", JOB_HOST_FOUND_OUT);
    begin(n);
    AWAIT(n->n_down == 1);
    ck_assert_int_eq(n->exit_code, 0); /* it may get an address yet */
    ck_assert_msg(strstr(n->text, "cannot resolve 'no-such-node.invalid'") != NULL, "%s", n->text);
}
END_TEST

START_TEST(a_node_waits_while_its_predecessor_has_the_port)
{
    struct descendant s;
    begin_descendant(&s, NULL);
    struct node *n = make(0, "127.0.0.1", JOB_HOST_FOUND_OUT);
    begin(n);
    AWAIT(n->n_down == 1);
    ck_assert_int_eq(n->exit_code, 0);
    close_now((uv_handle_t *)&s.tcp);
    begin(n);
    AWAIT(n->n_up == 1);
    ck_assert(endpoint_is_here(n->endpoint));
}
END_TEST

START_TEST(another_protocol_at_the_endpoint_is_a_rejection)
{
    struct descendant s;
    begin_descendant(&s, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    struct node *n = make(0, "127.0.0.1", JOB_HOST_FOUND_OUT);
    begin(n);
    AWAIT(n->n_down == 1);
    ck_assert_int_eq(n->exit_code, ROSTER_LINK_UNAVAILABLE);
    ck_assert(n->is_rejected);
    close_now((uv_handle_t *)&s.tcp);
}
END_TEST

START_TEST(a_node_admitted_elsewhere_does_not_become_the_endpoint)
{
    struct node *a = make(0, "127.0.0.1", JOB_HOST_FOUND_OUT);
    struct node *b = make(1, "127.0.0.1", JOB_HOST_FOUND_OUT);
    begin(a);
    AWAIT(a->n_up == 1);
    begin(b);
    AWAIT(b->n_up == 1);
    say_hello(b);
    AWAIT(b->is_welcome);
    end(a);
    AWAIT(b->n_down == 1);
    begin(b);
    AWAIT(b->n_down == 2);
    ck_assert(!endpoint_is_here(b->endpoint));
    struct node *c = make(2, "127.0.0.1", JOB_HOST_FOUND_OUT); /* of the next job */
    begin(c);
    AWAIT(c->n_up == 1);
    ck_assert(endpoint_is_here(c->endpoint));
}
END_TEST

START_TEST(a_refused_node_may_become_the_endpoint_later)
{
    struct node *a = make(0, "127.0.0.1", JOB_HOST_FOUND_OUT);
    struct node *b = make(1, "127.0.0.1", JOB_HOST_FOUND_OUT);
    b->spec.run_id = "job8";
    begin(a);
    AWAIT(a->n_up == 1);
    begin(b);
    AWAIT(b->n_up == 1);
    say_hello(b);
    AWAIT(b->is_refused);
    end(a);
    AWAIT(b->n_down == 1);
    begin(b);
    AWAIT(b->n_up == 2);
    ck_assert(endpoint_is_here(b->endpoint));
}
END_TEST

/* --- by order --- */

START_TEST(for_a_designated_endpoint_a_taken_port_is_final)
{
    struct descendant s;
    char part[100];
    begin_descendant(&s, NULL);
    struct node *n = make(0, "127.0.0.1", JOB_HOST_HERE);
    begin(n);
    ck_assert_int_eq(n->n_down, 0); /* never from within a call */
    AWAIT(n->n_down == 1);
    snprintf(part, sizeof part, "127.0.0.1 port %u: address already in use", (unsigned)port);
    ck_assert(n->exit_code == ROSTER_LINK_UNAVAILABLE && !n->is_rejected);
    ck_assert_msg(strstr(n->text, "this node is the rendezvous endpoint") == n->text, "%s",
                  n->text);
    ck_assert_msg(strstr(n->text, part) != NULL, "%s", n->text);
    close_now((uv_handle_t *)&s.tcp);
}
END_TEST

START_TEST(a_designated_endpoint_starts_and_reports_an_unresolvable_name)
{
    char text[64];
    struct node *n = make(0, "no-such-node.invalid", JOB_HOST_HERE);
    begin(n);
    AWAIT(n->n_up == 1);
    ck_assert(endpoint_is_here(n->endpoint));
    AWAIT(n->n_notes == 1);
    ck_assert_msg(strstr(n->note,
                         "this node is the rendezvous endpoint, but other nodes may not find it: "
                         "cannot resolve 'no-such-node.invalid': ") == n->note,
                  "%s", n->note);
    /* others know it by the name that was given */
    ck_assert_int_eq(endpoint_own_address(n->endpoint, text, sizeof text), -ENOTCONN);
}
END_TEST

static void on_tick(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
    uv_stop(&loop);
}

START_TEST(a_designated_endpoint_at_its_own_name_reports_nothing)
{
    struct node *n = make(0, "127.0.0.1", JOB_HOST_HERE);
    bool is_late = false; /* what must not come has no event: wait until it would have come */
    uv_timer_t tick;
    begin(n);
    uv_timer_init(&loop, &tick);
    tick.data = &is_late;
    uv_timer_start(&tick, on_tick, SELF_PROBE_MS + 500, 0);
    AWAIT(is_late);
    close_now((uv_handle_t *)&tick);
    ck_assert_int_eq(n->n_up, 1);
    ck_assert_int_eq(n->n_notes, 0);
}
END_TEST

/* --- tokens --- */

START_TEST(the_same_token_admits_a_node)
{
    struct node *a = make(0, "127.0.0.1", JOB_HOST_FOUND_OUT);
    struct node *b = make(1, "127.0.0.1", JOB_HOST_FOUND_OUT);
    a->spec.world.key = b->spec.world.key = &keys[0];
    begin(a);
    AWAIT(a->n_up == 1);
    begin(b);
    AWAIT(b->n_up == 1);
    say_hello(b);
    AWAIT(b->is_welcome);
}
END_TEST

START_TEST(a_different_or_missing_token_is_a_rejection)
{
    struct seal_key *const theirs[][2] = {{&keys[0], &keys[1]}, {&keys[0], NULL}, {NULL, &keys[0]}};
    struct node *a = make(0, "127.0.0.1", JOB_HOST_FOUND_OUT);
    struct node *b = make(1, "127.0.0.1", JOB_HOST_FOUND_OUT);
    a->spec.world.key = theirs[_i][0];
    b->spec.world.key = theirs[_i][1];
    begin(a);
    AWAIT(a->n_up == 1);
    begin(b);
    AWAIT(b->n_down == 1);
    ck_assert_msg(b->exit_code == ROSTER_LINK_NO_ACCESS && b->is_rejected, "%s", b->text);
    ck_assert_msg(strstr(b->text, "token") != NULL, "%s", b->text);
    ck_assert_int_eq(b->n_up, 0);
}
END_TEST

TEST_SUITE(endpoint)
{
    Suite *suite = suite_create("endpoint");
    TCase *t = tcase_create("endpoint");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_single_node_needs_no_socket);
    tcase_add_test(t, the_first_on_a_host_is_the_endpoint_and_others_join);
    tcase_add_loop_test(t, one_of_several_starting_nodes_becomes_the_endpoint, 0, 4);
    tcase_add_test(t, the_second_of_two_starting_nodes_joins_without_a_pause);
    tcase_add_test(t, a_node_that_may_not_be_the_endpoint_names_it);
    tcase_add_test(t, an_unresolvable_name_is_reported);
    tcase_add_test(t, a_node_waits_while_its_predecessor_has_the_port);
    tcase_add_test(t, another_protocol_at_the_endpoint_is_a_rejection);
    tcase_add_test(t, a_node_admitted_elsewhere_does_not_become_the_endpoint);
    tcase_add_test(t, a_refused_node_may_become_the_endpoint_later);
    tcase_add_test(t, for_a_designated_endpoint_a_taken_port_is_final);
    tcase_add_test(t, a_designated_endpoint_starts_and_reports_an_unresolvable_name);
    tcase_add_test(t, a_designated_endpoint_at_its_own_name_reports_nothing);
    tcase_add_test(t, the_same_token_admits_a_node);
    tcase_add_loop_test(t, a_different_or_missing_token_is_a_rejection, 0, 3);
    suite_add_tcase(suite, t);
    suite_add_tcase(suite, endpoint_port_cases());
    suite_add_tcase(suite, port_probe_cases());
    suite_add_tcase(suite, self_probe_cases());
    return suite;
}
