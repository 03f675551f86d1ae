#include "rendezvous/net/address.h"
#include "rendezvous/net/newcomers.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>

static struct newcomers all;
static struct newcomer list[600];

static void set_up(void)
{
    all = (struct newcomers){.seed = 7};
}

static void add(int i, const char *from)
{
    struct sockaddr_storage address;
    ck_assert_int_eq(address_parse(from, 29400, &address), 0);
    list[i] = (struct newcomer){0};
    newcomers_add(&all, &list[i], &address);
}

START_TEST(the_oldest_connection_of_a_network_is_chosen)
{
    ck_assert_ptr_null(newcomers_choose(&all));
    for (int i = 0; i < 3; i++)
        add(i, "192.0.2.1");
    ck_assert_ptr_eq(newcomers_choose(&all), &list[0]);
    newcomers_remove(&all, &list[1]);
    newcomers_remove(&all, &list[1]);
    newcomers_remove(&all, &list[0]);
    ck_assert_ptr_eq(newcomers_choose(&all), &list[2]);
    newcomers_remove(&all, &list[2]);
    ck_assert_ptr_null(newcomers_choose(&all));
}
END_TEST

START_TEST(the_network_with_the_most_connections_is_chosen)
{
    add(0, "192.0.2.1");
    add(1, "192.0.2.2");
    add(2, "192.0.2.2");
    ck_assert_ptr_eq(newcomers_choose(&all), &list[1]);
    newcomers_remove(&all, &list[1]);
    ck_assert_ptr_eq(newcomers_choose(&all), &list[0]); /* one each: the older one */
}
END_TEST

START_TEST(addresses_of_an_ipv6_network_count_together)
{
    char from[64];
    add(0, "2001:db8:1::1");
    add(1, "192.0.2.1");
    add(2, "::ffff:192.0.2.1"); /* the same address, of an IPv6 socket */
    ck_assert_ptr_eq(newcomers_choose(&all), &list[1]);
    for (int i = 3; i < 6; i++) {
        snprintf(from, sizeof from, "2001:db8:2::%d", i);
        add(i, from);
    }
    ck_assert_ptr_eq(newcomers_choose(&all), &list[3]);
}
END_TEST

START_TEST(a_peer_with_many_connections_displaces_its_own)
{
    char from[64];
    for (int i = 0; i < 20; i++) { /* an honest one each */
        snprintf(from, sizeof from, "198.51.100.%d", i);
        add(i, from);
    }
    for (int i = 20; i < 600; i++) {
        add(i, "203.0.113.9");
        if (i >= 100) {
            struct newcomer *c = newcomers_choose(&all);
            ck_assert_ptr_eq(c, &list[i - 80]);
            newcomers_remove(&all, c);
        }
    }
}
END_TEST

TEST_SUITE(newcomers)
{
    Suite *suite = suite_create("newcomers");
    TCase *tc = tcase_create("newcomers");
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_test(tc, the_oldest_connection_of_a_network_is_chosen);
    tcase_add_test(tc, the_network_with_the_most_connections_is_chosen);
    tcase_add_test(tc, addresses_of_an_ipv6_network_count_together);
    tcase_add_test(tc, a_peer_with_many_connections_displaces_its_own);
    suite_add_tcase(suite, tc);
    return suite;
}
