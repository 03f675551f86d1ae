/* Plays the conversations of tests/data/wire/talk and the bad inputs of tests/data/wire/bad.
 *
 * A conversation has a line for each thing that happens; N numbers the clients from 1 on:
 *
 *     N> HEX          client N sends these bytes
 *     N< HEX          and gets exactly these by now
 *     N pauses        long enough for the server's patience with opcode 8 to end
 *     N leaves
 *     N dropped: TEXT the server closes the connection, for this reason
 *     # ...           a remark
 *
 * It is played as it stands and with every byte arriving alone; those of one client that only sends
 * and gets also with all that it sends arriving at once. */
#include "common/error.h"
#include "common/scope.h"
#include "rendezvous/store/session.h"

#include "tests/support/cases.h"
#include "tests/support/suite.h"

#include <check.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CLIENTS = 4 };

enum cut {
    AS_WRITTEN,
    BYTE_BY_BYTE,
    ALL_AT_ONCE,
};

struct client {
    struct session session;
    struct co_buf in; /* sent, not taken yet */
    int state;        /* of the last session_feed() */
    bool left;
    struct co_error err;
};

static struct session_host host;
static struct client clients[N_CLIENTS];

static void on_output(struct session *s)
{
    (void)s; /* the tests look into `out` by themselves */
}

static void start(void)
{
    struct store_limits limits = {.max_bytes = 1 << 30, .max_names = 1000};
    struct store *store;
    ck_assert_int_eq(store_create(&limits, 1, session_on_wake, NULL, &store, NULL), 0);
    host = (struct session_host){
        .store = store,
        .limits = {.max_key_bytes = 64 << 10,
                   .max_value_bytes = 64 << 20,
                   .max_keys = 131072,
                   .max_request_bytes = 80 << 20},
        .high_water_bytes = 1 << 20,
        .max_work = 1 << 20,
        .max_reply_bytes = 1 << 20,
        .on_output = on_output,
    };
    memset(clients, 0, sizeof clients);
    for (int i = 0; i < N_CLIENTS; i++)
        session_init(&clients[i].session, &host);
}

static void leave(struct client *c)
{
    if (!c->left)
        session_fini(&c->session);
    c->left = true;
    co_buf_fini(&c->in);
}

static void stop(void)
{
    for (int i = 0; i < N_CLIENTS; i++)
        leave(&clients[i]);
    store_destroy(host.store);
}

static void feed(struct client *c)
{
    size_t n_used;
    if (c->state < 0)
        return;
    c->state =
        session_feed(&c->session, co_buf_bytes(&c->in), co_buf_len(&c->in), &n_used, &c->err);
    co_buf_consume(&c->in, n_used);
}

static void deliver(struct client *c, const uint8_t *bytes, size_t len, enum cut cut)
{
    size_t step = cut == BYTE_BY_BYTE ? 1 : len;
    for (size_t i = 0; i < len; i += step) {
        ck_assert_int_eq(co_buf_append(&c->in, bytes + i, step), 0);
        if (cut != ALL_AT_ONCE)
            feed(c);
    }
}

static size_t parse_hex(const char *text, uint8_t *bytes, size_t size)
{
    size_t n = 0;
    for (; *text != '\0' && *text != '#'; text++) {
        if (isspace((unsigned char)*text))
            continue;
        unsigned byte;
        ck_assert_msg(n < size && sscanf(text, "%2x", &byte) == 1, "not hex: %s", text);
        bytes[n++] = (uint8_t)byte;
        text++;
    }
    return n;
}

/* Take what the client got, and compare. */
static void expect(struct client *c, const uint8_t *bytes, size_t len, const char *where)
{
    struct co_buf *out = &c->session.out;
    ck_assert_msg(co_buf_len(out) >= len && memcmp(co_buf_bytes(out), bytes, len) == 0,
                  "%s: got %zu bytes, or others, state %d %s", where, co_buf_len(out), c->state,
                  c->err.text);
    co_buf_consume(out, len);
}

static void expect_nothing_more(const char *where)
{
    for (int i = 0; i < N_CLIENTS; i++)
        ck_assert_msg(clients[i].left || co_buf_len(&clients[i].session.out) == 0,
                      "%s: client %d got something else", where, i + 1);
}

