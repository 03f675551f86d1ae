/* net_interface.c - what is known of the network interfaces, from getifaddrs(3) and /sys, and the
 * choice among them: net_interface_choose_first() and net_interface_choose_ends(). */
#include "net_interface.h"

#include "common/error.h"
#include "common/scope.h"

#include <ddp/env.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 64 + IF_NAMESIZE };

/* --- the rule --------------------------------------------------------------------------------- */

static int fail_value(const char *value, const char *why, struct co_error *err)
{
    return co_fail(err, -ENOEXEC, "invalid value '%.60s' for %s: %s", value, DDP_ENV_SOCKET_IFNAME,
                   why);
}

/* What the kernel allows in a name, except characters that no terminal should get. */
static bool is_name(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '/' || name[i] == '^')
            return false;
    return length > 0 && length < IF_NAMESIZE;
}

static bool has_name(const struct net_interface_rule *rule, const char *name)
{
    for (unsigned i = 0; i < rule->n; i++)
        if (strcmp(rule->name[i], name) == 0)
            return true;
    return false;
}

int net_interface_rule_parse(const char *value, struct net_interface_rule *ret,
                             struct co_error *err)
{
    struct net_interface_rule rule = {.excludes = value != NULL && value[0] == '^'};
    const char *at = value != NULL ? value + rule.excludes : "";
    while (value != NULL && value[0] != '\0') {
        const size_t length = strcspn(at, ",");
        char name[IF_NAMESIZE] = "";
        if (!is_name(at, length))
            return fail_value(value,
                              "expected names of network interfaces, such as eth0,eth1, or the "
                              "beginnings of those to leave out, such as ^docker,virbr",
                              err);
        memcpy(name, at, length);
        if (has_name(&rule, name))
            return fail_value(value, "a network interface is given twice", err);
        if (rule.n == NET_INTERFACES_MOST)
            return fail_value(value, "more than 16 network interfaces", err);
        memcpy(rule.name[rule.n++], name, sizeof name);
        if (at[length] == '\0')
            break;
        at += length + 1;
    }
    *ret = rule;
    return 0;
}

bool net_interface_rule_allows(const struct net_interface_rule *rule, const char *name)
{
    for (unsigned i = 0; rule->excludes && i < rule->n; i++)
        if (strncmp(rule->name[i], name, strlen(rule->name[i])) == 0)
            return false;
    return rule->n == 0 || rule->excludes || has_name(rule, name);
}

/* --- the machine ------------------------------------------------------------------------------ */

/* The number in a file of an interface in /sys; -1: it cannot be read. */
static long read_number(const char *name, const char *file)
{
    char path[PATH_BYTES];
    long number = -1;
    snprintf(path, sizeof path, "/sys/class/net/%s/%s", name, file);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return -1;
    if (fscanf(f, "%9ld", &number) != 1) /* of a device that is down, reading fails */
        number = -1;
    fclose(f);
    return number;
}

static bool has_device(const char *name)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/sys/class/net/%s/device", name);
    return access(path, F_OK) == 0;
}

static uint8_t count_bits(const struct sockaddr *mask)
{
    const bool is_v4 = mask != NULL && mask->sa_family == AF_INET;
    const uint8_t *at = is_v4 ? (const uint8_t *)&((const struct sockaddr_in *)mask)->sin_addr
                        : mask != NULL && mask->sa_family == AF_INET6
                            ? ((const struct sockaddr_in6 *)mask)->sin6_addr.s6_addr
                            : NULL;
    unsigned bits = 0;
    for (unsigned i = 0; at != NULL && i < (is_v4 ? 4 : 16); i++)
        bits += (unsigned)__builtin_popcount(at[i]);
    return (uint8_t)bits;
}

