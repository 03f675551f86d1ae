/* test_net_move.c - two ranks in one thread, each with two addresses of the loopback interface.
 * Chance decides when one of them, or both, take the connection for broken. */
#include "common/clock.h"
#include "common/error.h"
#include "tests/support/suite.h"
#include "worker-runtime/tcp/net_move.h"

#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEADLINE_MS = 30000, STREAM = 3 << 20 };

static struct net_member member[2];
static const uint8_t cookie[NET_COOKIE_BYTES] = "a cookie";

struct rank {
    struct net_links *links;
    unsigned peer;
    size_t said, heard;
};

static struct net_end end_of(uint8_t number, uint8_t last)
{
    return (struct net_end){
        .family = AF_INET, .prefix = 8, .rail = number, .bytes = {127, 0, 1, last}};
}

/* Rank i has 127.0.1.(1 + 2 i) and the next one. */
static void open_ranks(struct rank rank[2])
{
    struct co_error err;
    int listener[2];
    for (uint8_t i = 0; i < 2; i++) {
        member[i] = (struct net_member){
            .rank = i, .node = i, .address = {.family = AF_INET, .bytes = {127, 0, 1, 1 + 2 * i}}};
        member[i].ends = (struct net_ends){
            .n = 2, .flags = NET_ENDS_NAMED, .end = {end_of(0, 1 + 2 * i), end_of(1, 2 + 2 * i)}};
        ck_assert_int_eq(
            net_member_listen(&member[i], &member[i].port[NET_MESSAGES], &listener[i], &err), 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        const struct net_links_opts opts = {.rank = i,
                                            .n = 2,
                                            .member = member,
                                            .channel = NET_MESSAGES,
                                            .cookie = cookie,
                                            .listener = listener[i],
                                            .timeout_ms = DEADLINE_MS};
        rank[i] = (struct rank){.peer = 1 - i};
        ck_assert_int_eq(net_links_create(&opts, &rank[i].links, &err), 0);
        ck_assert_ptr_nonnull(rank[i].links->link[1 - i].move);
    }
}

static uint8_t byte_at(size_t i)
{
    return (uint8_t)((i * 31) ^ (i >> 8) ^ (i >> 16));
}

static void say_some(struct rank *r)
{
    static uint8_t bytes[60000];
    size_t n = 1 + (size_t)rand() % sizeof bytes;
    n = n < STREAM - r->said ? n : STREAM - r->said;
    for (size_t i = 0; i < n; i++)
        bytes[i] = byte_at(r->said + i);
    const struct iovec v[2] = {{bytes, n / 2}, {bytes + n / 2, n - n / 2}};
    const ssize_t went = n > 0 ? net_links_send(r->links, r->peer, v, 2) : 0;
    ck_assert_msg(went >= 0 || went == -EAGAIN, "sending: %zd", went);
    r->said += went > 0 ? (size_t)went : 0;
}

static void hear_some(struct rank *r)
{
    static uint8_t bytes[60000];
    const struct iovec v = {bytes, 1 + (size_t)rand() % sizeof bytes};
    const ssize_t n = net_links_receive(r->links, r->peer, &v, 1);
    ck_assert_msg(n > 0 || n == -EAGAIN, "receiving: %zd", n);
    ssize_t same = 0; /* an assertion costs more than a comparison */
    while (same < n && bytes[same] == byte_at(r->heard + (size_t)same))
        same++;
    ck_assert_int_eq(same, n > 0 ? n : 0);
    r->heard += n > 0 ? (size_t)n : 0;
}

static struct net_move *move_of(const struct rank *r)
{
    return r->links->link[r->peer].move;
}

/* Act as if the system had reported an unreachable peer.
 * returns   false: the connection cannot break now */
static bool break_path(const struct rank *r)
{
    if (r->links->link[r->peer].out < 0 || r->links->link[r->peer].is_connecting ||
        move_of(r)->state != NET_MOVE_STAYS)
        return false;
    ck_assert_int_eq(net_move_received(r->links, r->peer, -EHOSTUNREACH), -EAGAIN);
    return true;
}

START_TEST(a_connection_that_is_replaced_loses_and_repeats_nothing)
{
    struct rank rank[2];
    int n_broken = 0;
    const uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
    srand((unsigned)_i);
    open_ranks(rank);
    while (rank[0].heard < STREAM || rank[1].heard < STREAM) {
        ck_assert_uint_gt(co_left_ms(deadline_ms), 0);
        for (int k = 0; k < 4; k++) {
            const int i = rand() % 2;
            if (rand() % 2)
                say_some(&rank[i]);
            else
                hear_some(&rank[i]);
        }
        for (int i = 0; i < 2; i++)
            if (rand() % 12 == 0)
                n_broken += break_path(&rank[i]);
    }
    ck_assert_int_gt(n_broken, 3);
    net_links_destroy(rank[0].links);
    net_links_destroy(rank[1].links);
}
END_TEST

static void exchange_all(struct rank rank[2])
{
    const uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
    while (rank[0].heard < STREAM || rank[1].heard < STREAM) {
        ck_assert_uint_gt(co_left_ms(deadline_ms), 0);
        for (int i = 0; i < 2; i++) {
            say_some(&rank[i]);
            hear_some(&rank[i]);
        }
    }
}

START_TEST(the_other_interface_is_used)
{
    struct rank rank[2];
    open_ranks(rank);
    exchange_all(rank);
    ck_assert(break_path(&rank[_i]));
    rank[0].said = rank[1].said = rank[0].heard = rank[1].heard = 0;
    exchange_all(rank);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(move_of(&rank[i])->state, NET_MOVE_STAYS);
        ck_assert_int_eq(net_lanes_end_of(rank[i].links, rank[i].links->link[rank[i].peer].out), 1);
    }
    net_links_destroy(rank[0].links);
    net_links_destroy(rank[1].links);
}
END_TEST

