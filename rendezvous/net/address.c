#include "address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <uv.h>

int address_parse(const char *text, uint16_t port, struct sockaddr_storage *ret)
{
    struct sockaddr_storage address = {0};
    if (uv_ip4_addr(text, port, (struct sockaddr_in *)&address) < 0 &&
        uv_ip6_addr(text, port, (struct sockaddr_in6 *)&address) < 0)
        return -EINVAL;
    *ret = address;
    return 0;
}

int address_print_host(const struct sockaddr_storage *address, char *text, size_t n)
{
    if (address->ss_family != AF_INET && address->ss_family != AF_INET6)
        return -EINVAL;
    struct in6_addr v6 = address_as_v6(address);
    const char *printed = IN6_IS_ADDR_V4MAPPED(&v6)
                              ? inet_ntop(AF_INET, &v6.s6_addr[12], text, (socklen_t)n)
                              : inet_ntop(AF_INET6, &v6, text, (socklen_t)n);
    return printed != NULL ? 0 : -errno;
}

void address_print(const struct sockaddr_storage *address, char text[ADDRESS_TEXT_BYTES])
{
    char host[INET6_ADDRSTRLEN];
    if (address_print_host(address, host, sizeof host) < 0)
        snprintf(text, ADDRESS_TEXT_BYTES, "?");
    else
        snprintf(text, ADDRESS_TEXT_BYTES, strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", host,
                 address_port(address));
}

uint16_t address_port(const struct sockaddr_storage *address)
{
    return ntohs(address->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_port
                                                : ((const struct sockaddr_in *)address)->sin_port);
}

struct in6_addr address_as_v6(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET6)
        return ((const struct sockaddr_in6 *)address)->sin6_addr;
    struct in6_addr mapped = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(mapped.s6_addr + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
    return mapped;
}

bool address_is_loopback(const struct sockaddr_storage *address)
{
    struct in6_addr v6 = address_as_v6(address);
    if (IN6_IS_ADDR_V4MAPPED(&v6))
        return v6.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&v6);
}

bool address_host_is_loopback(const char *host)
{
    struct sockaddr_storage address;
    return strcasecmp(host, "localhost") == 0 ||
           (address_parse(host, 0, &address) == 0 && address_is_loopback(&address));
}

static int compare(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    struct in6_addr x = address_as_v6(a), y = address_as_v6(b);
    if (a->ss_family != b->ss_family)
        return a->ss_family == AF_INET ? -1 : 1;
    return memcmp(&x, &y, sizeof x);
}

const struct sockaddr_storage *address_first(const struct sockaddr_storage *addresses, size_t n)
{
    const struct sockaddr_storage *first = addresses;
    for (size_t i = 1; i < n; i++)
        if (compare(&addresses[i], first) < 0)
            first = &addresses[i];
    return first;
}

bool address_may_tell(const char *host, const struct sockaddr_storage *own)
{
    if (own->ss_family != AF_INET && own->ss_family != AF_INET6)
        return false;
    return !address_is_loopback(own) || address_host_is_loopback(host);
}