static bool read_address(const struct ifaddrs *i, struct net_address *ret)
{
    struct sockaddr_storage socket = {0};
    const int family = i->ifa_addr != NULL ? i->ifa_addr->sa_family : AF_UNSPEC;
    if (family != AF_INET && family != AF_INET6)
        return false;
    memcpy(&socket, i->ifa_addr,
           family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
    *ret = net_address_of(&socket);
    return true;
}

static void fill(struct net_interface *x, const struct ifaddrs *i, const struct net_address *a)
{
    const bool is_running = (i->ifa_flags & IFF_RUNNING) != 0;
    *x = (struct net_interface){.address = *a,
                                .prefix = count_bits(i->ifa_netmask),
                                .is_loopback = (i->ifa_flags & IFF_LOOPBACK) != 0};
    snprintf(x->name, sizeof x->name, "%s", i->ifa_name);
    /* IFF_RUNNING comes up to a second after the carrier */
    const long carrier = read_number(x->name, "carrier");
    const long speed = read_number(x->name, "speed");
    const long node = read_number(x->name, "device/numa_node");
    x->is_up = (i->ifa_flags & IFF_UP) != 0 && (carrier > 0 || (carrier < 0 && is_running));
    x->speed_mbit = speed > 0 ? (uint32_t)speed : 0;
    x->memory_node = node >= 0 ? (int)node : -1;
    x->is_physical = has_device(x->name);
}

/* One of an interface that has no address is listed too, with an address of no family: so it is
 * known that the interface exists. */
int net_interface_list(struct net_interface **ret_list, unsigned *ret_n, struct co_error *err)
{
    struct ifaddrs *all;
    unsigned n = 0, room = 0;
    if (getifaddrs(&all) != 0)
        return co_fail(err, -errno, "cannot list the network interfaces: %s", strerror(errno));
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next)
        room++;
    struct net_interface *list = calloc(room + 1, sizeof *list);
    for (const struct ifaddrs *i = all; list != NULL && i != NULL; i = i->ifa_next) {
        struct net_address a = {0};
        const bool is_link = i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_PACKET;
        if (read_address(i, &a) || is_link)
            fill(&list[n++], i, &a);
    }
    freeifaddrs(all);
    if (list == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    *ret_list = list;
    *ret_n = n;
    return 0;
}

bool net_interface_find_name(const struct net_address *a, char name[IF_NAMESIZE])
{
    struct ifaddrs *all;
    bool is_found = false;
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *i = all; i != NULL && !is_found; i = i->ifa_next) {
        struct net_address own;
        is_found = read_address(i, &own) && net_address_is_same(&own, a);
        if (is_found)
            snprintf(name, IF_NAMESIZE, "%s", i->ifa_name);
    }
    freeifaddrs(all);
    return is_found;
}

/* --- the choice ------------------------------------------------------------------------------- */

struct choice {
    const struct net_interface *list;
    unsigned n;
};

/* The best address of an interface.
 *
 * family    0: any
 * returns   NULL: it has none */
static const struct net_interface *best_of(struct choice c, const char *name, int family)
{
    const struct net_interface *best = NULL;
    for (unsigned i = 0; i < c.n; i++) {
        const struct net_interface *x = &c.list[i];
        if (strcmp(x->name, name) != 0 || (family != 0 && x->address.family != family) ||
            net_address_worth(&x->address) == 0)
            continue;
        if (best == NULL || net_address_worth(&x->address) > net_address_worth(&best->address))
            best = x;
    }
    return best;
}

static bool exists(struct choice c, const char *name)
{
    for (unsigned i = 0; i < c.n; i++)
        if (strcmp(c.list[i].name, name) == 0)
            return true;
    return false;
}

static const struct net_interface *interface_of(struct choice c, const struct net_address *a)
{
    for (unsigned i = 0; i < c.n; i++)
        if (net_address_is_same(&c.list[i].address, a))
            return &c.list[i];
    return NULL;
}

static int find_named(struct choice c, const char *name, int family,
                      const struct net_interface **ret, struct co_error *err)
{
    if (!exists(c, name))
        return fail_value(name, "no such network interface; `ip address` lists them", err);
    *ret = best_of(c, name, family);
    if (*ret != NULL)
        return 0;
    return fail_value(name,
                      family == AF_INET && best_of(c, name, 0) != NULL
                          ? "the network interface has no IPv4 address, as the first one has"
                      : family == AF_INET6 && best_of(c, name, 0) != NULL
                          ? "the network interface has no IPv6 address, as the first one has"
                          : "the network interface has no address",
                      err);
}

/* Whether an interface that users have not named can be used besides the first one. */
static bool is_candidate(const struct net_interface_rule *rule, const struct net_interface *x,
                         int family)
{
    const bool is_known = rule->excludes || (x->is_physical && x->speed_mbit > 0);
    return x->is_up && !x->is_loopback && is_known && x->address.family == family &&
           !net_address_is_link_local(&x->address) && net_interface_rule_allows(rule, x->name);
}

