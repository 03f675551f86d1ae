/* Text from outside to numbers, within bounds. */
#include "common/error.h"
#include "common/parse.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *text;
    int64_t min, max;
    int64_t value;
} integers[] = {
    {"0", 0, 0, 0},
    {"007", 0, 10, 7},
    {"-5", -5, 5, -5},
    {"-0", 0, 1, 0},
    {"9223372036854775807", INT64_MIN, INT64_MAX, INT64_MAX},
    {"-9223372036854775808", INT64_MIN, INT64_MAX, INT64_MIN},
};

START_TEST(integers_within_bounds_are_accepted)
{
    int64_t value = 99;
    struct co_error err = {0};
    ck_assert_int_eq(
        co_parse_int("-n", integers[_i].text, integers[_i].min, integers[_i].max, &value, &err), 0);
    ck_assert_int_eq(value, integers[_i].value);
}
END_TEST

static const struct {
    const char *text;
    int code;
    const char *error;
} bad_integers[] = {
    {"", -EINVAL, "invalid value '' for -n: expected a number"},
    {"x", -EINVAL, "invalid value 'x' for -n: expected a number"},
    {"4x", -EINVAL, "invalid value '4x' for -n: expected a number"},
    {" 4", -EINVAL, "invalid value ' 4' for -n: expected a number"},
    {"4 ", -EINVAL, "invalid value '4 ' for -n: expected a number"},
    {"+4", -EINVAL, "invalid value '+4' for -n: expected a number"},
    {"--4", -EINVAL, "invalid value '--4' for -n: expected a number"},
    {"-", -EINVAL, "invalid value '-' for -n: expected a number"},
    {"0x10", -EINVAL, "invalid value '0x10' for -n: expected a number"},
    {"1.0", -EINVAL, "invalid value '1.0' for -n: expected a number"},
    {"0", -ERANGE, "invalid value '0' for -n: expected a number from 1 to 1024"},
    {"-1", -ERANGE, "invalid value '-1' for -n: expected a number from 1 to 1024"},
    {"1025", -ERANGE, "invalid value '1025' for -n: expected a number from 1 to 1024"},
    {"99999999999999999999", -ERANGE,
     "invalid value '99999999999999999999' for -n: expected a number from 1 to 1024"},
};

START_TEST(other_integers_are_refused_by_name)
{
    int64_t value = 99;
    struct co_error err = {0};
    ck_assert_int_eq(co_parse_int("-n", bad_integers[_i].text, 1, 1024, &value, &err),
                     bad_integers[_i].code);
    ck_assert_str_eq(err.text, bad_integers[_i].error);
    ck_assert_int_eq(err.code, bad_integers[_i].code);
    ck_assert_int_eq(value, 99);
}
END_TEST

static const struct {
    const char *text;
    uint64_t ms;
} durations[] = {
    {"0", 0},
    {"90", 90000},
    {"90s", 90000},
    {"1.5s", 1500},
    {"1.5", 1500},
    {"250ms", 250},
    {"10m", 600000},
    {"2h", 7200000},
    {"0.5ms", 1},
    {"0.4ms", 0},
    {"0.1s", 100},
    {"1.001s", 1001},
    {"1000000000", 1000000000000},
};

START_TEST(durations_have_units_and_fractions)
{
    uint64_t ms = 99;
    struct co_error err = {0};
    ck_assert_int_eq(co_parse_duration_ms("--t", durations[_i].text, &ms, &err), 0);
    ck_assert_uint_eq(ms, durations[_i].ms);
}
END_TEST

static const struct {
    const char *text;
    int code;
} bad_durations[] = {
    {"", -EINVAL},        {"s", -EINVAL},
    {"-1", -EINVAL},      {"+1", -EINVAL},
    {"1 s", -EINVAL},     {"1.s", -EINVAL},
    {".5", -EINVAL},      {"1e3", -EINVAL},
    {"1d", -EINVAL},      {"1sec", -EINVAL},
    {"1.2.3", -EINVAL},   {"inf", -EINVAL},
    {"0x1p3", -EINVAL},   {"1000000001", -ERANGE},
    {"300000h", -ERANGE}, {"1111111111111111111111111111111111", -EINVAL},
};

START_TEST(other_durations_are_refused_by_name)
{
    uint64_t ms = 99;
    struct co_error err = {0};
    ck_assert_int_eq(co_parse_duration_ms("--t", bad_durations[_i].text, &ms, &err),
                     bad_durations[_i].code);
    char named[100];
    snprintf(named, sizeof named, "invalid value '%s' for --t: expected ", bad_durations[_i].text);
    ck_assert_int_eq(strncmp(err.text, named, strlen(named)), 0);
    ck_assert_uint_eq(ms, 99);
}
END_TEST

static const struct {
    const char *text;
    uint64_t bytes;
} sizes[] = {
    {"0", 0},
    {"4096", 4096},
    {"64K", 64 << 10},
    {"64k", 64 << 10},
    {"8M", 8 << 20},
    {"8MiB", 8 << 20},
    {"1G", 1 << 30},
    {"15T", (uint64_t)15 << 40},
    {"18446744073709551615", UINT64_MAX},
    {"16777215T", (uint64_t)16777215 << 40},
};

