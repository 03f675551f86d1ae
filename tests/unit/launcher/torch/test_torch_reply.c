/* Replies of torch's worker server: whole, in parts, and bad ones. */
#include "launcher/torch/torch_reply.h"

#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char good[] =
    "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\ncontent-length:  4\r\n\r\nabcd";

START_TEST(a_reply_is_read_once_it_is_whole)
{
    struct torch_reply r;
    for (size_t n = 0; n < sizeof good - 1; n++) {
        ck_assert_int_eq(torch_reply_parse(good, n, false, &r), 0);
        ck_assert_int_eq(torch_reply_parse(good, n, true, &r), -EPROTO);
    }
    ck_assert_int_eq(torch_reply_parse(good, sizeof good - 1, false, &r), 1);
    ck_assert_int_eq(r.status, 200);
    ck_assert_uint_eq(r.len, 4);
    ck_assert_int_eq(memcmp(r.body, "abcd", 4), 0);
}
END_TEST

START_TEST(a_body_without_a_length_ends_with_the_connection)
{
    static const char text[] = "HTTP/1.0 404 Not Found\r\n\r\nno such";
    struct torch_reply r;
    ck_assert_int_eq(torch_reply_parse(text, sizeof text - 1, false, &r), 0);
    ck_assert_int_eq(torch_reply_parse(text, sizeof text - 1, true, &r), 1);
    ck_assert_int_eq(r.status, 404);
    ck_assert_uint_eq(r.len, 7);
}
END_TEST

START_TEST(bad_replies_are_refused)
{
    static const struct {
        const char *text;
        int rc;
    } cases[] = {
        {"\r\n\r\n", -EPROTO},
        {"HTTP/1.1\r\n\r\n", -EPROTO},
        {"HTTP/1.1 20\r\n\r\n", -EPROTO},
        {"HTTP/1.1 2x0 OK\r\n\r\n", -EPROTO},
        {"HTTP/2.0 200 OK\r\n\r\n", -EPROTO},
        {"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", -EPROTO},
        {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", -EPROTO},
        {"HTTP/1.1 200 OK\r\nContent-Length: 4x\r\n\r\nabcd", -EPROTO},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", -EPROTO},
        {"HTTP/1.1 200 OK\r\nContent-Length: 4194305\r\n\r\n", -E2BIG},
        {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n", -E2BIG},
    };
    struct torch_reply r;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(torch_reply_parse(cases[i].text, strlen(cases[i].text), true, &r) ==
                          cases[i].rc,
                      "%s", cases[i].text);
}
END_TEST

START_TEST(a_head_without_an_end_is_refused)
{
    static char text[TORCH_REPLY_HEAD_BYTES + 2];
    struct torch_reply r;
    memset(text, 'x', sizeof text);
    ck_assert_int_eq(torch_reply_parse(text, TORCH_REPLY_HEAD_BYTES, false, &r), 0);
    ck_assert_int_eq(torch_reply_parse(text, sizeof text, false, &r), -EPROTO);
}
END_TEST

TEST_SUITE(torch_reply)
{
    Suite *suite = suite_create("torch_reply");
    TCase *c = tcase_create("torch_reply");
    tcase_add_test(c, a_reply_is_read_once_it_is_whole);
    tcase_add_test(c, a_body_without_a_length_ends_with_the_connection);
    tcase_add_test(c, bad_replies_are_refused);
    tcase_add_test(c, a_head_without_an_end_is_refused);
    suite_add_tcase(suite, c);
    return suite;
}
