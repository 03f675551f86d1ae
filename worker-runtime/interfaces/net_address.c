/* net_address.c - addresses of interfaces and sockets, and the sockets between ranks. */
#include "net_address.h"

#include "common/error.h"
#include "common/scope.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    KEEPALIVE_IDLE_S = 10,
    KEEPALIVE_EVERY_S = 5,
    KEEPALIVE_TIMES = 3,
    SILENT_S = 10, /* a connection without a byte is accepted after this time, or a little later */
    /* a process that is stopped does not read: those who wait for it find that out first, and know
       more (straggler.h) */
    USER_TIMEOUT_MORE_MS = 30000
};

struct net_address net_address_of(const struct sockaddr_storage *socket)
{
    struct net_address a = {0};
    if (socket->ss_family == AF_INET) {
        a.family = AF_INET;
        memcpy(a.bytes, &((const struct sockaddr_in *)socket)->sin_addr, 4);
    } else if (socket->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)socket;
        const bool is_v4 = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
        a.family = is_v4 ? AF_INET : AF_INET6;
        memcpy(a.bytes, v6->sin6_addr.s6_addr + (is_v4 ? 12 : 0), is_v4 ? 4 : 16);
        a.scope = is_v4 ? 0 : v6->sin6_scope_id;
    }
    return a;
}

bool net_address_is_link_local(const struct net_address *a)
{
    if (a->family == AF_INET6)
        return a->bytes[0] == 0xfe && (a->bytes[1] & 0xc0) == 0x80;
    return a->bytes[0] == 169 && a->bytes[1] == 254;
}

int net_address_worth(const struct net_address *a)
{
    if (!net_address_is_known(a))
        return 0;
    return 1 + (a->family == AF_INET) + 2 * !net_address_is_link_local(a);
}

/* The kernel chooses the address of a datagram socket when it is connected. */
static bool find_route(const struct addrinfo *to, struct net_address *ret_own,
                       struct net_address *ret_peer)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t length = sizeof own;
    co_autoclose_fd int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, to->ai_addr, to->ai_addrlen) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &length) != 0)
        return false;
    memcpy(&peer, to->ai_addr, to->ai_addrlen);
    *ret_own = net_address_of(&own);
    *ret_peer = net_address_of(&peer);
    return net_address_is_known(ret_own);
}

int net_address_of_route(const char *host, struct net_address *ret_own,
                         struct net_address *ret_peer)
{
    static const char any_port[] = "9";
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    bool found = false;
    if (getaddrinfo(host, any_port, &hints, &list) != 0)
        return -ENOENT;
    for (const struct addrinfo *to = list; to != NULL && !found; to = to->ai_next)
        found = find_route(to, ret_own, ret_peer);
    freeaddrinfo(list);
    return found ? 0 : -ENOENT;
}

bool net_address_is_known(const struct net_address *a)
{
    return a->family == AF_INET || a->family == AF_INET6;
}

bool net_address_is_loopback(const struct net_address *a)
{
    static const uint8_t v6[16] = {[15] = 1};
    if (a->family == AF_INET)
        return a->bytes[0] == 127;
    return a->family == AF_INET6 && memcmp(a->bytes, v6, sizeof v6) == 0;
}

bool net_address_is_same(const struct net_address *a, const struct net_address *b)
{
    return a->family == b->family &&
           memcmp(a->bytes, b->bytes, a->family == AF_INET ? 4 : sizeof a->bytes) == 0;
}

const char *net_address_format(const struct net_address *a, uint16_t port,
                               char text[NET_ADDRESS_TEXT_BYTES])
{
    char number[INET6_ADDRSTRLEN] = "?";
    inet_ntop(a->family == AF_INET6 ? AF_INET6 : AF_INET, a->bytes, number, sizeof number);
    snprintf(text, NET_ADDRESS_TEXT_BYTES, a->family == AF_INET6 ? "[%s] port %u" : "%s port %u",
             number, port);
    return text;
}

