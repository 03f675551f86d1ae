/* The CPU quota, in texts and in the trees of tests/data/cgroup, which are test doubles of /proc
 * and /sys. */
#include "common/cpu_quota.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *text;
    int rc;
    int64_t quota_us, period_us;
} texts[] = {
    {"150000 100000\n", 0, 150000, 100000},
    {"150000\n100000\n", 0, 150000, 100000}, /* version 1's two files */
    {"1 1000000", 0, 1, 1000000},
    {"1000000000000 1000000\n", 0, 1000000000000, 1000000},
    {"max 100000\n", -ENOENT, 0, 0},
    {"-1\n100000\n", -ENOENT, 0, 0},
    {"-1", -ENOENT, 0, 0},
    {"max", -ENOENT, 0, 0},
    {"maximum 100000\n", -EINVAL, 0, 0},
    {"", -EINVAL, 0, 0},
    {"\n", -EINVAL, 0, 0},
    {" 1 1\n", -EINVAL, 0, 0},
    {"100000\n", -EINVAL, 0, 0},
    {"x y\n", -EINVAL, 0, 0},
    {"5 0\n", -EINVAL, 0, 0},
    {"0 100000\n", -EINVAL, 0, 0},
    {"-5 100000\n", -EINVAL, 0, 0},
    {"5 -1\n", -EINVAL, 0, 0},
    {"5x 100000\n", -EINVAL, 0, 0},
    {"5 100000x\n", -EINVAL, 0, 0},
    {"5 100000 7\n", -EINVAL, 0, 0},
    {"1000000000001 100000\n", -EINVAL, 0, 0},
    {"5 1000001\n", -EINVAL, 0, 0},
    {"99999999999999999999 100000\n", -EINVAL, 0, 0},
};

START_TEST(a_text_is_a_quota_or_no_quota_or_invalid)
{
    struct co_cpu_quota q = {0};
    ck_assert_int_eq(co_cpu_quota_parse(texts[_i].text, &q), texts[_i].rc);
    ck_assert_int_eq(q.quota_us, texts[_i].quota_us);
    ck_assert_int_eq(q.period_us, texts[_i].period_us);
}
END_TEST

START_TEST(a_part_of_a_cpu_is_rounded_down_or_up)
{
    static const struct {
        struct co_cpu_quota q;
        int64_t floor, ceil;
    } cases[] = {{{1, 100000}, 0, 1},
                 {{100000, 100000}, 1, 1},
                 {{150000, 100000}, 1, 2},
                 {{200000, 100000}, 2, 2},
                 {{1000000000000, 1}, 1000000000000, 1000000000000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(co_cpu_quota_floor(&cases[i].q), cases[i].floor);
        ck_assert_int_eq(co_cpu_quota_ceil(&cases[i].q), cases[i].ceil);
    }
}
END_TEST

static const struct {
    const char *tree;
    int rc;
    int64_t quota_us;
} trees[] = {
    {"v2", 0, 250000},
    {"v1", 0, 150000}, /* set above the group; cpuset's group is not cpu's */
    {"v1-container", 0, 50000},
    {"none", -ENOENT, 0},
};

START_TEST(the_smallest_quota_of_all_groups_counts)
{
    char root[512];
    struct co_cpu_quota q = {0};
    snprintf(root, sizeof root, "%s/cgroup/%s", getenv("TEST_DATA"), trees[_i].tree);
    ck_assert_int_eq(co_cpu_quota_read(root, &q), trees[_i].rc);
    ck_assert_int_eq(q.quota_us, trees[_i].quota_us);
}
END_TEST

START_TEST(the_quota_of_this_machine_is_valid)
{
    struct co_cpu_quota q;
    int rc = co_cpu_quota_read("", &q);
    ck_assert(rc == -ENOENT || rc == 0);
    if (rc == 0)
        ck_assert(q.quota_us > 0 && q.period_us > 0);
}
END_TEST

TEST_SUITE(cpu_quota)
{
    Suite *suite = suite_create("cpu_quota");
    TCase *c = tcase_create("cpu_quota");
    tcase_add_loop_test(c, a_text_is_a_quota_or_no_quota_or_invalid, 0,
                        sizeof texts / sizeof *texts);
    tcase_add_test(c, a_part_of_a_cpu_is_rounded_down_or_up);
    tcase_add_loop_test(c, the_smallest_quota_of_all_groups_counts, 0,
                        sizeof trees / sizeof *trees);
    tcase_add_test(c, the_quota_of_this_machine_is_valid);
    suite_add_tcase(suite, c);
    return suite;
}
