/* Digests, against those that FNV's authors publish. */
#include "common/hash.h"
#include "tests/support/suite.h"

#include <check.h>
#include <string.h>

static uint64_t of(const char *text)
{
    return co_hash_bytes(CO_HASH_START, text, strlen(text));
}

START_TEST(texts_have_the_published_digests)
{
    ck_assert_uint_eq(of(""), UINT64_C(0xcbf29ce484222325));
    ck_assert_uint_eq(of("a"), UINT64_C(0xaf63dc4c8601ec8c));
    ck_assert_uint_eq(of("foobar"), UINT64_C(0x85944171f73967e8));
}
END_TEST

START_TEST(a_text_may_be_added_in_parts)
{
    ck_assert_uint_eq(co_hash_bytes(of("foo"), "bar", 3), of("foobar"));
}
END_TEST

START_TEST(the_order_of_numbers_counts)
{
    uint64_t ab = co_hash_number(co_hash_number(CO_HASH_START, 1), 2);
    uint64_t ba = co_hash_number(co_hash_number(CO_HASH_START, 2), 1);
    ck_assert_uint_ne(ab, ba);
}
END_TEST

TEST_SUITE(hash)
{
    Suite *s = suite_create("hash");
    TCase *t = tcase_create("hash");
    tcase_add_test(t, texts_have_the_published_digests);
    tcase_add_test(t, a_text_may_be_added_in_parts);
    tcase_add_test(t, the_order_of_numbers_counts);
    suite_add_tcase(s, t);
    return s;
}
