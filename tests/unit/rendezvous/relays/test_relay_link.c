#include "rendezvous/relays/relay_link.h"

#include "rendezvous/channel/channel_wire.h"
#include "tests/support/suite.h"

#include <check.h>
#include <string.h>

START_TEST(only_a_greeting_of_its_version_is_for_a_link)
{
    const uint8_t control[] = {'D', 'D', 'P', '1', CHANNEL_WIRE_VERSION, CHANNEL_WIRE_VERSION};
    const uint8_t link[] = {'D', 'D', 'P', '1', RELAY_LINK_VERSION, RELAY_LINK_VERSION};
    ck_assert(!relay_link_claims(control, sizeof control));
    ck_assert(relay_link_claims(link, sizeof link));
    ck_assert(!relay_link_claims(link, 4)); /* it is not known yet */
}
END_TEST

START_TEST(a_hello_names_window_generation_and_job)
{
    uint8_t one[RELAY_LINK_HELLO_BYTES], other[RELAY_LINK_HELLO_BYTES];
    const size_t len = relay_link_hello(258, "job", one);
    const uint8_t expected[] = {0, 0, 4, 0, 2, 1, 0, 0, 'j', 'o', 'b'};
    ck_assert_uint_eq(len, sizeof expected);
    ck_assert_mem_eq(one, expected, len);
    ck_assert(relay_link_hello(259, "job", other) == len && memcmp(one, other, len) != 0);
    ck_assert(relay_link_hello(258, "jab", other) == len && memcmp(one, other, len) != 0);
}
END_TEST

START_TEST(the_longest_run_id_fits)
{
    char run_id[MESSAGE_RUN_ID_BYTES + 100];
    uint8_t hello[RELAY_LINK_HELLO_BYTES];
    memset(run_id, 'x', sizeof run_id - 1);
    run_id[sizeof run_id - 1] = '\0';
    ck_assert_uint_eq(relay_link_hello(0, run_id, hello), sizeof hello);
}
END_TEST

TEST_SUITE(relay_link)
{
    Suite *suite = suite_create("relay_link");
    TCase *all = tcase_create("all");
    tcase_add_test(all, only_a_greeting_of_its_version_is_for_a_link);
    tcase_add_test(all, a_hello_names_window_generation_and_job);
    tcase_add_test(all, the_longest_run_id_fits);
    suite_add_tcase(suite, all);
    return suite;
}
