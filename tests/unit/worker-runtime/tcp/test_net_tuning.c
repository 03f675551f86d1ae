/* test_net_tuning.c - from which size on a sum between nodes is dealt out. */
#include "tests/support/suite.h"
#include "worker-runtime/tcp/backend_net.h"

#include <check.h>

enum { MOST_NODES = 1024 };

/* What a rank sends, of n nodes, if a message costs as much as `message` bytes. */
static double cost_whole(double n, double size, double message)
{
    return (n - 1) * (size + message);
}

static double cost_parts(double n, double size, double message)
{
    return 2 * (n - 1) * (size / n + message);
}

START_TEST(data_is_sent_to_all_as_long_as_that_costs_least)
{
    const struct net_tuning t = NET_TUNING_DEFAULT;
    const double message = (double)t.whole_bytes;
    for (unsigned n = 3; n <= MOST_NODES; n++) {
        const double bound = (double)net_tuning_whole(&t, n);
        ck_assert_msg(cost_whole(n, bound * 0.9, message) < cost_parts(n, bound * 0.9, message),
                      "%u nodes, %g bytes: parts are the better way", n, bound * 0.9);
        ck_assert_msg(cost_whole(n, bound * 1.1, message) > cost_parts(n, bound * 1.1, message),
                      "%u nodes, %g bytes: parts are the worse way", n, bound * 1.1);
    }
}
END_TEST

START_TEST(between_two_nodes_the_bound_equals_the_measured_one)
{
    const struct net_tuning t = NET_TUNING_DEFAULT;
    ck_assert_uint_eq(net_tuning_whole(&t, 2), 64 << 10);
}
END_TEST

START_TEST(a_bound_of_zero_distributes_every_sum)
{
    struct net_tuning t = NET_TUNING_DEFAULT;
    t.whole_bytes = 0;
    for (unsigned n = 2; n <= MOST_NODES; n++)
        ck_assert_uint_eq(net_tuning_whole(&t, n), 0);
}
END_TEST

TEST_SUITE(net_tuning)
{
    Suite *suite = suite_create("net_tuning");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, data_is_sent_to_all_as_long_as_that_costs_least);
    tcase_add_test(tcase, between_two_nodes_the_bound_equals_the_measured_one);
    tcase_add_test(tcase, a_bound_of_zero_distributes_every_sum);
    suite_add_tcase(suite, tcase);
    return suite;
}
