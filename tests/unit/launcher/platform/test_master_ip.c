/* The numeric address for MASTER_ADDR. */
#include "common/error.h"
#include "launcher/platform/own_addresses.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>

START_TEST(a_numeric_address_is_kept)
{
    static const char *const numbers[] = {"127.0.0.1", "::1", "fe80::1", "255.255.255.255",
                                          "2001:db8:1234:5678:9abc:def0:1234:5678"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char ip[INET6_ADDRSTRLEN];
        ck_assert_int_eq(master_ip_find(numbers[i], ip, NULL), 0);
        ck_assert_str_eq(ip, numbers[i]);
    }
}
END_TEST

START_TEST(a_name_gives_its_ipv4_address)
{
    char ip[INET6_ADDRSTRLEN];
    ck_assert_int_eq(master_ip_find("localhost", ip, NULL), 0);
    ck_assert_str_eq(ip, "127.0.0.1");
}
END_TEST

START_TEST(an_invalid_name_is_an_error_that_names_it)
{
    char ip[INET6_ADDRSTRLEN];
    struct co_error err = {0};
    int rc = master_ip_find("no..such", ip, &err);
    ck_assert(rc == -ENOENT || rc == -EAGAIN); /* a resolver may take its time */
    ck_assert_int_eq(err.code, rc);
    ck_assert_ptr_nonnull(strstr(err.text, "no..such"));
}
END_TEST

TEST_SUITE(master_ip)
{
    Suite *suite = suite_create("master_ip");
    TCase *c = tcase_create("master_ip");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, a_numeric_address_is_kept);
    tcase_add_test(c, a_name_gives_its_ipv4_address);
    tcase_add_test(c, an_invalid_name_is_an_error_that_names_it);
    suite_add_tcase(suite, c);
    return suite;
}
