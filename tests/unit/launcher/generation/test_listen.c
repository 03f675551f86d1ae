#include "launcher/generation/listen.h"
#include "tests/support/suite.h"

#include <check.h>

START_TEST(connections_leave_the_descriptors_that_ranks_need)
{
    static const uint64_t n_files[] = {256, 512, 1024, 4096, 65536, 1 << 20};
    for (size_t i = 0; i < sizeof n_files / sizeof *n_files; i++) {
        struct listen_limits l = listen_limits_of(n_files[i], 2, 8);
        /* twice: as many of HTTP; 16: see server.c */
        uint64_t n = 2 * (uint64_t)l.n_newcomers + 16 + l.n_nodes + l.n_clients;
        ck_assert_uint_le(n + 64, n_files[i]);
        ck_assert_uint_ge(l.n_nodes, 8);
        ck_assert_uint_ge(l.n_newcomers, 16);
    }
}
END_TEST

START_TEST(a_large_job_may_connect_all_of_its_nodes_and_ranks)
{
    struct listen_limits l = listen_limits_of(1 << 20, 16, 10000);
    ck_assert_uint_ge(l.n_nodes, 2 * 10000);
    ck_assert_uint_eq(l.n_newcomers, 1024);
    ck_assert_uint_eq(l.n_clients, 65536);
    l = listen_limits_of(UINT64_MAX, 1, 1);
    ck_assert_uint_ge(l.n_nodes, 2);
    ck_assert_uint_eq(l.n_clients, 65536);
}
END_TEST

START_TEST(with_too_few_descriptors_some_connections_are_still_taken)
{
    struct listen_limits l = listen_limits_of(20, 8, 8);
    ck_assert_uint_ge(l.n_newcomers, 1);
    ck_assert_uint_ge(l.n_nodes, 8);
    ck_assert_uint_ge(l.n_clients, 64);
}
END_TEST

TEST_SUITE(listen)
{
    Suite *suite = suite_create("listen");
    TCase *tc = tcase_create("listen");
    tcase_add_test(tc, connections_leave_the_descriptors_that_ranks_need);
    tcase_add_test(tc, a_large_job_may_connect_all_of_its_nodes_and_ranks);
    tcase_add_test(tc, with_too_few_descriptors_some_connections_are_still_taken);
    suite_add_tcase(suite, tc);
    return suite;
}
