/* test_net_ends.c - which addresses of two ranks the lanes join. */
#include "tests/support/suite.h"
#include "worker-runtime/interfaces/net_ends.h"

#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>
#include <string.h>

/* "10.0.0.1/24 10.0.1.1/24": the rails are counted. */
static struct net_ends ends_of(const char *text, uint8_t flags)
{
    struct net_ends e = {.flags = flags};
    char copy[256], *rest = copy;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word; (word = strsep(&rest, " ")) != NULL && word[0] != '\0'; e.n++) {
        char *slash = strchr(word, '/');
        struct net_end *x = &e.end[e.n];
        x->prefix = (uint8_t)atoi(slash + 1);
        *slash = '\0';
        x->rail = e.n;
        x->family = strchr(word, ':') != NULL ? AF_INET6 : AF_INET;
        ck_assert_int_eq(inet_pton(x->family, word, x->bytes), 1);
    }
    return e;
}

static const struct {
    const char *own, *peer;
    uint8_t flags; /* of both */
    const char *pairs;
} rows[] = {
    {"", "", NET_ENDS_NAMED, ""},
    {"10.0.0.1/24", "", NET_ENDS_NAMED, ""},
    {"", "10.0.0.1/24", NET_ENDS_NAMED, ""},
    /* a network for each rail */
    {"10.0.0.1/24 10.0.1.1/24", "10.0.0.2/24 10.0.1.2/24", 0, "00 11 "},
    {"10.0.0.1/24 10.0.1.1/24", "10.0.1.2/24 10.0.0.2/24", 0, "01 10 "},
    {"10.0.0.1/24 10.0.1.1/24", "10.0.1.2/24 10.0.0.2/24", NET_ENDS_NAMED, "01 10 "},
    {"10.0.0.1/25 10.0.0.129/25", "10.0.0.130/25 10.0.0.2/25", 0, "01 10 "},
    {"fd00:1::1/64 fd00:2::1/64", "fd00:2::2/64 fd00:1::2/64", 0, "01 10 "},
    /* one network for all */
    {"10.0.0.1/16 10.0.1.1/16", "10.0.0.2/16 10.0.1.2/16", 0, "00 11 "},
    {"10.0.0.1/16 10.0.1.1/16 10.0.2.1/16", "10.0.0.2/16 10.0.1.2/16", 0, "00 11 20 "},
    {"10.0.0.1/16", "10.0.0.2/16 10.0.1.2/16", 0, "00 "},
    /* one of two in common */
    {"10.0.0.1/24 10.0.1.1/24", "10.0.0.2/24 10.7.1.2/24", 0, "00 "},
    {"10.0.0.1/24 10.0.1.1/24", "10.0.0.2/24 10.7.1.2/24", NET_ENDS_NAMED, "00 11 "},
    /* none in common: routers may join those that users have named */
    {"10.0.0.1/31 10.0.1.1/31", "10.7.0.2/31 10.7.1.2/31", 0, ""},
    {"10.0.0.1/31 10.0.1.1/31", "10.7.0.2/31 10.7.1.2/31", NET_ENDS_NAMED, "00 11 "},
    {"10.0.0.1/31 10.0.1.1/31", "10.7.0.2/31", NET_ENDS_NAMED, "00 10 "},
    {"10.0.0.1/24", "fd00:1::1/64", NET_ENDS_NAMED, ""},
    /* nodes that do not agree on the network */
    {"10.0.0.1/24", "10.0.0.2/16", 0, ""},
};

START_TEST(ends_in_one_network_are_joined)
{
    const struct net_ends own = ends_of(rows[_i].own, rows[_i].flags),
                          peer = ends_of(rows[_i].peer, rows[_i].flags);
    struct net_pair pair[NET_ENDS_MOST];
    char text[4 * NET_ENDS_MOST + 1] = "";
    const unsigned n = net_ends_pairs(&own, &peer, pair);
    for (unsigned i = 0; i < n; i++)
        snprintf(text + 3 * i, sizeof text - 3 * i, "%u%u ", pair[i].own, pair[i].peer);
    ck_assert_str_eq(text, rows[_i].pairs);
}
END_TEST

