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
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEADLINE_MS = 20000, HELLO_BYTES = 40 };

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

START_TEST(a_connection_that_is_closed_without_a_word_was_never_taken)
{
    struct net_links *l = links_to_other();
    connect_to_other(l);
    hear_hello();
    close_other();
    ck_assert_int_eq(receive(l), -ECONNREFUSED);
    net_links_destroy(l);
}
END_TEST

START_TEST(a_reset_connection_was_never_taken_however_often_it_is_asked)
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

START_TEST(a_connection_that_said_something_was_taken)
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
START_TEST(a_rank_that_is_not_reached_is_named_with_both_addresses)
{
    enum { FILLING = 4 };
    struct net_links *l = links_to_other();
    struct co_error err;
    char end[64];
    int fill[FILLING];
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

START_TEST(a_rank_that_does_not_connect_is_named_with_where_it_should)
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

START_TEST(what_is_no_message_is_refused)
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
    tcase_add_test(tcase, a_connection_that_is_closed_without_a_word_was_never_taken);
    tcase_add_test(tcase, a_reset_connection_was_never_taken_however_often_it_is_asked);
    tcase_add_test(tcase, a_connection_that_said_something_was_taken);
    tcase_add_test(tcase, a_rank_that_is_not_reached_is_named_with_both_addresses);
    tcase_add_test(tcase, a_rank_that_does_not_connect_is_named_with_where_it_should);
    tcase_add_loop_test(tcase, what_is_no_message_is_refused, 0, sizeof bad / sizeof *bad);
    suite_add_tcase(suite, tcase);
    return suite;
}
