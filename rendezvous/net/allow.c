#include "allow.h"

#include "address.h"
#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { V4_PREFIX_BITS = 96 }; /* of ::ffff:a.b.c.d */

int allow_add(struct allow_list *l, const char *text, struct co_error *err)
{
    char host[INET6_ADDRSTRLEN];
    size_t n = strcspn(text, "/");
    struct sockaddr_storage address;
    if (l->n == ALLOW_MAX)
        return co_fail(err, -ENOSPC, "more than %d networks", ALLOW_MAX);
    snprintf(host, sizeof host, "%.*s", n < sizeof host ? (int)n : 0, text);
    if (address_parse(host, 0, &address) < 0)
        return co_fail(err, -EINVAL, "invalid value '%.200s': expected a numeric ADDR or ADDR/BITS",
                       text);
    struct allow_net net = {.address = address_as_v6(&address), .n_bits = 128};
    if (text[n] == '/') {
        unsigned prefix = address.ss_family == AF_INET ? V4_PREFIX_BITS : 0;
        int64_t n_bits;
        if (co_parse_int("", text + n + 1, 0, 128 - prefix, &n_bits, NULL) < 0)
            return co_fail(err, -EINVAL,
                           "invalid value '%.200s': expected 0 to %u bits, not '%.200s'", text,
                           128 - prefix, text + n + 1);
        net.n_bits = prefix + (unsigned)n_bits;
    }
    l->nets[l->n++] = net;
    return 0;
}

static int compare_hosts(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct in6_addr));
}

int allow_set_hosts(struct allow_list *l, const struct in6_addr *hosts, size_t n)
{
    struct in6_addr *copy = calloc(n + 1, sizeof *copy);
    if (copy == NULL)
        return -ENOMEM;
    if (n > 0)
        memcpy(copy, hosts, n * sizeof *copy);
    qsort(copy, n, sizeof *copy, compare_hosts);
    free(l->hosts);
    l->hosts = copy;
    l->n_hosts = n;
    return 0;
}

void allow_fini(struct allow_list *l)
{
    free(l->hosts);
    l->hosts = NULL;
    l->n_hosts = 0;
}

static bool is_in(const struct in6_addr *address, const struct allow_net *net)
{
    if (IN6_IS_ADDR_V4MAPPED(address) && net->n_bits < V4_PREFIX_BITS)
        return false;
    unsigned n_whole = net->n_bits / 8;
    unsigned n_rest = net->n_bits % 8;
    if (memcmp(address, &net->address, n_whole) != 0)
        return false;
    if (n_rest == 0)
        return true;
    return (address->s6_addr[n_whole] ^ net->address.s6_addr[n_whole]) >> (8 - n_rest) == 0;
}

bool allow_has_in_net(const struct allow_list *l, const struct sockaddr_storage *address)
{
    struct in6_addr v6 = address_as_v6(address);
    for (size_t i = 0; i < l->n; i++)
        if (is_in(&v6, &l->nets[i]))
            return true;
    return false;
}

bool allow_has(const struct allow_list *l, const struct sockaddr_storage *address)
{
    struct in6_addr v6 = address_as_v6(address);
    if (allow_has_in_net(l, address))
        return true;
    return l->n_hosts > 0 &&
           bsearch(&v6, l->hosts, l->n_hosts, sizeof *l->hosts, compare_hosts) != NULL;
}
