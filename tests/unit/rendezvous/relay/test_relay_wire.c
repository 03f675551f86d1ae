/* Records of a relay link, and what is not one. */
#include "rendezvous/relay/relay_wire.h"

#include "common/error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static struct relay_frame frame;
static struct relay_record record;
static struct co_error err;

static void set_up(void)
{
    frame.len = 0;
    record = (struct relay_record){0};
    err = (struct co_error){0};
}

static int next(enum relay_end from, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    return relay_wire_next(from, &at, at + len, &record, &err);
}

static void check_refused(enum relay_end from, const void *bytes, size_t len, const char *text)
{
    ck_assert_int_eq(next(from, bytes, len), -EPROTO);
    ck_assert_msg(strstr(err.text, text) != NULL, "'%s' does not contain '%s'", err.text, text);
}

START_TEST(a_record_is_read_as_it_was_written)
{
    const struct relay_record records[] = {
        {RELAY_OPEN, 0, 0, NULL},           {RELAY_DATA, 65535, 5, (const uint8_t *)"hello"},
        {RELAY_CREDIT, 7, INT32_MAX, NULL}, {RELAY_QUIET, 1, 0, NULL},
        {RELAY_CLOSE, 2, 0, NULL},
    };
    const size_t n = sizeof records / sizeof *records;
    for (size_t i = 0; i < n; i++)
        relay_wire_put(&frame, &records[i]);
    ck_assert_uint_eq(frame.len, 5 * RELAY_HEADER_BYTES + 5);
    const uint8_t *at = frame.bytes;
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(relay_wire_next(RELAY_NODE, &at, frame.bytes + frame.len, &record, &err),
                         1);
        ck_assert_int_eq(record.kind, records[i].kind);
        ck_assert_uint_eq(record.client, records[i].client);
        ck_assert_uint_eq(record.number, records[i].number);
        if (record.kind == RELAY_DATA)
            ck_assert_mem_eq(record.bytes, "hello", 5);
    }
    ck_assert_int_eq(relay_wire_next(RELAY_NODE, &at, frame.bytes + frame.len, &record, &err), 0);
}
END_TEST

START_TEST(a_frame_has_space_for_its_bytes_only)
{
    static const uint8_t zeros[RELAY_FRAME_BYTES];
    ck_assert_int_eq(relay_wire_space(&frame), RELAY_FRAME_BYTES - RELAY_HEADER_BYTES);
    const struct relay_record m = {RELAY_DATA, 0, RELAY_FRAME_BYTES - RELAY_HEADER_BYTES, zeros};
    relay_wire_put(&frame, &m);
    ck_assert_uint_eq(frame.len, RELAY_FRAME_BYTES);
    ck_assert_int_lt(relay_wire_space(&frame), 0);
    ck_assert_int_eq(next(RELAY_STORE, frame.bytes, frame.len), 1);
}
END_TEST

START_TEST(every_cut_of_a_record_is_refused)
{
    relay_wire_put(&frame, &(struct relay_record){RELAY_DATA, 3, 4, (const uint8_t *)"four"});
    for (size_t len = 1; len < frame.len; len++)
        check_refused(RELAY_NODE, frame.bytes, len, "cut off within DATA");
}
END_TEST

START_TEST(records_of_unknown_kinds_are_refused)
{
    check_refused(RELAY_NODE, "\0\0\0\0\0\0\0\0\0", 9, "unknown kind 0");
    check_refused(RELAY_NODE, "\7\0\0\0\0\0\0\0\0", 9, "unknown kind 7");
    check_refused(RELAY_STORE, "\377", 1, "unknown kind 255");
}
END_TEST

START_TEST(records_of_the_other_end_are_refused)
{
    check_refused(RELAY_STORE, "\1\0\0\0\0\0\0\0\0", 9, "OPEN, which is from the other end");
    check_refused(RELAY_STORE, "\6\0\0\0\0\0\0\0\0", 9, "QUIET, which is from the other end");
    check_refused(RELAY_NODE, "\5\0\0\0\0\0\0\0\0", 9, "ASK, which is from the other end");
}
END_TEST

START_TEST(numbers_beyond_their_bounds_are_refused)
{
    check_refused(RELAY_NODE, "\1\0\0\1\0\0\0\0\0", 9, "names client 65536");
    check_refused(RELAY_NODE, "\1\0\0\0\0\1\0\0\0", 9, "OPEN with number 1");
    check_refused(RELAY_NODE, "\2\0\0\0\0\0\0\0\0", 9, "DATA with number 0");
    check_refused(RELAY_NODE, "\2\0\0\0\0\377\377\377\377", 9, "DATA with number 4294967295");
    check_refused(RELAY_NODE, "\3\0\0\0\0\0\0\0\0", 9, "CREDIT with number 0");
    check_refused(RELAY_NODE, "\3\0\0\0\0\0\0\0\200", 9, "CREDIT with number 2147483648");
    check_refused(RELAY_NODE, "\4\0\0\0\0\1\0\0\0x", 10, "CLOSE with number 1");
    check_refused(RELAY_STORE, "\4\0\0\0\0\1\2\0\0", 9, "CLOSE with number 513");
}
END_TEST

START_TEST(a_reason_with_control_characters_is_refused)
{
    check_refused(RELAY_STORE, "\4\0\0\0\0\2\0\0\0a\33", 11, "control characters");
    check_refused(RELAY_STORE, "\4\0\0\0\0\1\0\0\0\177", 10, "control characters");
    ck_assert_int_eq(next(RELAY_STORE, "\4\0\0\0\0\3\0\0\0why", 12), 1);
}
END_TEST

TEST_SUITE(relay_wire)
{
    Suite *suite = suite_create("relay_wire");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, NULL);
    tcase_add_test(all, a_record_is_read_as_it_was_written);
    tcase_add_test(all, a_frame_has_space_for_its_bytes_only);
    tcase_add_test(all, every_cut_of_a_record_is_refused);
    tcase_add_test(all, records_of_unknown_kinds_are_refused);
    tcase_add_test(all, records_of_the_other_end_are_refused);
    tcase_add_test(all, numbers_beyond_their_bounds_are_refused);
    tcase_add_test(all, a_reason_with_control_characters_is_refused);
    suite_add_tcase(suite, all);
    return suite;
}
