/* test_net_links.c - how the end of a connection appears to the side that made it, and the effect
 * of a bad peer's messages. The other side is a plain socket: a test double of a rank. */
#include "common/clock.h"
#include "common/error.h"
#include "tests/support/suite.h"
#include "worker-runtime/tcp/net_watch.h"
#include "worker-runtime/tcp/p2p_tcp_priv.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEADLINE_MS = 20000, HELLO_BYTES = 96, FROM_AT = 32 };

static struct net_member member[2];
static int other = -1, taken = -1; /* of the other side: listens; the connection */

static struct net_links *links_to_other(void)
{
    static const uint8_t cookie[NET_COOKIE_BYTES] = "a cookie";
    struct co_error err;
    struct net_links *l;
    const uint32_t loopback = htonl(INADDR_LOOPBACK);
    int listener[2];
    for (int i = 0; i < 2; i++) {
        member[i] = (struct net_member){.rank = (uint32_t)i, .address = {.family = AF_INET}};
        memcpy(member[i].address.bytes, &loopback, sizeof loopback);
        ck_assert_int_eq(net_address_listen(&member[i].address, &member[i].port[NET_MESSAGES],
                                            &listener[i], &err),
                         0);
    }
    other = listener[1];
    struct net_links_opts opts = {.n = 2,
                                  .member = member,
                                  .channel = NET_MESSAGES,
                                  .cookie = cookie,
                                  .listener = listener[0],
                                  .timeout_ms = DEADLINE_MS};
    ck_assert_int_eq(net_links_create(&opts, &l, &err), 0);
    return l;
}

static void wait_for(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};
    ck_assert_int_eq(poll(&p, 1, DEADLINE_MS), 1);
}

/* Connect, and have the other side take it. */
static void connect_to_other(struct net_links *l)
{
    const uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
    while (net_links_reach(l, 1) == -EAGAIN)
        ck_assert_uint_gt(co_left_ms(deadline_ms), 0);
    wait_for(other, POLLIN);
    taken = accept(other, NULL, NULL);
    ck_assert_int_ge(taken, 0);
}

static void hear_hello(void)
{
    char hello[HELLO_BYTES];
    ck_assert_int_eq(recv(taken, hello, sizeof hello, MSG_WAITALL), sizeof hello);
}

static ssize_t receive(struct net_links *l)
{
    char bytes[64];
    struct iovec v = {bytes, sizeof bytes};
    struct pollfd p;
    ck_assert_uint_eq(net_links_watch(l, 1, true, false, &p), 1);
    wait_for(p.fd, POLLIN);
    return net_links_receive(l, 1, &v, 1);
}

static void close_other(void)
{
    close(taken);
    close(other);
}

START_TEST(a_connection_closed_without_data_was_never_accepted)
{
    struct net_links *l = links_to_other();
    connect_to_other(l);
    hear_hello();
    close_other();
    ck_assert_int_eq(receive(l), -ECONNREFUSED);
    net_links_destroy(l);
}
END_TEST

START_TEST(a_reset_connection_was_never_accepted)
{
    struct net_links *l = links_to_other();
    connect_to_other(l);
    wait_for(taken, POLLIN); /* the hello, which is not read: so this is a reset */
    close_other();
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(receive(l), -ECONNREFUSED);
    net_links_destroy(l);
}
END_TEST

START_TEST(a_connection_with_data_was_accepted)
{
    struct net_links *l = links_to_other();
    connect_to_other(l);
    hear_hello();
    ck_assert_int_eq(send(taken, "x", 1, 0), 1);
    close_other();
    ck_assert_int_eq(receive(l), 1);
    ck_assert_int_eq(receive(l), -EPIPE);
    net_links_destroy(l);
}
END_TEST

/* --- rendezvous ------------------------------------------------------------------------------- */

enum { MEET_MS = 300 };

