/* The node end, with the test as the store end: places, windows, bounds, and bad frames. */
#include "rendezvous/relay/relay_node.h"

#include "common/error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 100 };

static const struct relay_node_limits limits = {
    .max_clients = 3, .window_bytes = WINDOW, .max_bytes = 250};
static struct relay_node *node;
static struct relay_client *c;
static struct relay_frame out;
static struct co_error err;
static const uint8_t zeros[WINDOW];

static struct relay_client *open_client(void)
{
    struct relay_client *ret;
    ck_assert_int_eq(relay_node_open(node, NULL, &ret, &err), 0);
    return ret;
}

static void set_up(void)
{
    err = (struct co_error){0};
    ck_assert_int_eq(relay_node_create(&limits, &node, &err), 0);
    c = open_client();
}

static void tear_down(void)
{
    relay_node_destroy(node);
}

/* The store sends one record. */
static int take(enum relay_kind kind, uint32_t client, uint32_t number, const void *bytes)
{
    struct relay_frame in = {.len = 0};
    const struct relay_record m = {kind, client, number, bytes};
    relay_wire_put(&in, &m);
    return relay_node_take(node, in.bytes, in.len, &err);
}

/* What the node sends: "OPEN 0, DATA 0 5, CLOSE 0". */
static const char *sent(void)
{
    static const char *const names[] = {"", "OPEN", "DATA", "CREDIT", "CLOSE", "ASK", "QUIET"};
    static char text[1024];
    struct relay_record m;
    size_t len = 0;
    text[0] = '\0';
    relay_node_put(node, &out);
    const uint8_t *at = out.bytes;
    while (relay_wire_next(RELAY_NODE, &at, out.bytes + out.len, &m, &err) == 1) {
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s %u", len > 0 ? ", " : "",
                                names[m.kind], m.client);
        if (m.number > 0)
            len += (size_t)snprintf(text + len, sizeof text - len, " %u", m.number);
    }
    return text;
}

START_TEST(bytes_follow_the_opening_and_precede_the_closing)
{
    ck_assert_int_eq(relay_client_push(c, zeros, 5), 0);
    relay_client_leave(c);
    ck_assert_str_eq(sent(), "OPEN 0, DATA 0 5, CLOSE 0");
    ck_assert_str_eq(sent(), "");
}
END_TEST

START_TEST(a_place_is_free_when_both_ends_have_closed)
{
    relay_client_release(c);
    sent();
    struct relay_client *other = open_client();
    ck_assert_str_eq(sent(), "OPEN 1");
    ck_assert_int_eq(take(RELAY_DATA, 0, 3, "old"), 0);
    ck_assert_int_eq(take(RELAY_CLOSE, 0, 0, NULL), 0);
    ck_assert_uint_eq(co_buf_len(relay_client_replies(other)), 0);
    open_client();
    ck_assert_str_eq(sent(), "OPEN 0");
}
END_TEST

START_TEST(a_client_has_its_window_until_the_store_gives_credit)
{
    ck_assert_uint_eq(relay_client_space(c), WINDOW);
    ck_assert_int_eq(relay_client_push(c, zeros, WINDOW), 0);
    ck_assert_uint_eq(relay_client_space(c), 0);
    ck_assert_int_eq(relay_client_push(c, zeros, 1), -EINVAL);
    sent();
    ck_assert_uint_eq(relay_client_space(c), 0);
    ck_assert_int_eq(take(RELAY_CREDIT, 0, 60, NULL), 0);
    ck_assert_uint_eq(relay_client_space(c), 60);
    ck_assert_ptr_eq(relay_node_next_due(node), c);
    ck_assert_ptr_null(relay_node_next_due(node));
}
END_TEST

