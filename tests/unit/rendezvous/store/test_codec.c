#include "common/buf.h"
#include "common/error.h"
#include "rendezvous/store/codec.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct codec_limits limits = {
    .max_key_bytes = 100, .max_value_bytes = 1000, .max_keys = 50, .max_request_bytes = 1500};
static struct codec c;
static struct codec_request r;
static struct co_error err;

static void set_up(void)
{
    codec_init(&c, &limits);
}

static const uint8_t hello[5] = {0, 0xce, 0xf7, 0x85, 0x3c};

static void shake_hands(void)
{
    ck_assert_int_eq(codec_next(&c, hello, sizeof hello, &r, &err), CODEC_REQUEST);
    ck_assert_int_eq(r.op, WIRE_VALIDATE);
    ck_assert_uint_eq(r.len_bytes, sizeof hello);
    ck_assert_int_eq(c.dialect, CODEC_C);
}

static size_t put_string(uint8_t *at, const char *text)
{
    wire_put_u64(at, strlen(text));
    memcpy(at + 8, text, strlen(text));
    return 8 + strlen(text);
}

/* Every prefix is incomplete, the whole is a request. */
static void assert_complete_only_at_the_end(const uint8_t *bytes, size_t len)
{
    for (size_t n = 0; n < len; n++) {
        /* a copy of exactly n bytes, elsewhere each time */
        uint8_t *copy = malloc(n > 0 ? n : 1);
        ck_assert_ptr_nonnull(copy);
        memcpy(copy, bytes, n);
        ck_assert_int_eq(codec_next(&c, copy, n, &r, &err), CODEC_MORE);
        free(copy);
    }
    ck_assert_int_eq(codec_next(&c, bytes, len, &r, &err), CODEC_REQUEST);
    ck_assert_uint_eq(r.len_bytes, len);
}

static void assert_bytes(struct wire_bytes b, const char *text)
{
    ck_assert_uint_eq(b.len, strlen(text));
    ck_assert_mem_eq(b.at, text, b.len);
}

START_TEST(a_request_is_complete_at_its_last_byte)
{
    shake_hands();
    uint8_t bytes[200] = {WIRE_COMPARE_SET};
    size_t n = 1;
    n += put_string(bytes + n, "key");
    n += put_string(bytes + n, "");
    n += put_string(bytes + n, "desired");
    assert_complete_only_at_the_end(bytes, n);
    ck_assert_int_eq(r.op, WIRE_COMPARE_SET);
    assert_bytes(r.key, "key");
    ck_assert_uint_eq(r.value.len, 0);
    assert_bytes(r.desired, "desired");

    bytes[0] = WIRE_ADD;
    n = 1 + put_string(bytes + 1, "n");
    wire_put_u64(bytes + n, (uint64_t)-7);
    assert_complete_only_at_the_end(bytes, n + 8);
    ck_assert_int_eq(r.op, WIRE_ADD);
    ck_assert_int_eq(r.number, -7);

    bytes[0] = WIRE_PING;
    wire_put_u32(bytes + 1, 0xfedcba98u);
    assert_complete_only_at_the_end(bytes, 5);
    ck_assert_int_eq(r.number, 0xfedcba98);

    bytes[0] = WIRE_LIST_KEYS;
    assert_complete_only_at_the_end(bytes, 1);
}
END_TEST

START_TEST(counted_requests_give_their_items_in_order)
{
    shake_hands();
    uint8_t bytes[200] = {WIRE_MULTI_SET};
    wire_put_u64(bytes + 1, 2);
    size_t n = 9;
    n += put_string(bytes + n, "k1");
    n += put_string(bytes + n, "v1");
    n += put_string(bytes + n, "");
    n += put_string(bytes + n, "value 2");
    assert_complete_only_at_the_end(bytes, n);
    ck_assert_uint_eq(r.n_items, 2);
    const uint8_t *at = r.items;
    assert_bytes(codec_item_take(&at), "k1");
    assert_bytes(codec_item_take(&at), "v1");
    ck_assert_uint_eq(codec_item_take(&at).len, 0);
    assert_bytes(codec_item_take(&at), "value 2");
    ck_assert_ptr_eq(at, bytes + n);

    bytes[0] = WIRE_WAIT;
    wire_put_u64(bytes + 1, 0);
    assert_complete_only_at_the_end(bytes, 9);
    ck_assert_uint_eq(r.n_items, 0);
}
END_TEST