int net_interface_choose_first(const struct net_interface_rule *rule,
                               const struct net_interface *list, unsigned n,
                               const struct net_address *reached_by, struct net_address *ret,
                               struct co_error *err)
{
    const struct choice c = {list, n};
    const struct net_interface *best = interface_of(c, reached_by);
    if (rule->n > 0 && !rule->excludes) {
        const int code = find_named(c, rule->name[0], 0, &best, err);
        if (code == 0)
            *ret = best->address;
        return code;
    }
    if (best == NULL || net_interface_rule_allows(rule, best->name)) {
        *ret = *reached_by;
        return 0;
    }
    best = NULL;
    for (unsigned i = 0; i < n; i++)
        if (is_candidate(rule, &list[i], reached_by->family) &&
            (best == NULL || list[i].speed_mbit > best->speed_mbit))
            best = &list[i];
    if (best == NULL)
        return co_fail(err, -ENOEXEC, "%s leaves no network interface; `ip address` lists them",
                       DDP_ENV_SOCKET_IFNAME);
    *ret = best->address;
    return 0;
}

/* Those named, in the user's order. returns their number; -ENOEXEC */
static int list_named(const struct net_interface_rule *rule, struct choice c,
                      const struct net_address *first,
                      const struct net_interface *ret[NET_INTERFACES_MOST], struct co_error *err)
{
    for (unsigned i = 0; i < rule->n; i++) {
        const int code = find_named(c, rule->name[i], first->family, &ret[i], err);
        if (code != 0)
            return code;
        if (rule->n > 1 && first->family == AF_INET6 && net_address_is_link_local(&ret[i]->address))
            return fail_value(rule->name[i],
                              "the network interface has only a link-local address, which is of no "
                              "use in a list of interfaces",
                              err);
    }
    return (int)rule->n;
}

static bool is_listed(const struct net_interface *const *list, unsigned n, const char *name)
{
    for (unsigned i = 0; i < n; i++)
        if (strcmp(list[i]->name, name) == 0)
            return true;
    return false;
}

/* The fast ones, each once. The address of the first connections is also that of their interface
 * here. */
static unsigned list_fast(const struct net_interface_rule *rule, struct choice c,
                          const struct net_address *first,
                          const struct net_interface *ret[NET_INTERFACES_MOST])
{
    const struct net_interface *own = interface_of(c, first);
    uint32_t fastest = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < c.n; i++)
        if (is_candidate(rule, &c.list[i], first->family) && c.list[i].speed_mbit > fastest)
            fastest = c.list[i].speed_mbit;
    for (unsigned i = 0; i < c.n && n < NET_INTERFACES_MOST; i++) {
        const struct net_interface *x = &c.list[i];
        const bool is_own = own != NULL && strcmp(own->name, x->name) == 0;
        if (is_candidate(rule, x, first->family) && x->speed_mbit >= fastest / 2 &&
            !is_listed(ret, n, x->name))
            ret[n++] = is_own ? own : x;
    }
    return n;
}

/* Among equals the ranks of a node begin at different interfaces. */
static void take_ends(const struct net_interface *const *list, unsigned n,
                      const struct net_interface_user *user, struct net_ends *ret)
{
    for (int near = 1; near >= 0; near--)
        for (unsigned k = 0; k < n; k++) {
            const unsigned rail = (user->local_rank + k) % n;
            const struct net_interface *x = list[rail];
            const bool is_near = user->memory_node >= 0 && x->memory_node == user->memory_node;
            if (is_near != (near == 1) || ret->n == NET_ENDS_MOST)
                continue;
            struct net_end *e = &ret->end[ret->n++];
            *e = (struct net_end){
                .family = (uint8_t)x->address.family, .prefix = x->prefix, .rail = (uint8_t)rail};
            memcpy(e->bytes, x->address.bytes, sizeof e->bytes);
        }
}

int net_interface_choose_ends(const struct net_interface_rule *rule,
                              const struct net_interface *list, unsigned n,
                              const struct net_address *first,
                              const struct net_interface_user *user, struct net_ends *ret,
                              struct co_error *err)
{
    const bool is_named = rule->n > 0 && !rule->excludes;
    const struct choice c = {list, n};
    const struct net_interface *chosen[NET_INTERFACES_MOST];
    struct net_ends ends = {.flags = is_named ? NET_ENDS_NAMED : 0};
    const int found =
        is_named ? list_named(rule, c, first, chosen, err) : (int)list_fast(rule, c, first, chosen);
    if (found < 0)
        return found;
    const bool is_only_first = found == 1 && (is_named || net_address_is_loopback(first) ||
                                              net_address_is_same(&chosen[0]->address, first));
    if (!is_only_first && found > 0)
        take_ends(chosen, (unsigned)found, user, &ends);
    *ret = ends;
    return 0;
}
