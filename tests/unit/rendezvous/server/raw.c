/* Raw clients of a server. */
#include "served.h"

#include "rendezvous/net/address.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <ifaddrs.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int raw_connect(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

int raw_connect_at(const struct sockaddr_storage *to)
{
    int fd = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len =
        to->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)to, len), 0);
    return fd;
}

bool find_own_address(struct sockaddr_storage *ret)
{
    struct ifaddrs *list;
    bool found = false;
    ck_assert_int_eq(getifaddrs(&list), 0);
    for (struct ifaddrs *i = list; i != NULL && !found; i = i->ifa_next) {
        if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET)
            continue;
        *ret = (struct sockaddr_storage){0};
        memcpy(ret, i->ifa_addr, sizeof(struct sockaddr_in));
        found = !address_is_loopback(ret);
    }
    freeifaddrs(list);
    return found;
}

static void await(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};
    ck_assert_msg(poll(&p, 1, SERVED_DEADLINE_MS) == 1, "nothing happens on the connection");
}

void raw_send(int fd, const void *bytes, size_t n)
{
    for (size_t sent = 0; sent < n;) {
        await(fd, POLLOUT);
        ssize_t rc = send(fd, (const char *)bytes + sent, n - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        ck_assert_msg(rc > 0 || errno == EAGAIN, "send: %s", strerror(errno));
        sent += rc > 0 ? (size_t)rc : 0;
    }
}

static size_t parse_hex(const char *hex, uint8_t *bytes, size_t size)
{
    size_t n = 0;
    for (; *hex != '\0'; hex += 2) {
        while (*hex == ' ')
            hex++;
        unsigned byte;
        ck_assert_int_eq(sscanf(hex, "%2x", &byte), 1);
        ck_assert_uint_lt(n, size);
        bytes[n++] = (uint8_t)byte;
    }
    return n;
}

void raw_send_hex(int fd, const char *hex)
{
    uint8_t bytes[256];
    raw_send(fd, bytes, parse_hex(hex, bytes, sizeof bytes));
}

void raw_receive(int fd, void *bytes, size_t n)
{
    for (size_t got = 0; got < n;) {
        await(fd, POLLIN);
        ssize_t rc = recv(fd, (char *)bytes + got, n - got, 0);
        ck_assert_msg(rc > 0, "the connection ended after %zu of %zu bytes", got, n);
        got += (size_t)rc;
    }
}

void raw_expect_hex(int fd, const char *hex)
{
    uint8_t expected[256], bytes[256];
    size_t n = parse_hex(hex, expected, sizeof expected);
    raw_receive(fd, bytes, n);
    ck_assert_mem_eq(bytes, expected, n);
}

void raw_expect_end(int fd)
{
    char byte;
    await(fd, POLLIN);
    ssize_t rc = recv(fd, &byte, 1, 0);
    ck_assert_msg(rc == 0 || (rc < 0 && errno == ECONNRESET), "the connection goes on");
}

bool raw_is_silent(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}