const char *net_address_format_host(const struct net_address *a, char text[NET_ADDRESS_TEXT_BYTES])
{
    snprintf(text, NET_ADDRESS_TEXT_BYTES, "?");
    inet_ntop(a->family == AF_INET6 ? AF_INET6 : AF_INET, a->bytes, text, NET_ADDRESS_TEXT_BYTES);
    return text;
}

/* bytes NULL: all addresses */
static socklen_t sockaddr_fill(struct sockaddr_storage *s, const struct net_address *a,
                               uint16_t port, bool any)
{
    memset(s, 0, sizeof *s);
    if (a->family == AF_INET) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)s;
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        if (!any)
            memcpy(&v4->sin_addr, a->bytes, 4);
        return sizeof *v4;
    }
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)s;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    if (!any)
        memcpy(&v6->sin6_addr, a->bytes, 16);
    v6->sin6_scope_id = net_address_is_link_local(a) ? a->scope : 0;
    return sizeof *v6;
}

static void option_set(int fd, int level, int name, int value)
{
    setsockopt(fd, level, name, &value, sizeof value); /* a failure does no harm */
}

int net_address_listen(const struct net_address *a, uint16_t *port, int *ret_fd,
                       struct co_error *err)
{
    struct sockaddr_storage s;
    char text[NET_ADDRESS_TEXT_BYTES];
    socklen_t length = sockaddr_fill(&s, a, *port, net_address_is_loopback(a));
    co_autoclose_fd int fd =
        socket(a->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (fd >= 0 && *port != 0) /* connections of the process before may still be closing */
        option_set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (fd < 0 || bind(fd, (struct sockaddr *)&s, length) != 0 || listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, (struct sockaddr *)&s, &length) != 0)
        return co_fail(err, -errno, "cannot listen at %s: %s", net_address_format(a, *port, text),
                       strerror(errno));
    option_set(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, SILENT_S);
    *port = ntohs(s.ss_family == AF_INET ? ((struct sockaddr_in *)&s)->sin_port
                                         : ((struct sockaddr_in6 *)&s)->sin6_port);
    *ret_fd = co_take_fd(&fd);
    return 0;
}

/* from   NULL: the system chooses */
static int begin_connecting(const char *device, const struct net_address *from,
                            const struct net_address *to, uint16_t port, int *ret_fd)
{
    struct sockaddr_storage there, here;
    const socklen_t length = sockaddr_fill(&there, to, port, false);
    co_autoclose_fd int fd =
        socket(to->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (fd < 0)
        return -errno;
    net_address_keep_to(fd, device);
    option_set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (from != NULL &&
        bind(fd, (struct sockaddr *)&here, sockaddr_fill(&here, from, 0, false)) != 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&there, length) != 0 && errno != EINPROGRESS)
        return -errno;
    *ret_fd = co_take_fd(&fd);
    return 0;
}

int net_address_connect(const struct net_address *own, const struct net_address *to, uint16_t port,
                        int *ret_fd)
{
    struct net_address there = *to;
    if (!net_address_is_known(to))
        return -EAFNOSUPPORT;
    there.scope = own->scope; /* scope of a link; each machine has another number for it */
    return begin_connecting("", NULL, &there, port, ret_fd);
}

int net_address_connect_over(const char *device, const struct net_address *from,
                             const struct net_address *to, uint16_t port, int *ret_fd)
{
    if (!net_address_is_known(to) || from->family != to->family)
        return -EAFNOSUPPORT;
    return begin_connecting(device, from, to, port, ret_fd);
}

void net_address_keep_to(int fd, const char *device)
{
    if (device[0] != '\0')
        setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, (socklen_t)strlen(device) + 1);
}

void net_address_tune(int fd, uint64_t timeout_ms)
{
    option_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    option_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    option_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    option_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S);
    option_set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_TIMES);
    option_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
               timeout_ms < INT_MAX - USER_TIMEOUT_MORE_MS ? (int)timeout_ms + USER_TIMEOUT_MORE_MS
                                                           : INT_MAX);
}