static int connect_to(uint16_t port)
{
    struct net_address loopback = member[1].address;
    int fd;
    ck_assert_int_eq(net_address_connect(&loopback, &loopback, port, &fd), 0);
    return fd;
}

/* On the loopback interface a full queue is what comes nearest to a path that drops all. */
START_TEST(an_unreachable_rank_is_named_with_both_addresses)
{
    enum { FILLING = 4 };
    struct net_links *l = links_to_other();
    struct co_error err;
    char end[64];
    int fill[FILLING];
    const int any = 0; /* connections without a byte also fill it */
    ck_assert_int_eq(setsockopt(other, IPPROTO_TCP, TCP_DEFER_ACCEPT, &any, sizeof any), 0);
    ck_assert_int_eq(listen(other, 0), 0);
    for (int i = 0; i < FILLING; i++)
        fill[i] = connect_to(member[1].port[NET_MESSAGES]);
    const unsigned peer = 1;
    ck_assert_int_eq(net_links_meet(l, &peer, 1, co_deadline_ms(MEET_MS), &err), -ETIMEDOUT);
    snprintf(end, sizeof end, "127.0.0.1 port %u, from 127.0.0.1: ", member[1].port[NET_MESSAGES]);
    ck_assert_msg(strstr(err.text, "cannot connect to rank 1 on node 0 () at ") == err.text, "%s",
                  err.text);
    ck_assert_msg(strstr(err.text, end) != NULL, "%s", err.text);
    for (int i = 0; i < FILLING; i++)
        close(fill[i]);
    close(other);
    net_links_destroy(l);
}
END_TEST

START_TEST(a_rank_that_does_not_connect_is_named_with_its_target)
{
    static const uint8_t cookie[NET_COOKIE_BYTES] = "a cookie";
    struct co_error err;
    struct net_links *l;
    char text[96];
    net_links_destroy(links_to_other());
    const struct net_links_opts opts = {.rank = 1,
                                        .n = 2,
                                        .member = member,
                                        .channel = NET_MESSAGES,
                                        .cookie = cookie,
                                        .listener = other,
                                        .timeout_ms = DEADLINE_MS};
    ck_assert_int_eq(net_links_create(&opts, &l, &err), 0);
    const unsigned peer = 0;
    ck_assert_int_eq(net_links_meet(l, &peer, 1, co_deadline_ms(MEET_MS), &err), -ETIMEDOUT);
    snprintf(
        text, sizeof text,
        "timed out waiting for rank 0 on node 0 () to connect to this rank at 127.0.0.1 port %u",
        member[1].port[NET_MESSAGES]);
    ck_assert_msg(strstr(err.text, text) == err.text, "%s", err.text);
    net_links_destroy(l);
}
END_TEST

/* --- connections of other processes ----------------------------------------------------------- */

enum { MANY = 70 /* more than one turn accepts, and more than two tables hold */ };

/* From an address of the loopback network, with some bytes: the system keeps those that are silent
 * away from accept(). */
