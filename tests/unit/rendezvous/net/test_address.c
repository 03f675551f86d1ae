/* Addresses in figures, and lists of those who may connect. */
#include "common/error.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/allow.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sockaddr_storage address_of(const char *text)
{
    struct sockaddr_storage address;
    ck_assert_msg(address_parse(text, 29400, &address) == 0, "%s", text);
    return address;
}

START_TEST(addresses_are_printed_in_their_usual_form)
{
    static const char *const cases[][2] = {
        {"10.0.0.7", "10.0.0.7:29400"},   {"0.0.0.0", "0.0.0.0:29400"},
        {"fd00::7", "[fd00::7]:29400"},   {"::", "[::]:29400"},
        {"fe80::1%1", "[fe80::1]:29400"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sockaddr_storage address = address_of(cases[i][0]);
        char text[ADDRESS_TEXT_BYTES];
        address_print(&address, text);
        ck_assert_str_eq(text, cases[i][1]);
        ck_assert_uint_eq(address_port(&address), 29400);
    }
    struct sockaddr_storage none = {0};
    char text[ADDRESS_TEXT_BYTES];
    address_print(&none, text);
    ck_assert_str_eq(text, "?");
}
END_TEST

START_TEST(names_are_not_addresses)
{
    static const char *const cases[] = {"",          "localhost", "node7",     "1.2.3", "1.2.3.4.5",
                                        "256.1.1.1", "::g",       "10.0.0.1 ", "[::1]", "::1::2"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sockaddr_storage address;
        ck_assert_msg(address_parse(cases[i], 1, &address) == -EINVAL, "%s", cases[i]);
    }
}
END_TEST

START_TEST(loopback_is_all_of_127_and_ipv6_1)
{
    static const struct {
        const char *text;
        bool is_loopback;
    } cases[] = {
        {"127.0.0.1", true},
        {"127.255.255.254", true},
        {"128.0.0.1", false},
        {"10.0.0.1", false},
        {"::1", true},
        {"::2", false},
        {"::ffff:127.0.0.1", true},
        {"::ffff:10.0.0.1", false},
        {"::", false},
        {"fe80::1", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sockaddr_storage address = address_of(cases[i].text);
        ck_assert_msg(address_is_loopback(&address) == cases[i].is_loopback, "%s", cases[i].text);
    }
}
END_TEST

START_TEST(a_list_has_the_addresses_of_its_networks)
{
    static const struct {
        const char *net, *address;
        bool is_in;
    } cases[] = {
        {"10.0.0.7", "10.0.0.7", true},
        {"10.0.0.7", "10.0.0.6", false},
        {"10.0.0.7", "::ffff:10.0.0.7", true},
        {"::ffff:10.0.0.7", "10.0.0.7", true},
        {"10.0.0.0/24", "10.0.0.255", true},
        {"10.0.0.0/24", "10.0.1.0", false},
        {"10.0.0.99/24", "10.0.0.1", true}, /* bits after the first 24 are ignored */
        {"10.0.0.128/25", "10.0.0.127", false},
        {"10.0.0.128/25", "10.0.0.200", true},
        {"10.0.0.6/31", "10.0.0.7", true},
        {"10.0.0.6/31", "10.0.0.8", false},
        {"0.0.0.0/0", "203.0.113.9", true},
        {"0.0.0.0/0", "2001:db8::1", false},
        {"0.0.0.0/1", "128.0.0.1", false},
        {"::/0", "2001:db8::1", true},
        {"::/0", "203.0.113.9", false},
        {"2001:db8::/33", "2001:db8:7fff::1", true},
        {"2001:db8::/33", "2001:db8:8000::1", false},
        {"fd00::/8", "fdff::1", true},
        {"fd00::7/128", "fd00::7", true},
        {"fd00::7/128", "fd00::6", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct allow_list list = {0};
        struct sockaddr_storage address = address_of(cases[i].address);
        ck_assert_int_eq(allow_add(&list, cases[i].net, NULL), 0);
        ck_assert_msg(allow_has(&list, &address) == cases[i].is_in, "%s in %s", cases[i].address,
                      cases[i].net);
    }
}
END_TEST

START_TEST(any_of_several_networks_is_enough)
{
    struct allow_list list = {0};
    struct sockaddr_storage first = address_of("10.0.0.1"), second = address_of("fd00::1");
    ck_assert(!allow_has(&list, &first));
    ck_assert_int_eq(allow_add(&list, "10.0.0.0/8", NULL), 0);
    ck_assert_int_eq(allow_add(&list, "fd00::/8", NULL), 0);
    ck_assert(allow_has(&list, &first));
    ck_assert(allow_has(&list, &second));
}
END_TEST

START_TEST(an_invalid_network_is_refused)
{
    static const char *const cases[][2] = {
        {"node7", "invalid value 'node7': expected a numeric ADDR or ADDR/BITS"},
        {"", "invalid value '': expected a numeric ADDR or ADDR/BITS"},
        {"/8", "invalid value '/8': expected a numeric ADDR or ADDR/BITS"},
        {"10.0.0.0/", "invalid value '10.0.0.0/': expected 0 to 32 bits, not ''"},
        {"10.0.0.0/33", "invalid value '10.0.0.0/33': expected 0 to 32 bits, not '33'"},
        {"10.0.0.0/-1", "invalid value '10.0.0.0/-1': expected 0 to 32 bits, not '-1'"},
        {"10.0.0.0/8/8", "invalid value '10.0.0.0/8/8': expected 0 to 32 bits, not '8/8'"},
        {"fd00::/129", "invalid value 'fd00::/129': expected 0 to 128 bits, not '129'"},
        {"10.0.0.0/255.0.0.0",
         "invalid value '10.0.0.0/255.0.0.0': expected 0 to 32 bits, not '255.0.0.0'"},
    };
    struct allow_list list = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct co_error err = {0};
        ck_assert_int_eq(allow_add(&list, cases[i][0], &err), -EINVAL);
        ck_assert_str_eq(err.text, cases[i][1]);
    }
    ck_assert_uint_eq(list.n, 0);
    char text[5000];
    memset(text, '1', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    ck_assert_int_eq(allow_add(&list, text, NULL), -EINVAL);
}
END_TEST

START_TEST(a_list_is_bounded)
{
    struct allow_list list = {0};
    for (int i = 0; i < ALLOW_MAX; i++)
        ck_assert_int_eq(allow_add(&list, "10.0.0.1", NULL), 0);
    struct co_error err = {0};
    ck_assert_int_eq(allow_add(&list, "10.0.0.1", &err), -ENOSPC);
    ck_assert_str_eq(err.text, "more than 256 networks");
}
END_TEST

START_TEST(a_list_admits_many_hosts)
{
    enum { N = 10000 };
    static struct in6_addr hosts[N];
    struct allow_list list = {0};
    struct sockaddr_storage address;
    char text[32];
    for (int i = 0; i < N; i++) { /* in no order */
        snprintf(text, sizeof text, "10.%d.%d.7", i * 7919 % N / 256, i * 7919 % N % 256);
        ck_assert_int_eq(address_parse(text, 0, &address), 0);
        hosts[i] = address_as_v6(&address);
    }
    ck_assert_int_eq(allow_set_hosts(&list, hosts, N), 0);
    for (int i = 0; i < N; i++) {
        snprintf(text, sizeof text, "10.%d.%d.7", i / 256, i % 256);
        ck_assert_int_eq(address_parse(text, 0, &address), 0);
        ck_assert(allow_has(&list, &address));
    }
    ck_assert_int_eq(address_parse("10.0.0.8", 0, &address), 0);
    ck_assert(!allow_has(&list, &address));
    ck_assert_int_eq(allow_add(&list, "10.0.0.8", NULL), 0); /* in addition to the networks */
    ck_assert(allow_has(&list, &address));
    ck_assert_int_eq(allow_set_hosts(&list, NULL, 0), 0);
    ck_assert_int_eq(address_parse("10.0.0.7", 0, &address), 0);
    ck_assert(!allow_has(&list, &address));
    allow_fini(&list);
}
END_TEST

TEST_SUITE(address)
{
    Suite *suite = suite_create("address");
    TCase *tc = tcase_create("address");
    tcase_add_test(tc, addresses_are_printed_in_their_usual_form);
    tcase_add_test(tc, names_are_not_addresses);
    tcase_add_test(tc, loopback_is_all_of_127_and_ipv6_1);
    tcase_add_test(tc, a_list_has_the_addresses_of_its_networks);
    tcase_add_test(tc, any_of_several_networks_is_enough);
    tcase_add_test(tc, an_invalid_network_is_refused);
    tcase_add_test(tc, a_list_is_bounded);
    tcase_add_test(tc, a_list_admits_many_hosts);
    suite_add_tcase(suite, tc);
    return suite;
}