/* returns whether the line fits the cut */
static bool play_line(const char *line, enum cut cut, const char *where)
{
    uint8_t bytes[1024];
    int number;
    char what;
    int at = 0;
    if (line[0] == '#' || line[0] == '\n')
        return true;
    ck_assert_msg(sscanf(line, "%d%c%n", &number, &what, &at) == 2, "%s: %s", where, line);
    ck_assert_int_ge(number, 1);
    ck_assert_int_le(number, N_CLIENTS);
    struct client *c = &clients[number - 1];
    const char *rest = line + at;
    if (cut == ALL_AT_ONCE && (number != 1 || (what != '>' && what != '<')))
        return false;
    if (what == '>') {
        if (cut != ALL_AT_ONCE)
            expect_nothing_more(where);
        deliver(c, bytes, parse_hex(rest, bytes, sizeof bytes), cut);
    } else if (what == '<') {
        if (cut != ALL_AT_ONCE)
            expect(c, bytes, parse_hex(rest, bytes, sizeof bytes), where);
    } else if (strcmp(rest, "pauses\n") == 0) {
        ck_assert_msg(c->state == SESSION_AMBIGUOUS, "%s: no doubt here", where);
        session_decide_a(&c->session);
        feed(c);
    } else if (strcmp(rest, "leaves\n") == 0) {
        leave(c);
    } else if (strncmp(rest, "dropped: ", 9) == 0) {
        ck_assert_msg(c->state < 0, "%s: not dropped", where);
        ck_assert_int_eq(strncmp(rest + 9, c->err.text, strlen(c->err.text)), 0);
        ck_assert_str_eq(rest + 9 + strlen(c->err.text), "\n");
    } else {
        ck_abort_msg("%s: %s", where, line);
    }
    return true;
}

/* In a conversation that was sent at once, all replies are there, one after the other. */
static void expect_all(FILE *in, const char *path)
{
    char line[2048];
    uint8_t bytes[1024];
    feed(&clients[0]);
    rewind(in);
    while (fgets(line, sizeof line, in) != NULL)
        if (strncmp(line, "1<", 2) == 0)
            expect(&clients[0], bytes, parse_hex(line + 2, bytes, sizeof bytes), path);
}

static void play(const char *path, enum cut cut)
{
    co_autoclose FILE *in = fopen(path, "re");
    ck_assert_msg(in != NULL, "%s", path);
    char line[2048], where[1200];
    bool fits = true;
    start();
    for (int n = 1; fits && fgets(line, sizeof line, in) != NULL; n++) {
        snprintf(where, sizeof where, "%.1000s:%d (cut %d)", path, n, cut);
        fits = play_line(line, cut, where);
    }
    if (fits && cut == ALL_AT_ONCE)
        expect_all(in, path);
    if (fits)
        expect_nothing_more(path);
    stop();
}

static void play_all_cuts(const char *path)
{
    play(path, AS_WRITTEN);
    play(path, BYTE_BY_BYTE);
    play(path, ALL_AT_ONCE);
}

START_TEST(recorded_conversations_give_the_same_replies_in_any_pieces)
{
    ck_assert_int_ge(cases_each("wire/talk", play_all_cuts), 17);
}
END_TEST

static void refuse(const char *path)
{
    char input[4096], error[CO_ERROR_TEXT_BYTES + 1];
    size_t len = cases_read(path, "input", input, sizeof input);
    cases_read_line(path, "error", error, sizeof error);
    for (enum cut cut = AS_WRITTEN; cut <= BYTE_BY_BYTE; cut++) {
        start();
        deliver(&clients[0], (const uint8_t *)input, len, cut);
        ck_assert_msg(clients[0].state < 0, "%s is not refused", path);
        ck_assert_str_eq(clients[0].err.text, error);
        stop();
    }
}

START_TEST(bad_bytes_are_refused_for_the_right_reason)
{
    ck_assert_int_ge(cases_each("wire/bad", refuse), 19);
}
END_TEST