START_TEST(the_handshake_may_arrive_in_single_bytes)
{
    assert_complete_only_at_the_end(hello, sizeof hello);
    ck_assert_int_eq(c.dialect, CODEC_C);
}
END_TEST

START_TEST(a_set_that_begins_like_the_handshake_is_of_an_old_client)
{
    uint8_t bytes[40] = {0}; /* opcode 0, SET in the old dialects */
    size_t n = 1 + put_string(bytes + 1, "k");
    n += put_string(bytes + n, "v");
    assert_complete_only_at_the_end(bytes, n);
    ck_assert_int_eq(r.op, WIRE_SET);
    ck_assert_int_eq(c.dialect, CODEC_OLD);
}
END_TEST

START_TEST(opcode_8_with_only_a_key_is_ambiguous)
{
    uint8_t bytes[40] = {8};
    size_t n = 1 + put_string(bytes + 1, "k");
    ck_assert_int_eq(codec_next(&c, bytes, n - 1, &r, &err), CODEC_MORE);
    ck_assert_int_eq(codec_next(&c, bytes, n, &r, &err), CODEC_AMBIGUOUS);
    ck_assert_int_eq(codec_next(&c, bytes, n, &r, &err), CODEC_AMBIGUOUS);
    codec_decide_a(&c);
    ck_assert_int_eq(codec_next(&c, bytes, n, &r, &err), CODEC_REQUEST);
    ck_assert_int_eq(r.op, WIRE_DELETE_KEY);
    assert_bytes(r.key, "k");
    /* decided for good */
    ck_assert_int_eq(codec_next(&c, bytes, n, &r, &err), CODEC_REQUEST);
    ck_assert_int_eq(r.op, WIRE_DELETE_KEY);
    bytes[0] = 7; /* WATCH_KEY */
    ck_assert_int_eq(codec_next(&c, bytes, n, &r, &err), -EPROTO);
}
END_TEST

START_TEST(opcode_8_with_data_after_its_key_is_an_append)
{
    uint8_t bytes[40] = {8};
    size_t n_key = 1 + put_string(bytes + 1, "k");
    size_t n = n_key + put_string(bytes + n_key, "v");
    ck_assert_int_eq(codec_next(&c, bytes, n_key, &r, &err), CODEC_AMBIGUOUS);
    ck_assert_int_eq(codec_next(&c, bytes, n_key + 1, &r, &err), CODEC_MORE);
    ck_assert_int_eq(c.dialect, CODEC_B);
    ck_assert_int_eq(codec_next(&c, bytes, n, &r, &err), CODEC_REQUEST);
    ck_assert_int_eq(r.op, WIRE_APPEND);
    assert_bytes(r.key, "k");
    assert_bytes(r.value, "v");
    ck_assert_uint_eq(r.len_bytes, n);
    /* and the next one waits for its value without doubt */
    assert_complete_only_at_the_end(bytes, n);
}
END_TEST

START_TEST(old_opcodes_keep_their_meaning)
{
    static const struct {
        uint8_t opcode;
        enum wire_op op;
        enum codec_dialect dialect;
    } cases[] = {
        {6, WIRE_GETNUMKEYS, CODEC_OLD},
        {11, WIRE_CANCEL_WAIT, CODEC_B},
        {6, WIRE_GETNUMKEYS, CODEC_B},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(codec_next(&c, &cases[i].opcode, 1, &r, &err), CODEC_REQUEST);
        ck_assert_int_eq(r.op, cases[i].op);
        ck_assert_int_eq(c.dialect, cases[i].dialect);
    }
}
END_TEST