START_TEST(sizes_have_units)
{
    uint64_t bytes = 99;
    struct co_error err = {0};
    ck_assert_msg(co_parse_size("--s", sizes[_i].text, 0, UINT64_MAX, &bytes, &err) == 0, "%s",
                  err.text);
    ck_assert_uint_eq(bytes, sizes[_i].bytes);
}
END_TEST

static const struct {
    const char *text;
    int code;
    const char *error;
} bad_sizes[] = {
    {"", -EINVAL, "invalid value '' for --s: expected a size such as 4096, 64K, 64M or 1G"},
    {"M", -EINVAL, "invalid value 'M' for --s: expected a size such as 4096, 64K, 64M or 1G"},
    {"-1", -EINVAL, "invalid value '-1' for --s: expected a size such as 4096, 64K, 64M or 1G"},
    {"1.5G", -EINVAL, "invalid value '1.5G' for --s: expected a size such as 4096, 64K, 64M or 1G"},
    {"8MB", -EINVAL, "invalid value '8MB' for --s: expected a size such as 4096, 64K, 64M or 1G"},
    {"8 M", -EINVAL, "invalid value '8 M' for --s: expected a size such as 4096, 64K, 64M or 1G"},
    {"8P", -EINVAL, "invalid value '8P' for --s: expected a size such as 4096, 64K, 64M or 1G"},
    {"8MiBs", -EINVAL,
     "invalid value '8MiBs' for --s: expected a size such as 4096, 64K, 64M or 1G"},
    {"4M", -ERANGE, "invalid value '4M' for --s: expected a size from 8M to 1536"},
    {"1537", -ERANGE, "invalid value '1537' for --s: expected a size from 8M to 1536"},
    {"16777216T", -ERANGE, "invalid value '16777216T' for --s: expected a size from 8M to 1536"},
    {"18446744073709551616", -ERANGE,
     "invalid value '18446744073709551616' for --s: expected a size from 8M to 1536"},
};

START_TEST(other_sizes_are_refused_by_name)
{
    uint64_t bytes = 99;
    struct co_error err = {0};
    ck_assert_int_eq(co_parse_size("--s", bad_sizes[_i].text, 8 << 20, 1536, &bytes, &err),
                     bad_sizes[_i].code);
    ck_assert_str_eq(err.text, bad_sizes[_i].error);
    ck_assert_uint_eq(bytes, 99);
}
END_TEST

static const struct {
    const char *text;
    const char *host;
    uint16_t port;
} endpoints[] = {
    {"node7", "node7", 99},
    {"node7:29400", "node7", 29400},
    {"10.0.0.1:0", "10.0.0.1", 0},
    {"[::1]", "::1", 99},
    {"[::1]:65535", "::1", 65535},
    {"[fe80::1%eth0]:1", "fe80::1%eth0", 1},
    {"123456789abcdef", "123456789abcdef", 99},
};

START_TEST(endpoints_have_a_host_and_perhaps_a_port)
{
    char host[16];
    uint16_t port = 99;
    struct co_error err = {0};
    int rc = co_parse_endpoint("--e", endpoints[_i].text, host, sizeof host, &port, &err);
    ck_assert_msg(rc == 0, "%s", err.text);
    ck_assert_str_eq(host, endpoints[_i].host);
    ck_assert_uint_eq(port, endpoints[_i].port);
}
END_TEST

static const struct {
    const char *text;
    const char *error;
} bad_endpoints[] = {
    {"", "invalid value '' for --e: expected HOST[:PORT], with an IPv6 address in brackets"},
    {":1", "invalid value ':1' for --e: expected HOST[:PORT], with an IPv6 address in brackets"},
    {"[]:1",
     "invalid value '[]:1' for --e: expected HOST[:PORT], with an IPv6 address in brackets"},
    {"::1", "invalid value '::1' for --e: expected HOST[:PORT], with an IPv6 address in brackets"},
    {"123456789abcdefg", "invalid value '123456789abcdefg' for --e: expected HOST[:PORT], with an "
                         "IPv6 address in brackets"},
    {"[::1", "invalid value '[::1' for --e: the closing ']' is missing"},
    {"[::1]29400",
     "invalid value '[::1]29400' for --e: expected HOST[:PORT], with an IPv6 address in brackets"},
    {"n:", "invalid value 'n:' for --e: '' is not a port from 0 to 65535"},
    {"n:65536", "invalid value 'n:65536' for --e: '65536' is not a port from 0 to 65535"},
    {"n:-1", "invalid value 'n:-1' for --e: '-1' is not a port from 0 to 65535"},
    {"fe80::1:29400", "invalid value 'fe80::1:29400' for --e: ':1:29400' is not a port from 0 to "
                      "65535; write an IPv6 address in brackets"},
};

START_TEST(other_endpoints_are_refused_by_name)
{
    char host[16] = "untouched";
    uint16_t port = 99;
    struct co_error err = {0};
    int rc = co_parse_endpoint("--e", bad_endpoints[_i].text, host, sizeof host, &port, &err);
    ck_assert_int_eq(rc, -EINVAL);
    ck_assert_str_eq(err.text, bad_endpoints[_i].error);
    ck_assert_str_eq(host, "untouched");
    ck_assert_uint_eq(port, 99);
}
END_TEST