START_TEST(credit_is_returned_when_the_client_has_read_half_a_window)
{
    sent();
    ck_assert_int_eq(take(RELAY_DATA, 0, WINDOW, zeros), 0);
    relay_client_sent(c, 49);
    ck_assert_str_eq(sent(), "");
    relay_client_sent(c, 1);
    ck_assert_str_eq(sent(), "CREDIT 0 50");
}
END_TEST

START_TEST(clients_take_turns)
{
    static const uint8_t many[1 << 20];
    const struct relay_node_limits large = {
        .max_clients = 3, .window_bytes = 1 << 20, .max_bytes = 4 << 20};
    relay_node_destroy(node);
    ck_assert_int_eq(relay_node_create(&large, &node, &err), 0);
    c = open_client();
    ck_assert_int_eq(relay_client_push(c, many, sizeof many), 0);
    struct relay_client *other = open_client();
    ck_assert_int_eq(relay_client_push(other, many, 10), 0);
    ck_assert_ptr_nonnull(strstr(sent(), "OPEN 0, OPEN 1, DATA 0 8192, DATA 1 10, DATA 0 8192"));
}
END_TEST

START_TEST(all_clients_together_are_bounded)
{
    struct relay_client *second = open_client(), *third = open_client();
    ck_assert_int_eq(relay_client_push(c, zeros, WINDOW), 0);
    ck_assert_int_eq(relay_client_push(second, zeros, WINDOW), 0);
    ck_assert_uint_eq(relay_client_space(third), 50);
    ck_assert_int_eq(relay_client_push(third, zeros, 50), 0);
    ck_assert_uint_eq(relay_client_space(third), 0);
    sent();
    ck_assert_uint_eq(relay_client_space(third), 50);
    ck_assert_ptr_nonnull(relay_node_next_due(node)); /* it may be read from again */
}
END_TEST

START_TEST(the_client_that_reads_least_is_dropped_when_replies_pile_up)
{
    const char *text;
    struct relay_client *slow = open_client();
    open_client();
    sent();
    ck_assert_int_eq(take(RELAY_DATA, 0, 80, zeros), 0);
    ck_assert_int_eq(take(RELAY_DATA, 1, 100, zeros), 0);
    ck_assert_int_eq(take(RELAY_DATA, 2, 90, zeros), 0);
    ck_assert(!relay_client_is_ended(c, &text));
    ck_assert(relay_client_is_ended(slow, &text));
    ck_assert_str_eq(text, "dropped with 100 bytes of replies unread: the clients of this node "
                           "have 270 (at most 250)");
    ck_assert_uint_eq(relay_node_n_bytes(node), 170);
    ck_assert_str_eq(sent(), "CREDIT 1 100, CLOSE 1");
}
END_TEST

START_TEST(one_client_more_than_the_maximum_is_refused)
{
    struct relay_client *more;
    open_client();
    open_client();
    ck_assert_int_eq(relay_node_open(node, NULL, &more, &err), -EUSERS);
    ck_assert_str_eq(err.text, "refused: 3 clients are connected, the maximum");
    relay_client_release(c); /* its place is taken until the store has confirmed it */
    ck_assert_int_eq(relay_node_open(node, NULL, &more, &err), -EUSERS);
}
END_TEST

START_TEST(a_client_that_the_store_ends_gets_its_replies_and_the_reason)
{
    const char *text;
    sent();
    ck_assert_int_eq(take(RELAY_DATA, 0, 2, "ok"), 0);
    ck_assert_int_eq(take(RELAY_CLOSE, 0, 9, "bad bytes"), 0);
    ck_assert(relay_client_is_ended(c, &text));
    ck_assert_str_eq(text, "bad bytes");
    ck_assert_uint_eq(co_buf_len(relay_client_replies(c)), 2);
    ck_assert_uint_eq(relay_client_space(c), 0);
    ck_assert_str_eq(sent(), "CLOSE 0");
    ck_assert_uint_eq(relay_node_n_clients(node), 0);
    relay_client_sent(c, 2);
    relay_client_release(c);
}
END_TEST