START_TEST(lanes_take_the_pairs_in_turns)
{
    const struct net_ends own = ends_of("10.0.0.1/24 10.0.1.1/24", 0),
                          peer = ends_of("10.0.0.2/24 10.0.1.2/24", 0), none = {0};
    struct net_pair pair;
    for (unsigned lane = 1; lane <= 5; lane++) {
        ck_assert(net_ends_of_lane(&own, &peer, lane, &pair));
        ck_assert_uint_eq(pair.own, (lane - 1) % 2);
        ck_assert_uint_eq(pair.peer, (lane - 1) % 2);
    }
    ck_assert(!net_ends_of_lane(&own, &none, 1, &pair));
}
END_TEST

START_TEST(without_a_pair_there_are_lanes_only_if_users_count_them)
{
    const struct net_ends own = ends_of("10.0.0.1/24", 0), far = ends_of("10.9.0.1/24", 0),
                          near = ends_of("10.0.0.2/24", NET_ENDS_UNCOUNTED), none = {0};
    struct net_ends uncounted = far;
    uncounted.flags = NET_ENDS_UNCOUNTED;
    ck_assert(net_ends_allow_lanes(&none, &none));
    ck_assert(net_ends_allow_lanes(&own, &far));
    ck_assert(net_ends_allow_lanes(&own, &near));
    ck_assert(!net_ends_allow_lanes(&own, &uncounted));
    ck_assert(!net_ends_allow_lanes(&none, &uncounted));
}
END_TEST

static struct net_ends any_ends(void)
{
    struct net_ends e = {.n = (uint8_t)(rand() % (NET_ENDS_MOST + 1)),
                         .flags = (uint8_t)(rand() % 4)};
    for (unsigned i = 0; i < e.n; i++) {
        e.end[i] = (struct net_end){.family = rand() % 4 ? AF_INET : AF_INET6,
                                    .prefix = (uint8_t)(8 * (rand() % 5)),
                                    .rail = (uint8_t)(rand() % 3),
                                    .bytes = {10, (uint8_t)(rand() % 2), (uint8_t)(rand() % 2)}};
    }
    ck_assert(net_ends_is_valid(&e));
    return e;
}

START_TEST(both_ranks_agree_whether_there_are_lanes)
{
    srand(1);
    for (int i = 0; i < 100000; i++) {
        const struct net_ends a = any_ends(), b = any_ends();
        struct net_pair of_a[NET_ENDS_MOST], of_b[NET_ENDS_MOST];
        const unsigned n_a = net_ends_pairs(&a, &b, of_a), n_b = net_ends_pairs(&b, &a, of_b);
        ck_assert_int_eq(n_a > 0, n_b > 0);
        ck_assert_int_eq(net_ends_allow_lanes(&a, &b), net_ends_allow_lanes(&b, &a));
        for (unsigned k = 0; k < n_a; k++)
            ck_assert(of_a[k].own < a.n && of_a[k].peer < b.n);
    }
}
END_TEST

START_TEST(ends_out_of_bounds_are_refused)
{
    struct net_ends e = ends_of("10.0.0.1/32 fd00::1/128", NET_ENDS_NAMED | NET_ENDS_UNCOUNTED);
    ck_assert(net_ends_is_valid(&e));
    e.end[0].prefix = 33;
    ck_assert(!net_ends_is_valid(&e));
    e = ends_of("fd00::1/128", 0);
    e.end[0].prefix = 129;
    ck_assert(!net_ends_is_valid(&e));
    e = ends_of("10.0.0.1/24", NET_ENDS_PROBED << 1);
    ck_assert(!net_ends_is_valid(&e));
    e = ends_of("10.0.0.1/24", 0);
    e.end[0].family = AF_UNIX;
    ck_assert(!net_ends_is_valid(&e));
    e.n = NET_ENDS_MOST + 1;
    ck_assert(!net_ends_is_valid(&e));
}
END_TEST

TEST_SUITE(net_ends)
{
    Suite *suite = suite_create("net_ends");
    TCase *tcase = tcase_create("all");
    tcase_add_loop_test(tcase, ends_in_one_network_are_joined, 0, sizeof rows / sizeof *rows);
    tcase_add_test(tcase, lanes_take_the_pairs_in_turns);
    tcase_add_test(tcase, without_a_pair_there_are_lanes_only_if_users_count_them);
    tcase_add_test(tcase, both_ranks_agree_whether_there_are_lanes);
    tcase_add_test(tcase, ends_out_of_bounds_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