START_TEST(a_peer_that_takes_no_connections_is_gone)
{
    struct rank rank[2];
    const uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
    uint8_t byte;
    const struct iovec v = {&byte, 1};
    ssize_t n;
    open_ranks(rank);
    exchange_all(rank);
    ck_assert(break_path(&rank[0]));
    net_links_destroy(rank[1].links);
    while ((n = net_links_receive(rank[0].links, 1, &v, 1)) == -EAGAIN)
        ck_assert_uint_gt(co_left_ms(deadline_ms), 0);
    ck_assert_int_eq(n, -ECONNRESET);
    ck_assert_int_eq(move_of(&rank[0])->state, NET_MOVE_GONE);
    net_links_destroy(rank[0].links);
}
END_TEST

/* --- a peer that does not keep to the rules --------------------------------------------------- */

static int connect_as_peer(const struct rank *r, const struct net_address *to, bool is_known)
{
    const struct hello hello = {.magic = HELLO_MAGIC,
                                .version = HELLO_VERSION,
                                .channel = NET_MESSAGES,
                                .lane = HELLO_MOVES,
                                .from = r->peer,
                                .to = 1 - r->peer};
    struct hello h = hello;
    int fd;
    if (is_known)
        memcpy(h.cookie, cookie, sizeof h.cookie);
    ck_assert_int_eq(net_address_connect(&member[0].address, to, member[0].port[NET_MESSAGES], &fd),
                     0);
    ck_assert_int_eq(poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, DEADLINE_MS), 1);
    ck_assert_int_eq(send(fd, &h, sizeof h, MSG_NOSIGNAL), sizeof h);
    return fd;
}

static void serve(const struct rank *r)
{
    uint8_t byte;
    const struct iovec v = {&byte, 1};
    net_links_receive(r->links, r->peer, &v, 1);
}