START_TEST(too_large_lengths_are_refused_before_their_bytes_arrive)
{
    static const struct {
        uint8_t opcode;
        uint64_t first;
        const char *text;
    } cases[] = {
        {WIRE_GET, 101, "GET: a key of 101 bytes (at most 100)"},
        {WIRE_GET, UINT64_MAX, "GET: a key of 18446744073709551615 bytes (at most 100)"},
        {WIRE_WAIT, 51, "WAIT: 51 keys (at most 50)"},
        {WIRE_MULTI_SET, UINT64_MAX, "MULTI_SET: 18446744073709551615 keys (at most 50)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[9] = {cases[i].opcode};
        wire_put_u64(bytes + 1, cases[i].first);
        set_up();
        shake_hands();
        ck_assert_int_eq(codec_next(&c, bytes, sizeof bytes, &r, &err), -EPROTO);
        ck_assert_str_eq(err.text, cases[i].text);
    }
}
END_TEST

START_TEST(lengths_at_their_limit_are_accepted)
{
    shake_hands();
    uint8_t bytes[1 + 8 + 100 + 8 + 1000] = {WIRE_SET};
    wire_put_u64(bytes + 1, 100);
    wire_put_u64(bytes + 109, 1000);
    assert_complete_only_at_the_end(bytes, sizeof bytes);
}
END_TEST

START_TEST(a_request_of_many_small_strings_is_bounded)
{
    shake_hands();
    uint8_t bytes[9 + 2 * (16 + 1000)] = {WIRE_MULTI_SET};
    wire_put_u64(bytes + 1, 2);
    wire_put_u64(bytes + 9, 0);
    wire_put_u64(bytes + 17, 1000);
    wire_put_u64(bytes + 1025, 0);
    wire_put_u64(bytes + 1033, 1000);
    ck_assert_int_eq(codec_next(&c, bytes, 1041, &r, &err), -EPROTO);
    ck_assert_str_eq(err.text, "MULTI_SET: more than 1500 bytes");
}
END_TEST

START_TEST(replies_are_little_endian)
{
    struct co_buf out = {0};
    struct wire_bytes value = {(const uint8_t *)"v1", 2};
    ck_assert_int_eq(codec_reply_u8(&out, 1), 0);
    ck_assert_int_eq(codec_reply_u32(&out, 0x4c25), 0);
    ck_assert_int_eq(codec_reply_i64(&out, -2), 0);
    ck_assert_int_eq(codec_reply_string(&out, value), 0);
    static const uint8_t expected[] = {1,    0x25, 0x4c, 0,    0,    0xfe, 0xff, 0xff,
                                       0xff, 0xff, 0xff, 0xff, 0xff, 2,    0,    0,
                                       0,    0,    0,    0,    0,    'v',  '1'};
    ck_assert_uint_eq(co_buf_len(&out), sizeof expected);
    ck_assert_mem_eq(co_buf_bytes(&out), expected, sizeof expected);
    co_buf_fini(&out);
}
END_TEST

TEST_SUITE(codec)
{
    Suite *suite = suite_create("codec");
    TCase *tc = tcase_create("codec");
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_test(tc, a_request_is_complete_at_its_last_byte);
    tcase_add_test(tc, counted_requests_give_their_items_in_order);
    tcase_add_test(tc, the_handshake_may_arrive_in_single_bytes);
    tcase_add_test(tc, a_set_that_begins_like_the_handshake_is_of_an_old_client);
    tcase_add_test(tc, opcode_8_with_only_a_key_is_ambiguous);
    tcase_add_test(tc, opcode_8_with_data_after_its_key_is_an_append);
    tcase_add_test(tc, old_opcodes_keep_their_meaning);
    tcase_add_test(tc, too_large_lengths_are_refused_before_their_bytes_arrive);
    tcase_add_test(tc, lengths_at_their_limit_are_accepted);
    tcase_add_test(tc, a_request_of_many_small_strings_is_bounded);
    tcase_add_test(tc, replies_are_little_endian);
    suite_add_tcase(suite, tc);
    return suite;
}
