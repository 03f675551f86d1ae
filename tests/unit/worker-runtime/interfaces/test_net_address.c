/* test_net_address.c - addresses of ranks, and the sockets between them. */
#include "tests/support/suite.h"
#include "worker-runtime/interfaces/net_address.h"

#include "common/error.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct net_address address(int family, const char *text)
{
    struct sockaddr_storage s = {.ss_family = (sa_family_t)family};
    void *at = family == AF_INET ? (void *)&((struct sockaddr_in *)&s)->sin_addr
                                 : (void *)&((struct sockaddr_in6 *)&s)->sin6_addr;
    if (inet_pton(family, text, at) != 1)
        s.ss_family = AF_UNSPEC;
    return net_address_of(&s);
}

static const struct {
    int family;
    const char *address, *text;
    bool is_loopback;
} known[] = {
    {AF_INET, "10.0.0.7", "10.0.0.7 port 42", false},
    {AF_INET, "127.0.0.1", "127.0.0.1 port 42", true},
    {AF_INET, "127.9.9.9", "127.9.9.9 port 42", true},
    {AF_INET6, "fd00::7", "[fd00::7] port 42", false},
    {AF_INET6, "::1", "[::1] port 42", true},
    {AF_INET6, "::ffff:10.0.0.7", "10.0.0.7 port 42", false}, /* what a dual socket sees */
};

START_TEST(addresses_of_both_families_are_parsed)
{
    char text[NET_ADDRESS_TEXT_BYTES];
    const struct net_address a = address(known[_i].family, known[_i].address);
    ck_assert(net_address_is_known(&a));
    ck_assert_str_eq(net_address_format(&a, 42, text), known[_i].text);
    ck_assert_int_eq(net_address_is_loopback(&a), known[_i].is_loopback);
}
END_TEST

START_TEST(an_invalid_address_is_refused)
{
    const struct net_address none = address(AF_UNIX, "");
    int fd;
    ck_assert(!net_address_is_known(&none) && !net_address_is_loopback(&none));
    ck_assert_int_eq(net_address_connect(&none, &none, 42, &fd), -EAFNOSUPPORT);
    const struct net_address v4 = address(AF_INET, "127.0.0.1"), v6 = address(AF_INET6, "::1");
    ck_assert_int_eq(net_address_connect_over("", &v4, &none, 42, &fd), -EAFNOSUPPORT);
    ck_assert_int_eq(net_address_connect_over("", &v4, &v6, 42, &fd), -EAFNOSUPPORT);
}
END_TEST

START_TEST(a_route_has_two_ends_and_sends_nothing)
{
    struct net_address own = {0}, peer = {0}, before = {0};
    char text[NET_ADDRESS_TEXT_BYTES];
    ck_assert_int_eq(net_address_of_route("127.0.0.2", &own, &peer), 0);
    ck_assert_str_eq(net_address_format_host(&own, text), "127.0.0.1");
    ck_assert_str_eq(net_address_format_host(&peer, text), "127.0.0.2");
    ck_assert_int_eq(net_address_of_route("localhost", &own, &peer), 0);
    ck_assert(net_address_is_loopback(&own) && net_address_is_loopback(&peer));
    own = before;
    ck_assert_int_eq(net_address_of_route("no such host", &own, &peer), -ENOENT);
    ck_assert_mem_eq(&own, &before, sizeof own);
}
END_TEST

static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t size = sizeof value;
    ck_assert_int_eq(getsockopt(fd, level, name, &value, &size), 0);
    return value;
}

/* --- sockets, of 127.0.0.1 and ::1 ------------------------------------------------------------ */

static const struct {
    int family;
    const char *address;
} loopbacks[] = {{AF_INET, "127.0.0.1"}, {AF_INET6, "::1"}};

START_TEST(a_byte_reaches_the_other_socket)
{
    const struct net_address a = address(loopbacks[_i].family, loopbacks[_i].address);
    uint16_t port = 0;
    int listener, out;
    char byte = 'x';
    if (net_address_listen(&a, &port, &listener, NULL) != 0)
        return; /* a machine without IPv6 */
    ck_assert_int_ne(option(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT), 0);
    ck_assert_int_eq(net_address_connect(&a, &a, port, &out), 0);
    ck_assert_int_eq(poll(&(struct pollfd){.fd = out, .events = POLLOUT}, 1, 10000), 1);
    ck_assert_int_eq(send(out, &byte, 1, MSG_NOSIGNAL), 1);
    ck_assert_int_eq(poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 10000), 1);
    int in = accept(listener, NULL, NULL);
    ck_assert_int_ge(in, 0);
    ck_assert_int_eq(recv(in, &byte, 1, 0), 1);
    close(in);
    close(out);
    close(listener);
}
END_TEST

START_TEST(a_connection_leaves_by_the_interface_that_it_is_given)
{
    const struct net_address here = address(AF_INET, "127.0.0.3"),
                             there = address(AF_INET, "127.0.0.1");
    struct sockaddr_storage socket = {0};
    socklen_t size = sizeof socket;
    uint16_t port = 0;
    int listener, out;
    ck_assert_int_eq(net_address_listen(&there, &port, &listener, NULL), 0);
    ck_assert_int_eq(net_address_connect_over("lo", &here, &there, port, &out), 0);
    ck_assert_int_eq(getsockname(out, (struct sockaddr *)&socket, &size), 0);
    const struct net_address own = net_address_of(&socket);
    ck_assert(net_address_is_same(&own, &here));
    close(out);
    close(listener);
}
END_TEST

START_TEST(a_connection_to_a_machine_that_vanishes_ends)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    net_address_tune(fd, 60000);
    ck_assert_int_ne(option(fd, IPPROTO_TCP, TCP_NODELAY), 0);
    ck_assert_int_ne(option(fd, SOL_SOCKET, SO_KEEPALIVE), 0);
    ck_assert_int_le(option(fd, IPPROTO_TCP, TCP_KEEPIDLE) +
                         option(fd, IPPROTO_TCP, TCP_KEEPINTVL) *
                             option(fd, IPPROTO_TCP, TCP_KEEPCNT),
                     25); /* seconds, as documented */
    /* later than the timeout of the waiting rank, whose error explains more */
    ck_assert_int_gt(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 60000);
    net_address_tune(fd, UINT64_MAX);
    ck_assert_int_eq(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), INT32_MAX);
    close(fd);
}
END_TEST

TEST_SUITE(net_address)
{
    Suite *suite = suite_create("net_address");
    TCase *tcase = tcase_create("all");
    tcase_add_loop_test(tcase, addresses_of_both_families_are_parsed, 0,
                        sizeof known / sizeof *known);
    tcase_add_test(tcase, an_invalid_address_is_refused);
    tcase_add_test(tcase, a_route_has_two_ends_and_sends_nothing);
    tcase_add_loop_test(tcase, a_byte_reaches_the_other_socket, 0,
                        sizeof loopbacks / sizeof *loopbacks);
    tcase_add_test(tcase, a_connection_leaves_by_the_interface_that_it_is_given);
    tcase_add_test(tcase, a_connection_to_a_machine_that_vanishes_ends);
    suite_add_tcase(suite, tcase);
    return suite;
}