static void serve_until_state(const struct rank *r, enum net_move_state state)
{
    const uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
    for (; move_of(r)->state != state; serve(r))
        ck_assert_uint_gt(co_left_ms(deadline_ms), 0);
}

static void serve_until_closed(const struct rank *r, int fd)
{
    const uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
    char byte;
    for (; recv(fd, &byte, 1, MSG_DONTWAIT) != 0 && errno == EAGAIN; serve(r)) {
        ck_assert_uint_gt(co_left_ms(deadline_ms), 0);
        net_links_serve_newcomers(r->links);
    }
}

START_TEST(only_a_rank_of_the_job_can_replace_a_connection)
{
    struct rank rank[2];
    open_ranks(rank);
    exchange_all(rank);
    const int fd = connect_as_peer(&rank[0], &member[0].address, false);
    serve_until_closed(&rank[0], fd);
    ck_assert_int_eq(move_of(&rank[0])->state, NET_MOVE_STAYS);
    rank[0].said = rank[1].said = rank[0].heard = rank[1].heard = 0;
    exchange_all(rank);
    close(fd);
    net_links_destroy(rank[0].links);
    net_links_destroy(rank[1].links);
}
END_TEST

START_TEST(a_connection_that_was_never_made_is_not_replaced)
{
    struct rank rank[2];
    open_ranks(rank);
    const int fd = connect_as_peer(&rank[0], &member[0].address, true);
    serve_until_closed(&rank[0], fd);
    close(fd);
    net_links_destroy(rank[0].links);
    net_links_destroy(rank[1].links);
}
END_TEST

/* A rank with ends listens at all addresses of its machine. */
START_TEST(a_connection_to_an_address_that_the_rank_does_not_have_is_closed)
{
    const struct net_address other = {.family = AF_INET, .bytes = {127, 0, 0, 9}};
    struct rank rank[2];
    open_ranks(rank);
    const struct net_address own = net_ends_address(&member[0].ends.end[1]);
    exchange_all(rank);
    int fd = connect_as_peer(&rank[0], &other, true);
    serve_until_closed(&rank[0], fd);
    ck_assert_int_eq(move_of(&rank[0])->state, NET_MOVE_STAYS);
    close(fd);
    fd = connect_as_peer(&rank[0], &own, true);
    serve_until_state(&rank[0], NET_MOVE_AWAITS);
    close(fd);
    net_links_destroy(rank[0].links);
    net_links_destroy(rank[1].links);
}
END_TEST

START_TEST(a_count_that_cannot_be_ends_the_peer)
{
    static const struct net_move_count counts[] = {
        {.magic = NET_MOVE_MAGIC, .received = UINT64_MAX}, {.magic = 1, .received = STREAM}};
    struct rank rank[2];
    open_ranks(rank);
    exchange_all(rank);
    const int fd = connect_as_peer(&rank[0], &member[0].address, true);
    ck_assert_int_eq(send(fd, &counts[_i], sizeof counts[_i], MSG_NOSIGNAL), sizeof counts[_i]);
    serve_until_state(&rank[0], NET_MOVE_GONE);
    close(fd);
    net_links_destroy(rank[0].links);
    net_links_destroy(rank[1].links);
}
END_TEST

TEST_SUITE(net_move)
{
    Suite *suite = suite_create("net_move");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_connection_that_is_replaced_loses_and_repeats_nothing, 0, 12);
    tcase_add_loop_test(tcase, the_other_interface_is_used, 0, 2);
    tcase_add_test(tcase, a_peer_that_takes_no_connections_is_gone);
    tcase_add_test(tcase, only_a_rank_of_the_job_can_replace_a_connection);
    tcase_add_test(tcase, a_connection_that_was_never_made_is_not_replaced);
    tcase_add_test(tcase, a_connection_to_an_address_that_the_rank_does_not_have_is_closed);
    tcase_add_loop_test(tcase, a_count_that_cannot_be_ends_the_peer, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
