/* Which bytes are characters: the bounds of each form, and every code point. */
#include "common/utf8.h"
#include "tests/support/often.h"
#include "tests/support/suite.h"

#include <check.h>
#include <string.h>

START_TEST(utf8_follows_the_standard)
{
    static const char *const good[] = {"",
                                       "a",
                                       "\xc2\x80",
                                       "\xdf\xbf",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80",
                                      "\xc1\xbf",
                                      "\xc2",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf8\x88\x80\x80",
                                      "\xe2\x82",
                                      "\xff"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        ck_assert_msg(co_utf8_is_valid(good[i], strlen(good[i])), "good %zu", i);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(!co_utf8_is_valid(bad[i], strlen(bad[i])), "bad %zu", i);
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        char text[4];
        unsigned n = co_utf8_encode(c, text);
        OFTEN_CHECK(co_utf8_is_valid(text, n) == (c < 0xd800 || c > 0xdfff));
    }
}
END_TEST

START_TEST(a_truncated_character_is_invalid)
{
    ck_assert_uint_eq(co_utf8_length("a", 1), 1);
    ck_assert_uint_eq(co_utf8_length("\xe2\x82\xac", 3), 3);
    ck_assert_uint_eq(co_utf8_length("\xe2\x82\xac", 2), 0);
    /* the NUL is read but does not belong to the character */
    ck_assert_uint_eq(co_utf8_length("\xe2\x82", 3), 0);
}
END_TEST

START_TEST(nothing_that_controls_a_terminal_stays_in_a_text)
{
    static const struct {
        const char *from, *to;
    } cases[] = {
        {"", ""},
        {"plain ~", "plain ~"},
        {"a\tb\r\n\033[2J\177", "a?b???[2J?"},
        {"\xc2\x9b"
         "31m\xc2\x80\xc2\x9f",
         "??31m????"},
        {"\xc2\xa0\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\x80",
         "\xc2\xa0\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\x80"},
        {"\x9b 31m \xff\xc2", "? 31m ??"}, /* C1 of a terminal without UTF-8; a torn character */
        {"\xe2\x82", "??"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        strcpy(text, cases[i].from);
        co_utf8_clean(text, strlen(text));
        ck_assert_str_eq(text, cases[i].to);
    }
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        char text[4];
        const unsigned n = co_utf8_encode(c, text);
        OFTEN_CHECK(co_utf8_is_control(text, n) == (c < 0x20 || (c >= 0x7f && c < 0xa0)));
    }
}
END_TEST

TEST_SUITE(utf8)
{
    Suite *s = suite_create("utf8");
    TCase *t = tcase_create("utf8");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, utf8_follows_the_standard);
    tcase_add_test(t, a_truncated_character_is_invalid);
    tcase_add_test(t, nothing_that_controls_a_terminal_stays_in_a_text);
    suite_add_tcase(s, t);
    return s;
}