START_TEST(long_texts_are_shown_in_part)
{
    char text[5000];
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    int64_t value;
    uint64_t ms;
    struct co_error err = {0};
    ck_assert_int_eq(co_parse_int("-n", text, 0, 1, &value, &err), -EINVAL);
    ck_assert_uint_lt(strlen(err.text), 300);
    ck_assert_int_eq(co_parse_duration_ms("-n", text, &ms, &err), -EINVAL);
    ck_assert_uint_lt(strlen(err.text), 300);
}
END_TEST

START_TEST(edits_are_counted_up_to_the_limit)
{
    ck_assert_int_eq(co_edit_distance("", "", 5), 0);
    ck_assert_int_eq(co_edit_distance("rank", "rank", 5), 0);
    ck_assert_int_eq(co_edit_distance("rank", "rnak", 5), 2);
    ck_assert_int_eq(co_edit_distance("rank", "ranks", 5), 1);
    ck_assert_int_eq(co_edit_distance("rank", "tank", 5), 1);
    ck_assert_int_eq(co_edit_distance("kitten", "sitting", 5), 3);
    ck_assert_int_eq(co_edit_distance("sitting", "kitten", 5), 3);
    ck_assert_int_eq(co_edit_distance("", "abc", 5), 3);
    ck_assert_int_eq(co_edit_distance("abc", "xyz", 2), 2);
}
END_TEST

START_TEST(very_long_words_are_never_suggested)
{
    char word[200];
    memset(word, 'a', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    ck_assert_int_eq(co_edit_distance(word, word, 7), 7);
    ck_assert_int_eq(co_edit_distance(word, "a", 7), 7);
    ck_assert_int_eq(co_edit_distance("a", word, 7), 7);
}
END_TEST

START_TEST(words_are_separated_by_blanks)
{
    char **words = co_parse_words("  ssh -F\ta/b \n");
    ck_assert_str_eq(words[0], "ssh");
    ck_assert_str_eq(words[1], "-F");
    ck_assert_str_eq(words[2], "a/b");
    ck_assert_ptr_null(words[3]);
    free(words);
    words = co_parse_words(" \n ");
    ck_assert_ptr_null(words[0]);
    free(words);
}
END_TEST

START_TEST(lists_of_words_are_joined_in_order)
{
    char *const first[] = {(char *)"python", (char *)"-u", NULL}, *const none[] = {NULL};
    char **words = co_join_words((char *const *const[]){first, none, first}, 3);
    ck_assert_uint_eq(co_count_words(words), 4);
    ck_assert_str_eq(words[0], "python");
    ck_assert_str_eq(words[3], "-u");
    free(words);
    words = co_join_words((char *const *const[]){none}, 1);
    ck_assert_uint_eq(co_count_words(words), 0);
    free(words);
}
END_TEST

START_TEST(digits_are_bytes)
{
    uint8_t bytes[3] = {0};
    char text[7];
    ck_assert_int_eq(co_parse_hex("00ff7a", bytes, 3), 0);
    co_print_hex(bytes, 3, text);
    ck_assert_str_eq(text, "00ff7a");
    static const char *const bad[] = {"", "00ff7", "00ff7a0", "00FF7a", "00ff7g", " 0ff7a"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_int_eq(co_parse_hex(bad[i], bytes, 3), -EINVAL);
    ck_assert_int_eq(co_parse_hex(NULL, bytes, 3), -EINVAL);
}
END_TEST

#define N(array) ((int)(sizeof(array) / sizeof *(array)))

TEST_SUITE(parse)
{
    Suite *suite = suite_create("parse");
    TCase *c = tcase_create("parse");
    tcase_add_loop_test(c, integers_within_bounds_are_accepted, 0, N(integers));
    tcase_add_loop_test(c, other_integers_are_refused_by_name, 0, N(bad_integers));
    tcase_add_loop_test(c, durations_have_units_and_fractions, 0, N(durations));
    tcase_add_loop_test(c, other_durations_are_refused_by_name, 0, N(bad_durations));
    tcase_add_loop_test(c, sizes_have_units, 0, N(sizes));
    tcase_add_loop_test(c, other_sizes_are_refused_by_name, 0, N(bad_sizes));
    tcase_add_loop_test(c, endpoints_have_a_host_and_perhaps_a_port, 0, N(endpoints));
    tcase_add_loop_test(c, other_endpoints_are_refused_by_name, 0, N(bad_endpoints));
    tcase_add_test(c, long_texts_are_shown_in_part);
    tcase_add_test(c, edits_are_counted_up_to_the_limit);
    tcase_add_test(c, very_long_words_are_never_suggested);
    tcase_add_test(c, words_are_separated_by_blanks);
    tcase_add_test(c, lists_of_words_are_joined_in_order);
    tcase_add_test(c, digits_are_bytes);
    suite_add_tcase(suite, c);
    return suite;
}
