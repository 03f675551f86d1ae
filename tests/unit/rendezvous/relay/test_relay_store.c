/* The store end, with the test as the node end: sessions, windows, bounds, and bad frames. */
#include "rendezvous/relay/relay_store.h"

#include "common/error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 100, MID_MS = 30000 };

static struct relay_host host;
static struct relay_store *link;
static struct relay_frame out;
static struct co_error err;
static uint64_t now_ms;

#define PING  "\15ping"           /* is answered with "ping" */
#define HELLO "\0\316\367\205\74" /* VALIDATE and its magic number */
#define WAIT  "\6\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0k"
#define SET   "\1\1\0\0\0\0\0\0\0k\1\0\0\0\0\0\0\0v"

static void set_up(void)
{
    const struct store_limits store_limits = {.max_bytes = 1 << 20, .max_names = 100};
    err = (struct co_error){0};
    now_ms = 1000;
    host = (struct relay_host){
        .sessions = {.limits = {.max_key_bytes = 64,
                                .max_value_bytes = 4096,
                                .max_keys = 16,
                                .max_request_bytes = 8192},
                     .high_water_bytes = 1 << 20,
                     .max_reply_bytes = 1 << 20,
                     .max_work = 1000},
        .max_clients = 4,
        .window_bytes = WINDOW,
        .max_buffer_bytes = 1 << 20,
        .mid_request_ms = MID_MS,
    };
    ck_assert_int_eq(
        store_create(&store_limits, 1, session_on_wake, NULL, &host.sessions.store, &err), 0);
    relay_host_init(&host);
    ck_assert_int_eq(relay_store_create(&host, NULL, &link, &err), 0);
}

static void tear_down(void)
{
    relay_store_destroy(link);
    ck_assert_uint_eq(host.n_clients, 0);
    ck_assert_uint_eq(host.n_buffer_bytes, 0);
    store_destroy(host.sessions.store);
}

static int take_from(struct relay_store *r, enum relay_kind kind, uint32_t client, uint32_t number,
                     const void *bytes)
{
    struct relay_frame in = {.len = 0};
    const struct relay_record m = {kind, client, number, bytes};
    relay_wire_put(&in, &m);
    return relay_store_take(r, in.bytes, in.len, now_ms, &err);
}

static int take(enum relay_kind kind, uint32_t client, uint32_t number, const void *bytes)
{
    return take_from(link, kind, client, number, bytes);
}

#define SAY(client, bytes) ck_assert_int_eq(take(RELAY_DATA, client, sizeof(bytes) - 1, bytes), 0)

/* What the store sends: "DATA 0 4, CLOSE 0 9 bad bytes". */
static const char *sent_by(struct relay_store *r)
{
    static const char *const names[] = {"", "OPEN", "DATA", "CREDIT", "CLOSE", "ASK", "QUIET"};
    static char text[2048];
    struct relay_record m;
    size_t len = 0;
    text[0] = '\0';
    relay_store_put(r, &out);
    const uint8_t *at = out.bytes;
    while (relay_wire_next(RELAY_STORE, &at, out.bytes + out.len, &m, &err) == 1) {
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s %u", len > 0 ? ", " : "",
                                names[m.kind], m.client);
        if (m.number > 0)
            len += (size_t)snprintf(text + len, sizeof text - len, " %u", m.number);
        if (m.kind == RELAY_CLOSE && m.number > 0)
            len += (size_t)snprintf(text + len, sizeof text - len, " %.*s", (int)m.number,
                                    (const char *)m.bytes);
    }
    return text;
}

static const char *sent(void)
{
    return sent_by(link);
}

static void open_client(uint32_t client)
{
    ck_assert_int_eq(take(RELAY_OPEN, client, 0, NULL), 0);
    SAY(client, HELLO);
}

START_TEST(a_request_is_answered)
{
    open_client(0);
    SAY(0, PING);
    ck_assert_str_eq(sent(), "DATA 0 4");
    ck_assert_mem_eq(out.bytes + RELAY_HEADER_BYTES, "ping", 4);
    ck_assert(!relay_store_has_output(link));
}
END_TEST

START_TEST(a_request_may_come_in_pieces)
{
    open_client(0);
    for (size_t i = 0; i < sizeof PING - 1; i++) {
        ck_assert_str_eq(sent(), "");
        ck_assert_int_eq(take(RELAY_DATA, 0, 1, &PING[i]), 0);
    }
    ck_assert_str_eq(sent(), "DATA 0 4");
}
END_TEST

START_TEST(a_client_that_has_its_reply_keeps_no_buffer)
{
    open_client(0);
    SAY(0, "\15pin"); /* a part of a request, then all of it */
    ck_assert_uint_gt(host.n_buffer_bytes, 0);
    SAY(0, "g");
    ck_assert_str_eq(sent(), "DATA 0 4");
    ck_assert_uint_eq(host.n_buffer_bytes, 0);
}
END_TEST