static int connect_from(uint32_t address, const void *bytes, size_t n)
{
    const struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)},
                             to = {.sin_family = AF_INET,
                                   .sin_port = htons(member[0].port[NET_MESSAGES]),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&from, sizeof from), 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    ck_assert_int_eq(send(fd, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
    return fd;
}

static void connect_many(uint32_t address, int fds[MANY])
{
    for (int i = 0; i < MANY; i++)
        fds[i] = connect_from(address, "D", 1);
}

static void close_many(const int fds[MANY])
{
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
}

static bool is_ended(int fd)
{
    char byte;
    const ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

/* Rank 1's, as rank 0 sends it, except for the words from and to. */
static void copy_hello(struct net_links *l, uint8_t hello[HELLO_BYTES])
{
    uint8_t first[HELLO_BYTES];
    connect_to_other(l);
    ck_assert_int_eq(recv(taken, first, sizeof first, MSG_WAITALL), sizeof first);
    memcpy(hello, first, sizeof first);
    memcpy(hello + FROM_AT, first + FROM_AT + 4, 4);
    memcpy(hello + FROM_AT + 4, first + FROM_AT, 4);
}

/* Until no connection waits at the listener. returns whether rank 1 is among them */
static bool take_all(struct net_links *l)
{
    struct pollfd p = net_links_watch_new(l);
    unsigned peer = 0;
    while (poll(&p, 1, 0) > 0)
        if (net_links_take_new(l, &peer))
            return peer == 1;
    return net_links_take_new(l, &peer);
}

START_TEST(a_rank_among_many_connections_without_a_hello_is_accepted)
{
    struct net_links *l = links_to_other();
    uint8_t hello[HELLO_BYTES];
    int before[MANY], after[MANY];
    copy_hello(l, hello);
    connect_many(INADDR_LOOPBACK, before);
    const int rank = connect_from(INADDR_LOOPBACK, hello, sizeof hello);
    connect_many(INADDR_LOOPBACK, after);
    ck_assert(take_all(l));
    take_all(l);
    ck_assert(!is_ended(rank));
    ck_assert(is_ended(before[0])); /* the oldest makes way, not the newest */
    ck_assert(!is_ended(after[MANY - 1]));
    close(rank);
    close_many(before);
    close_many(after);
    close_other();
    net_links_destroy(l);
}
END_TEST

START_TEST(connections_from_other_addresses_do_not_displace_one_from_a_rank_s_address)
{
    struct net_links *l = links_to_other();
    uint8_t hello[HELLO_BYTES];
    int before[MANY], after[MANY];
    unsigned peer;
    copy_hello(l, hello);
    connect_many(INADDR_LOOPBACK + 1, before);
    const int rank = connect_from(INADDR_LOOPBACK, hello, 1);
    connect_many(INADDR_LOOPBACK + 1, after);
    ck_assert(!take_all(l));
    ck_assert(!is_ended(rank));
    ck_assert_int_eq(send(rank, hello + 1, sizeof hello - 1, MSG_NOSIGNAL), sizeof hello - 1);
    ck_assert(net_links_take_new(l, &peer) && peer == 1);
    close(rank);
    close_many(before);
    close_many(after);
    close_other();
    net_links_destroy(l);
}
END_TEST

START_TEST(a_turn_accepts_some_connections_and_the_next_one_the_others)
{
    struct net_links *l = links_to_other();
    struct pollfd p = net_links_watch_new(l);
    int fds[MANY];
    unsigned peer;
    connect_many(INADDR_LOOPBACK, fds);
    ck_assert(!net_links_take_new(l, &peer));
    ck_assert_int_eq(poll(&p, 1, 0), 1);
    ck_assert(!net_links_take_new(l, &peer));
    ck_assert_int_eq(poll(&p, 1, 0), 0);
    close_many(fds);
    close(other);
    net_links_destroy(l);
}
END_TEST

START_TEST(a_hello_with_another_cookie_is_refused)
{
    struct net_links *l = links_to_other();
    uint8_t hello[HELLO_BYTES];
    copy_hello(l, hello);
    hello[8 + NET_COOKIE_BYTES - 1] ^= 1;
    const int fd = connect_from(INADDR_LOOPBACK, hello, sizeof hello);
    ck_assert(!take_all(l));
    ck_assert(is_ended(fd));
    close(fd);
    close_other();
    net_links_destroy(l);
}
END_TEST

/* Rank 1 connects a lane: not of messages, and not the higher rank. */
START_TEST(a_lane_of_another_channel_or_of_a_higher_rank_is_refused)
{
    enum { LANE_AT = 8 + NET_COOKIE_BYTES + 6 };
    struct net_links *l = links_to_other();
    uint8_t hello[HELLO_BYTES];
    const uint16_t lane = _i == 0 ? 1 : UINT16_MAX;
    member[0].lanes = member[1].lanes = 2;
    copy_hello(l, hello);
    memcpy(hello + LANE_AT, &lane, sizeof lane);
    const int fd = connect_from(INADDR_LOOPBACK, hello, sizeof hello);
    ck_assert(!take_all(l));
    ck_assert(is_ended(fd));
    close(fd);
    close_other();
    net_links_destroy(l);
}
END_TEST

/* --- messages --------------------------------------------------------------------------------- */

static struct p2p_tcp *mail_of(struct net_links *l)
{
    struct p2p_tcp *ms = calloc(1, sizeof *ms + 2 * sizeof ms->peer[0]);
    ck_assert_ptr_nonnull(ms);
    ms->links = l;
    ms->peer[1].last_out = &ms->peer[1].first_out;
    ms->peer[1].last_in = &ms->peer[1].first_in;
    return ms;
}

static const struct head bad[] = {
    {.magic = 0, .kind = KIND_LEFT},
    {.magic = MESSAGE_MAGIC, .kind = KIND_END},
    {.magic = MESSAGE_MAGIC, .kind = KIND_LEFT, .bytes = 1},
    {.magic = MESSAGE_MAGIC, .kind = KIND_BROKEN},
    {.magic = MESSAGE_MAGIC, .kind = KIND_BROKEN, .bytes = sizeof(struct net_abort) - 1},
    {.magic = MESSAGE_MAGIC, .kind = KIND_BROKEN, .bytes = UINT64_MAX},
    {.magic = MESSAGE_MAGIC, .kind = KIND_TAKEN},
    {.magic = MESSAGE_MAGIC, .kind = KIND_PLEASE},
    {.magic = MESSAGE_MAGIC, .kind = KIND_SHORT, .bytes = SHORT_BYTES + 1, .count = 1},
    {.magic = MESSAGE_MAGIC, .kind = KIND_LONG, .bytes = 1},
};

START_TEST(an_invalid_message_is_refused)
{
    struct net_links *l = links_to_other();
    struct p2p_tcp *ms = mail_of(l);
    struct pollfd p;
    connect_to_other(l);
    ck_assert_int_eq(send(taken, &bad[_i], sizeof bad[_i], 0), sizeof bad[_i]);
    ck_assert_uint_eq(net_links_watch(l, 1, true, false, &p), 1);
    wait_for(p.fd, POLLIN);
    ck_assert_int_eq(p2p_tcp_io_read(ms, 1), -EIO);
    ck_assert_ptr_null(ms->peer[1].reading);
    close_other();
    p2p_tcp_io_free(&ms->peer[1]);
    free(ms);
    net_links_destroy(l);
}
END_TEST

TEST_SUITE(net_links)
{
    Suite *suite = suite_create("net_links");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_connection_closed_without_data_was_never_accepted);
    tcase_add_test(tcase, a_reset_connection_was_never_accepted);
    tcase_add_test(tcase, a_connection_with_data_was_accepted);
    tcase_add_test(tcase, an_unreachable_rank_is_named_with_both_addresses);
    tcase_add_test(tcase, a_rank_that_does_not_connect_is_named_with_its_target);
    tcase_add_test(tcase, a_rank_among_many_connections_without_a_hello_is_accepted);
    tcase_add_test(tcase,
                   connections_from_other_addresses_do_not_displace_one_from_a_rank_s_address);
    tcase_add_test(tcase, a_turn_accepts_some_connections_and_the_next_one_the_others);
    tcase_add_test(tcase, a_hello_with_another_cookie_is_refused);
    tcase_add_loop_test(tcase, a_lane_of_another_channel_or_of_a_higher_rank_is_refused, 0, 2);
    tcase_add_loop_test(tcase, an_invalid_message_is_refused, 0, sizeof bad / sizeof *bad);
    suite_add_tcase(suite, tcase);
    return suite;
}
