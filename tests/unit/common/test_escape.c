/* Bytes of any kind, shown on a line. */
#include "common/escape.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void assert_shown(const char *bytes, size_t len, const char *expected)
{
    char *text = NULL;
    size_t text_len = 0;
    FILE *out = open_memstream(&text, &text_len);
    ck_assert_ptr_nonnull(out);
    co_escape_print((const uint8_t *)bytes, len, out);
    fclose(out);
    ck_assert_str_eq(text, expected);
    free(text);
}

START_TEST(printable_text_is_itself)
{
    assert_shown("", 0, "");
    assert_shown("a b~!'\"$", 8, "a b~!'\"$");
}
END_TEST

START_TEST(everything_else_is_spelled_out)
{
    assert_shown("a\nb\tc\rd\\n", 9, "a\\nb\\tc\\rd\\\\n");
    assert_shown("\0\x1b[2J\x7f", 6, "\\x00\\x1b[2J\\x7f");
    assert_shown("\xc3\xbc\xff", 3, "\\xc3\\xbc\\xff");
}
END_TEST

START_TEST(no_byte_breaks_the_line)
{
    char all[256];
    char *text = NULL;
    size_t text_len = 0;
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    FILE *out = open_memstream(&text, &text_len);
    ck_assert_ptr_nonnull(out);
    co_escape_print((const uint8_t *)all, sizeof all, out);
    fclose(out);
    for (size_t i = 0; i < text_len; i++)
        ck_assert(text[i] >= ' ' && text[i] <= '~');
    free(text);
}
END_TEST

TEST_SUITE(escape)
{
    Suite *suite = suite_create("escape");
    TCase *tc = tcase_create("escape");
    tcase_add_test(tc, printable_text_is_itself);
    tcase_add_test(tc, everything_else_is_spelled_out);
    tcase_add_test(tc, no_byte_breaks_the_line);
    suite_add_tcase(suite, tc);
    return suite;
}