static void send_c(struct client *c, const char *hex)
{
    uint8_t bytes[200];
    size_t len = parse_hex(hex, bytes, sizeof bytes);
    deliver(c, bytes, len, AS_WRITTEN);
}

static const char *const hello = "00 ce f7 85 3c";

START_TEST(a_client_that_does_not_read_is_not_served_until_it_does)
{
    start();
    host.high_water_bytes = 20;
    struct client *c = &clients[0];
    send_c(c, hello);
    for (int i = 0; i < 5; i++)
        send_c(c, "07"); /* 8 bytes of reply each */
    ck_assert_int_eq(c->state, SESSION_CHOKED);
    ck_assert_uint_eq(co_buf_len(&c->session.out), 24);
    ck_assert_uint_eq(co_buf_len(&c->in), 2);
    co_buf_consume(&c->session.out, 24);
    feed(c);
    ck_assert_int_eq(c->state, SESSION_IDLE);
    ck_assert_uint_eq(co_buf_len(&c->session.out), 16);
    stop();
}
END_TEST

START_TEST(a_client_gets_no_more_than_its_share_at_a_time)
{
    start();
    host.max_work = 4;
    struct client *c = &clients[0];
    send_c(c, "00 ce f7 85 3c 0c 0c 0c 0c 0c 0c"); /* CANCEL_WAIT: a byte each */
    ck_assert_int_eq(c->state, SESSION_LATE);
    ck_assert_uint_eq(co_buf_len(&c->session.out), 3);
    feed(c);
    ck_assert_int_eq(c->state, SESSION_IDLE);
    ck_assert_uint_eq(co_buf_len(&c->session.out), 6);
    stop();
}
END_TEST

START_TEST(a_request_that_is_more_than_a_share_runs_alone_after_a_pause)
{
    static const char *const check_4 = "05 0400000000000000 0100000000000000 6b 0100000000000000 6b"
                                       "0100000000000000 6b 0100000000000000 6b";
    start();
    host.max_work = 4;
    struct client *c = &clients[0];
    send_c(c, hello);
    send_c(c, check_4);
    ck_assert_int_eq(c->state, SESSION_LATE);
    ck_assert_uint_eq(co_buf_len(&c->session.out), 0);
    send_c(c, "0c"); /* feeds again; the bytes after it wait for their turn */
    ck_assert_int_eq(c->state, SESSION_LATE);
    ck_assert_uint_eq(co_buf_len(&c->session.out), 1);
    feed(c);
    ck_assert_int_eq(c->state, SESSION_IDLE);
    ck_assert_uint_eq(co_buf_len(&c->session.out), 2);
    stop();
}
END_TEST

START_TEST(a_list_of_many_keys_is_more_than_a_share)
{
    start();
    host.max_work = 2;
    struct client *c = &clients[0];
    send_c(c, hello);
    send_c(c, "01 0100000000000000 6b 0000000000000000");
    send_c(c, "01 0100000000000000 6c 0000000000000000");
    send_c(c, "11");
    ck_assert_int_eq(c->state, SESSION_LATE);
    feed(c);
    ck_assert_int_eq(c->state, SESSION_IDLE);
    ck_assert_uint_eq(co_buf_len(&c->session.out), 8 + 9 + 9);
    stop();
}
END_TEST

START_TEST(a_reply_has_a_largest_size)
{
    start();
    host.max_reply_bytes = 20;
    struct client *setter = &clients[0];
    send_c(setter, hello);
    send_c(setter, "01 0100000000000000 6b 0800000000000000 3132333435363738");
    static const char *const requests[] = {
        "0a 0200000000000000 0100000000000000 6b 0100000000000000 6b", /* MULTI_GET, twice 16 */
        "11",                                                          /* LIST_KEYS: 8 + 9 + 9 */
    };
    send_c(setter, "01 0100000000000000 6c 0000000000000000");
    for (int i = 0; i < 2; i++) {
        struct client *c = &clients[i + 1];
        send_c(c, hello);
        send_c(c, "03 0100000000000000 6b"); /* GET: 16 bytes */
        ck_assert_int_eq(c->state, SESSION_IDLE);
        send_c(c, requests[i]);
        ck_assert_int_lt(c->state, 0);
        ck_assert_ptr_nonnull(strstr(c->err.text, "the maximum of 20"));
    }
    stop();
}
END_TEST

