/* What each node brings to the first round. */
#include "common/error.h"
#include "rendezvous/pmix/pmix_hello.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static const struct pmix_hello usual = {.name = "n1.cluster-0af3",
                                        .library = "4.2.2",
                                        .secret = "0123456789abcdef0123456789abcdef",
                                        .machine = UINT64_C(0x0123456789abcdef),
                                        .n_ranks = 3,
                                        .n_programs = 2,
                                        .ranks = {1, 2}};

static int parse(const char *text, struct pmix_hello *ret)
{
    return pmix_hello_read((const uint8_t *)text, strlen(text), ret, NULL);
}

START_TEST(what_was_printed_is_read)
{
    char text[PMIX_HELLO_BYTES];
    struct pmix_hello h;
    const int n = pmix_hello_print(&usual, text);
    ck_assert_str_eq(text, "ddp-pmix 1 n1.cluster-0af3 4.2.2 0123456789abcdef0123456789abcdef "
                           "0123456789abcdef 1:2");
    ck_assert_int_eq(n, (int)strlen(text));
    ck_assert_int_eq(parse(text, &h), 0);
    ck_assert_str_eq(h.name, usual.name);
    ck_assert_str_eq(h.library, usual.library);
    ck_assert_str_eq(h.secret, usual.secret);
    ck_assert_uint_eq(h.machine, usual.machine);
    ck_assert_uint_eq(h.n_ranks, 3);
    ck_assert_uint_eq(h.n_programs, 2);
    ck_assert_uint_eq(h.ranks[0], 1);
    ck_assert_uint_eq(h.ranks[1], 2);
}
END_TEST

START_TEST(the_largest_one_fits)
{
    char text[PMIX_HELLO_BYTES];
    struct pmix_hello h = usual, again;
    memset(h.name, 'n', sizeof h.name - 1);
    memset(h.library, '1', sizeof h.library - 1);
    h.n_programs = PMIX_HELLO_PROGRAMS;
    h.n_ranks = PMIX_HELLO_PROGRAMS * 1024;
    for (int i = 0; i < PMIX_HELLO_PROGRAMS; i++)
        h.ranks[i] = 1024;
    ck_assert_int_gt(pmix_hello_print(&h, text), 0);
    ck_assert_int_eq(parse(text, &again), 0);
    ck_assert_uint_eq(again.n_ranks, h.n_ranks);
}
END_TEST

START_TEST(anything_else_is_rejected)
{
    static const char *const texts[] = {
        "",
        "2",
        "ddp-pmix",
        "ddp-pmix 2 n 4.2.2 ab 1 1",
        "ddp-pmi 1 n 4.2.2 ab 1 1",
        "ddp-pmix 1 n 4.2.2 ab 1",
        "ddp-pmix 1 n 4.2.2 ab 1 1 1",
        "ddp-pmix 1  4.2.2 ab 1 1",
        "ddp-pmix 1 a,b 4.2.2 ab 1 1",
        "ddp-pmix 1 n;m 4.2.2 ab 1 1",
        "ddp-pmix 1 n 4.2%s ab 1 1",
        "ddp-pmix 1 n 4.2.2 AB 1 1",
        "ddp-pmix 1 n 4.2.2 ../ 1 1",
        "ddp-pmix 1 n 4.2.2 ab x 1",
        "ddp-pmix 1 n 4.2.2 ab 11111111111111111 1",
        "ddp-pmix 1 n 4.2.2 ab 1 0",
        "ddp-pmix 1 n 4.2.2 ab 1 -1",
        "ddp-pmix 1 n 4.2.2 ab 1 1:",
        "ddp-pmix 1 n 4.2.2 ab 1 1::1",
        "ddp-pmix 1 n 4.2.2 ab 1 1048577",
        "ddp-pmix 1 n 4.2.2 ab 1 1048576:1",
        "ddp-pmix 1 n 4.2.2 ab 1 1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1",
        "ddp-pmix 1 n 4.2.2 0123456789abcdef0123456789abcdef0 1 1",
    };
    struct pmix_hello h;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        ck_assert_msg(parse(texts[i], &h) == -EPROTO, "%s", texts[i]);
    ck_assert_int_eq(pmix_hello_read((const uint8_t *)"ddp-pmix 1 n 4.2.2 ab 1 1\0", 26, &h, NULL),
                     -EPROTO);
}
END_TEST

START_TEST(a_long_one_is_rejected)
{
    static uint8_t bytes[PMIX_HELLO_BYTES];
    struct pmix_hello h;
    memset(bytes, 'a', sizeof bytes);
    ck_assert_int_eq(pmix_hello_read(bytes, sizeof bytes, &h, NULL), -EPROTO);
    ck_assert_int_eq(pmix_hello_read(bytes, sizeof bytes - 1, &h, NULL), -EPROTO);
}
END_TEST

static int read_part(const char *text, struct pmix_part *ret)
{
    return pmix_part_read((const uint8_t *)text, strlen(text), ret);
}

START_TEST(parts_of_later_rounds_are_read)
{
    struct pmix_part part;
    char text[PMIX_PART_GONE_BYTES];
    ck_assert_int_eq(read_part("Fabc", &part), 0);
    ck_assert(!part.is_gone && part.len == 3 && memcmp(part.bytes, "abc", 3) == 0);
    ck_assert_int_eq(read_part("F", &part), 0);
    ck_assert(!part.is_gone && part.len == 0);
    ck_assert_int_eq(pmix_part_print_gone(INT32_MAX, text), 11);
    ck_assert_str_eq(text, "G2147483647");
    ck_assert_int_eq(read_part(text, &part), 0);
    ck_assert(part.is_gone && part.rank == INT32_MAX);
    static const char *const wrong[] = {"",    "f",           "H1",  "G",
                                        "G-1", "G2147483648", "G1 ", "G12345678901234"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(read_part(wrong[i], &part) == -EPROTO, "%s", wrong[i]);
    ck_assert_int_eq(pmix_part_read((const uint8_t *)"G1\0", 3, &part), -EPROTO);
}
END_TEST

TEST_SUITE(pmix_hello)
{
    Suite *suite = suite_create("pmix_hello");
    TCase *c = tcase_create("pmix_hello");
    tcase_add_test(c, what_was_printed_is_read);
    tcase_add_test(c, the_largest_one_fits);
    tcase_add_test(c, anything_else_is_rejected);
    tcase_add_test(c, a_long_one_is_rejected);
    tcase_add_test(c, parts_of_later_rounds_are_read);
    suite_add_tcase(suite, c);
    return suite;
}