START_TEST(a_request_of_one_link_wakes_a_client_of_another)
{
    struct relay_store *other;
    ck_assert_int_eq(relay_store_create(&host, NULL, &other, &err), 0);
    open_client(0);
    SAY(0, WAIT);
    ck_assert_int_eq(take_from(other, RELAY_OPEN, 0, 0, NULL), 0);
    ck_assert_int_eq(take_from(other, RELAY_DATA, 0, sizeof HELLO - 1, HELLO), 0);
    ck_assert(!relay_store_has_output(link));
    ck_assert_int_eq(take_from(other, RELAY_DATA, 0, sizeof SET - 1, SET), 0);
    ck_assert(relay_store_has_output(link));
    ck_assert_str_eq(sent(), "DATA 0 1");
    relay_store_destroy(other);
}
END_TEST

START_TEST(a_client_that_leaves_waits_for_nothing)
{
    const uint64_t n_bytes = store_n_bytes(host.sessions.store);
    open_client(0);
    SAY(0, WAIT);
    ck_assert_uint_gt(store_n_bytes(host.sessions.store), n_bytes);
    ck_assert_int_eq(take(RELAY_CLOSE, 0, 0, NULL), 0);
    ck_assert_uint_eq(store_n_bytes(host.sessions.store), n_bytes);
    ck_assert_str_eq(sent(), "CLOSE 0");
    ck_assert_uint_eq(host.n_clients, 0);
    ck_assert_int_eq(take(RELAY_OPEN, 0, 0, NULL), 0);
}
END_TEST

START_TEST(requests_that_came_before_the_closing_are_run)
{
    host.sessions.max_work = 1;
    open_client(0);
    SAY(0, PING PING SET);
    ck_assert_int_eq(take(RELAY_CLOSE, 0, 0, NULL), 0);
    while (relay_host_run_late(&host, now_ms))
        ;
    ck_assert_uint_eq(store_n_keys(host.sessions.store), 1);
    ck_assert_str_eq(sent(), "DATA 0 8, CLOSE 0");
}
END_TEST

START_TEST(credit_is_given_when_half_a_window_was_used)
{
    open_client(0);
    for (int i = 0; i < 8; i++)
        SAY(0, PING);
    ck_assert_str_eq(sent(), "DATA 0 32");
    SAY(0, PING);
    ck_assert_str_eq(sent(), "CREDIT 0 50, DATA 0 4");
}
END_TEST

START_TEST(replies_stop_at_the_window_until_credit_comes)
{
    open_client(0);
    for (int i = 0; i < 30; i++) {
        SAY(0, PING);
        if (i % 8 == 7)
            sent();
    }
    sent();
    ck_assert_str_eq(sent(), "");
    ck_assert_int_eq(take(RELAY_CREDIT, 0, 60, NULL), 0);
    ck_assert_str_eq(sent(), "DATA 0 20");
}
END_TEST

START_TEST(a_client_that_does_not_read_gets_no_credit)
{
    host.sessions.high_water_bytes = 8;
    open_client(0);
    SAY(0, PING PING PING PING PING PING PING PING PING PING);
    ck_assert_str_eq(sent(), "DATA 0 8"); /* no CREDIT: it is choked */
    while (relay_host_run_late(&host, now_ms))
        ;
    ck_assert_str_eq(sent(), "DATA 0 8");
}
END_TEST

START_TEST(bad_bytes_cost_the_client_and_not_its_link)
{
    open_client(0);
    open_client(1);
    SAY(0, PING "\143");
    ck_assert_str_eq(strstr(sent(), "CLOSE 0") != NULL ? "closed" : "open", "closed");
    SAY(0, "more"); /* was on its way */
    ck_assert_int_eq(take(RELAY_CREDIT, 0, 4, NULL), 0);
    ck_assert_int_eq(take(RELAY_CLOSE, 0, 0, NULL), 0);
    ck_assert_uint_eq(host.n_clients, 1);
    SAY(1, PING);
    ck_assert_str_eq(sent(), "DATA 1 4");
}
END_TEST

START_TEST(one_client_more_than_the_maximum_is_refused_and_not_its_link)
{
    for (uint32_t i = 0; i < 4; i++)
        open_client(i);
    sent();
    ck_assert_int_eq(take(RELAY_OPEN, 4, 0, NULL), 0);
    ck_assert_str_eq(sent(), "CLOSE 4 45 refused: 4 clients are connected, the maximum");
}
END_TEST