START_TEST(an_item_too_long_to_be_sent_stays_in_its_queue)
{
    start();
    host.max_reply_bytes = 20;
    struct client *c = &clients[0];
    send_c(c, hello);
    send_c(c, "0e 0100000000000000 71 0800000000000000 3132333435363738");
    send_c(c, "0f 0100000000000000 71"); /* QUEUE_POP: 8 + 16 bytes */
    ck_assert_int_eq(c->state, -ENOSPC);
    ck_assert_uint_eq(co_buf_len(&c->session.out), 0); /* not even the length was promised */
    struct client *other = &clients[1];
    send_c(other, hello);
    send_c(other, "10 0100000000000000 71"); /* QUEUE_LEN */
    expect(other, (const uint8_t[8]){1}, 8, "the queue");
    stop();
}
END_TEST

START_TEST(keys_are_listed_with_their_slash_and_without_queues)
{
    start();
    struct client *c = &clients[0];
    send_c(c, hello);
    send_c(c, "01 0200000000000000 2f61 0000000000000000");
    send_c(c, "01 0200000000000000 2f62 0000000000000000");
    send_c(c, "0e 0200000000000000 2f71 0000000000000000"); /* a queue */
    send_c(c, "06 0100000000000000 0200000000000000 2f77"); /* a name that is waited for */
    send_c(c, "11");
    ck_assert_uint_eq(co_buf_len(&c->session.out), 8 + 2 * 10);
    const uint8_t *at = co_buf_bytes(&c->session.out);
    ck_assert_uint_eq(wire_get_u64(at), 2);
    at += 8;
    struct wire_bytes first = codec_item_take(&at);
    struct wire_bytes second = codec_item_take(&at);
    bool in_order = first.at[1] == 'a';
    ck_assert_mem_eq(first.at, in_order ? "/a" : "/b", 2);
    ck_assert_mem_eq(second.at, in_order ? "/b" : "/a", 2);
    stop();
}
END_TEST

START_TEST(a_full_store_closes_the_client_that_fills_it)
{
    start();
    store_destroy(host.store);
    struct store_limits limits = {.max_bytes = 2000, .max_names = 1000};
    ck_assert_int_eq(store_create(&limits, 1, session_on_wake, NULL, &host.store, NULL), 0);
    struct client *c = &clients[0];
    uint8_t set[1 + 8 + 8 + 3000] = {WIRE_SET};
    wire_put_u64(set + 9, 3000);
    send_c(c, hello);
    deliver(c, set, sizeof set, AS_WRITTEN);
    ck_assert_int_lt(c->state, 0);
    ck_assert_ptr_nonnull(strstr(c->err.text, "the store is full"));
    send_c(&clients[1], hello);
    send_c(&clients[1], "07");
    ck_assert_int_eq(clients[1].state, SESSION_IDLE);
    stop();
}
END_TEST

TEST_SUITE(session)
{
    Suite *suite = suite_create("session");
    TCase *tc = tcase_create("session");
    tcase_add_test(tc, recorded_conversations_give_the_same_replies_in_any_pieces);
    tcase_add_test(tc, bad_bytes_are_refused_for_the_right_reason);
    tcase_add_test(tc, a_client_that_does_not_read_is_not_served_until_it_does);
    tcase_add_test(tc, a_client_gets_no_more_than_its_share_at_a_time);
    tcase_add_test(tc, a_request_that_is_more_than_a_share_runs_alone_after_a_pause);
    tcase_add_test(tc, a_list_of_many_keys_is_more_than_a_share);
    tcase_add_test(tc, a_reply_has_a_largest_size);
    tcase_add_test(tc, an_item_too_long_to_be_sent_stays_in_its_queue);
    tcase_add_test(tc, keys_are_listed_with_their_slash_and_without_queues);
    tcase_add_test(tc, a_full_store_closes_the_client_that_fills_it);
    suite_add_tcase(suite, tc);
    return suite;
}
