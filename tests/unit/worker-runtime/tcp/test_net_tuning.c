/* test_net_tuning.c - which algorithm an all_reduce between nodes takes, and whether lanes pay. */
#include "tests/support/suite.h"
#include "worker-runtime/tcp/backend_net.h"
#include "worker-runtime/tcp/net_probe.h"

#include <check.h>

START_TEST(between_two_nodes_the_bound_equals_the_measured_one)
{
    const struct net_tuning tuning = NET_TUNING_DEFAULT;
    ck_assert_int_eq(net_tuning_algo(&tuning, 2, 0), COST_WHOLE);
    ck_assert_int_eq(net_tuning_algo(&tuning, 2, 64 << 10), COST_WHOLE);
    ck_assert_int_eq(net_tuning_algo(&tuning, 2, (64 << 10) + 1), COST_PARTS);
    ck_assert_int_eq(net_tuning_algo(&tuning, 2, SIZE_MAX), COST_PARTS);
}
END_TEST

START_TEST(between_more_nodes_the_model_decides)
{
    const struct net_tuning tuning = NET_TUNING_DEFAULT;
    for (unsigned n = 3; n < 5000; n = n * 3 / 2)
        for (size_t bytes = 4; bytes < SIZE_MAX / 16; bytes *= 16)
            ck_assert_int_eq(net_tuning_algo(&tuning, n, bytes),
                             cost_choose(n, bytes, &tuning.network));
}
END_TEST

START_TEST(lanes_pay_if_they_save_a_fifth)
{
    ck_assert(net_probe_prefers_lanes(1000, 799));
    ck_assert(!net_probe_prefers_lanes(1000, 801));
    ck_assert(!net_probe_prefers_lanes(1000, 2000));
    ck_assert(!net_probe_prefers_lanes(0, 0)); /* too slow to be measured */
}
END_TEST

TEST_SUITE(net_tuning)
{
    Suite *suite = suite_create("net_tuning");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, between_two_nodes_the_bound_equals_the_measured_one);
    tcase_add_test(tcase, between_more_nodes_the_model_decides);
    tcase_add_test(tcase, lanes_pay_if_they_save_a_fifth);
    suite_add_tcase(suite, tcase);
    return suite;
}
