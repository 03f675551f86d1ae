#include "endpoint_host.h"

#include "rendezvous/net/address.h"

#include <netinet/in.h>
#include <string.h>

static int compare(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    struct in6_addr x = address_as_v6(a), y = address_as_v6(b);
    if (a->ss_family != b->ss_family)
        return a->ss_family == AF_INET ? -1 : 1;
    return memcmp(&x, &y, sizeof x);
}

const struct sockaddr_storage *endpoint_host_first(const struct sockaddr_storage *addresses,
                                                   size_t n)
{
    const struct sockaddr_storage *first = addresses;
    for (size_t i = 1; i < n; i++)
        if (compare(&addresses[i], first) < 0)
            first = &addresses[i];
    return first;
}

bool endpoint_host_may_tell(const char *host, const struct sockaddr_storage *own)
{
    if (own->ss_family != AF_INET && own->ss_family != AF_INET6)
        return false;
    return !address_is_loopback(own) || address_host_is_loopback(host);
}