START_TEST(an_incomplete_request_has_a_deadline)
{
    open_client(0);
    ck_assert(relay_host_deadline(&host) == UINT64_MAX);
    SAY(0, "\15pi");
    now_ms += 10;
    ck_assert_uint_eq(relay_host_deadline(&host), 1000 + MID_MS);
    SAY(0, "n");
    ck_assert_uint_eq(relay_host_deadline(&host), 1000 + MID_MS);
    relay_host_expire(&host, 1000 + MID_MS - 1);
    ck_assert_str_eq(sent(), "");
    relay_host_expire(&host, 1000 + MID_MS);
    ck_assert_ptr_nonnull(strstr(sent(), "timed out after 30000 ms waiting for the rest of a "
                                         "request: received 4 bytes"));
    ck_assert(relay_host_deadline(&host) == UINT64_MAX);
}
END_TEST

START_TEST(the_largest_client_is_ended_when_buffers_are_too_large)
{
    static const char value[] = "\1\1\0\0\0\0\0\0\0k\0\20\0\0\0\0\0\0"; /* SET k of 4096 bytes */
    host.max_buffer_bytes = 600;
    open_client(0);
    open_client(1);
    SAY(0, value);
    SAY(1, value);
    ck_assert_uint_le(host.n_buffer_bytes, 600);
    for (int i = 0; i < 20; i++) {
        if (take(RELAY_DATA, 0, 50, "12345678901234567890123456789012345678901234567890") < 0)
            break;
        sent();
    }
    ck_assert_uint_le(host.n_buffer_bytes, 600);
    ck_assert_int_eq(take(RELAY_DATA, 1, 1, "x"), 0);
}
END_TEST

START_TEST(an_old_client_is_asked_for_silence)
{
    static const char delete_key[] = "\10\1\0\0\0\0\0\0\0k";
    ck_assert_int_eq(take(RELAY_OPEN, 0, 0, NULL), 0);
    SAY(0, "\0\1\0\0\0\0\0\0\0k\1\0\0\0\0\0\0\0v"); /* SET of A and B */
    SAY(0, delete_key);
    ck_assert_str_eq(sent(), "ASK 0");
    ck_assert_int_eq(take(RELAY_QUIET, 0, 0, NULL), 0);
    ck_assert_str_eq(sent(), "DATA 0 8");
    ck_assert_uint_eq(store_n_keys(host.sessions.store), 0);
    ck_assert_int_eq(take(RELAY_QUIET, 0, 0, NULL), 0); /* not asked for: ignored */
}
END_TEST

static void check_refused(int rc, const char *text)
{
    ck_assert_int_eq(rc, -EPROTO);
    ck_assert_str_eq(err.text, text);
}

START_TEST(bad_frames_are_refused)
{
    static const uint8_t many[WINDOW + 1];
    check_refused(take(RELAY_DATA, 0, 1, many), "a relay frame names client 0, which is not open");
    check_refused(take(RELAY_OPEN, 1, 0, NULL),
                  "a relay frame opens client 1, whose place is beyond the next one");
    open_client(0);
    check_refused(take(RELAY_OPEN, 0, 0, NULL),
                  "a relay frame opens client 0, whose place is taken");
    check_refused(take(RELAY_DATA, 0, WINDOW - 4, many),
                  "a relay frame has 96 bytes from a client: its credit is 95");
    check_refused(take(RELAY_CREDIT, 0, 1, NULL),
                  "a relay frame gives a client credit beyond its window");
    ck_assert_int_eq(take(RELAY_CLOSE, 0, 0, NULL), 0);
    check_refused(take(RELAY_CLOSE, 0, 0, NULL), "a relay frame names client 0, which is not open");
    check_refused(relay_store_take(link, (const uint8_t *)"\1", 1, now_ms, &err),
                  "a relay frame is cut off within OPEN");
}
END_TEST

TEST_SUITE(relay_store)
{
    Suite *suite = suite_create("relay_store");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_request_is_answered);
    tcase_add_test(all, a_request_may_come_in_pieces);
    tcase_add_test(all, a_client_that_has_its_reply_keeps_no_buffer);
    tcase_add_test(all, a_request_of_one_link_wakes_a_client_of_another);
    tcase_add_test(all, a_client_that_leaves_waits_for_nothing);
    tcase_add_test(all, requests_that_came_before_the_closing_are_run);
    tcase_add_test(all, credit_is_given_when_half_a_window_was_used);
    tcase_add_test(all, replies_stop_at_the_window_until_credit_comes);
    tcase_add_test(all, a_client_that_does_not_read_gets_no_credit);
    tcase_add_test(all, bad_bytes_cost_the_client_and_not_its_link);
    tcase_add_test(all, one_client_more_than_the_maximum_is_refused_and_not_its_link);
    tcase_add_test(all, an_incomplete_request_has_a_deadline);
    tcase_add_test(all, the_largest_client_is_ended_when_buffers_are_too_large);
    tcase_add_test(all, an_old_client_is_asked_for_silence);
    tcase_add_test(all, bad_frames_are_refused);
    suite_add_tcase(suite, all);
    return suite;
}
