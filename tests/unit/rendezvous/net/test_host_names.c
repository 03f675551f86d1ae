/* The names by which clients may call this machine's pages. */
#include "common/error.h"
#include "rendezvous/net/host_names.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

START_TEST(a_list_has_names_without_ports)
{
    static const char *const good[] = {"a", "train.example.org,gate_1", "A-1,b.c.", "*"};
    static const char *const bad[] = {"",     ",",        "a,",  ",a",  "a,,b",  "a b",    "**",
                                      "a:80", "http://a", "*.a", "a,*", "[::1]", "caf\xe9"};
    struct co_error err;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert_msg(host_names_check("--http-host", good[i], &err) == 0, "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(host_names_check("--http-host", bad[i], &err) == -EINVAL, "%s", bad[i]);
        ck_assert_msg(strstr(err.text, "for --http-host") != NULL, "%s", err.text);
    }
}
END_TEST

START_TEST(a_name_is_at_most_as_long_as_the_DNS_has_them)
{
    char name[HOST_NAME_CHARS + 2];
    struct co_error err;
    for (size_t n = HOST_NAME_CHARS; n <= HOST_NAME_CHARS + 1; n++) {
        memset(name, 'a', n);
        name[n] = '\0';
        ck_assert_int_eq(host_names_check("--http-host", name, &err),
                         n == HOST_NAME_CHARS ? 0 : -EINVAL);
    }
}
END_TEST

START_TEST(addresses_and_own_names_are_allowed_without_a_list)
{
    static const char *const others[] = {"evil.example.org", "127.0.0.1.evil.example.org",
                                         "localhost.evil.example.org", "localhos", ""};
    char own[HOST_NAME_MAX + 1] = "", longer[HOST_NAME_MAX + 2];
    gethostname(own, sizeof own - 1);
    strcpy(longer, own);
    strcat(longer, "x");
    ck_assert(host_names_allow("localhost", NULL) && host_names_allow("LocalHost", NULL));
    ck_assert(host_names_allow("10.1.2.3", NULL) && host_names_allow("::1", NULL));
    ck_assert(host_names_allow(own, NULL) && !host_names_allow(longer, NULL));
    own[strcspn(own, ".")] = '\0';
    ck_assert(host_names_allow(own, NULL) && host_names_are_own(own));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ck_assert_msg(!host_names_allow(others[i], NULL), "%s", others[i]);
    ck_assert(!host_names_are_own("10.1.2.3"));
}
END_TEST

START_TEST(names_of_the_list_are_allowed_as_a_whole)
{
    static const char list[] = "gate.example.org,gate2";
    ck_assert(host_names_allow("gate.example.org", list) && host_names_allow("GATE2", list));
    ck_assert(!host_names_allow("gate", list) && !host_names_allow("gate.example.orgx", list));
    ck_assert(!host_names_allow("gate.example.org,gate2", list) && !host_names_allow("", list));
    ck_assert(host_names_allow("anything", "*") && !host_names_allow("anything", "a"));
}
END_TEST

TEST_SUITE(host_names)
{
    Suite *suite = suite_create("host_names");
    TCase *c = tcase_create("host_names");
    tcase_add_test(c, a_list_has_names_without_ports);
    tcase_add_test(c, a_name_is_at_most_as_long_as_the_DNS_has_them);
    tcase_add_test(c, addresses_and_own_names_are_allowed_without_a_list);
    tcase_add_test(c, names_of_the_list_are_allowed_as_a_whole);
    suite_add_tcase(suite, c);
    return suite;
}