START_TEST(silence_is_reported_after_the_bytes_and_not_if_more_came)
{
    sent();
    ck_assert_int_eq(take(RELAY_ASK, 0, 0, NULL), 0);
    ck_assert(relay_client_is_asked(c));
    relay_client_push(c, zeros, 1);
    ck_assert(!relay_client_is_asked(c));
    relay_client_quiet(c);
    ck_assert_str_eq(sent(), "DATA 0 1");
    ck_assert_int_eq(take(RELAY_ASK, 0, 0, NULL), 0);
    relay_client_quiet(c);
    ck_assert_str_eq(sent(), "QUIET 0");
}
END_TEST

START_TEST(bad_frames_are_refused)
{
    sent();
    ck_assert_int_eq(take(RELAY_DATA, 1, 1, zeros), -EPROTO);
    ck_assert_str_eq(err.text, "a relay frame names client 1, which is not open");
    ck_assert_int_eq(take(RELAY_CREDIT, 0, 1, NULL), -EPROTO);
    ck_assert_str_eq(err.text, "a relay frame gives a client credit beyond its window");
    ck_assert_int_eq(take(RELAY_DATA, 0, 90, zeros), 0);
    ck_assert_int_eq(take(RELAY_DATA, 0, 11, zeros), -EPROTO);
    ck_assert_str_eq(err.text, "a relay frame has 11 bytes for a client: its credit is 10");
    ck_assert_int_eq(take(RELAY_CLOSE, 0, 0, NULL), 0);
    ck_assert_int_eq(take(RELAY_CLOSE, 0, 0, NULL), -EPROTO);
    ck_assert_int_eq(relay_node_take(node, (const uint8_t *)"\2\0\0", 3, &err), -EPROTO);
}
END_TEST

START_TEST(a_link_that_ends_frees_what_its_clients_hold)
{
    relay_client_push(c, zeros, 10);
    sent();
    take(RELAY_DATA, 0, 10, zeros);
    take(RELAY_CLOSE, 0, 0, NULL);
    sent(); /* tear_down() ends the link; a sanitizer reports what is left */
    ck_assert_uint_eq(relay_node_n_clients(node), 0);
}
END_TEST

START_TEST(limits_are_checked)
{
    struct relay_node *other;
    struct relay_node_limits bad = limits;
    bad.max_clients = RELAY_MAX_CLIENTS + 1;
    ck_assert_int_eq(relay_node_create(&bad, &other, &err), -EINVAL);
    bad = limits;
    bad.window_bytes = 1;
    ck_assert_int_eq(relay_node_create(&bad, &other, &err), -EINVAL);
    bad = limits;
    bad.max_bytes = 0;
    ck_assert_int_eq(relay_node_create(&bad, &other, &err), -EINVAL);
}
END_TEST

TEST_SUITE(relay_node)
{
    Suite *suite = suite_create("relay_node");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, bytes_follow_the_opening_and_precede_the_closing);
    tcase_add_test(all, a_place_is_free_when_both_ends_have_closed);
    tcase_add_test(all, a_client_has_its_window_until_the_store_gives_credit);
    tcase_add_test(all, credit_is_returned_when_the_client_has_read_half_a_window);
    tcase_add_test(all, clients_take_turns);
    tcase_add_test(all, all_clients_together_are_bounded);
    tcase_add_test(all, the_client_that_reads_least_is_dropped_when_replies_pile_up);
    tcase_add_test(all, one_client_more_than_the_maximum_is_refused);
    tcase_add_test(all, a_client_that_the_store_ends_gets_its_replies_and_the_reason);
    tcase_add_test(all, silence_is_reported_after_the_bytes_and_not_if_more_came);
    tcase_add_test(all, bad_frames_are_refused);
    tcase_add_test(all, a_link_that_ends_frees_what_its_clients_hold);
    tcase_add_test(all, limits_are_checked);
    suite_add_tcase(suite, all);
    return suite;
}
