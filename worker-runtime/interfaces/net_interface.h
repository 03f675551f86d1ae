/* net_interface.h - the network interfaces of this machine, and which of them a rank uses:
 * the rule that users give in DDP_SOCKET_IFNAME, and the choice. The choice is pure.
 *
 *     not set      the first connections are at the address from which this node reaches the store.
 *                  Lanes use all physical interfaces whose speed is at least half of the fastest
 *     eth0,eth1    the first connections use the first one, lanes use all of them
 *     ^docker,lo   as if it was not set, without the interfaces whose names begin so. Lanes use
 *                  virtual interfaces too, and those of unknown speed
 *
 * A rank has NET_ENDS_MOST of the interfaces for its lanes: those of the memory node that it is
 * bound to before others, and the ranks of a node begin at different ones. */
#ifndef DDP_WORKER_RUNTIME_INTERFACES_NET_INTERFACE_H
#define DDP_WORKER_RUNTIME_INTERFACES_NET_INTERFACE_H

#include "net_ends.h"

#include <net/if.h>

struct co_error;

#define NET_INTERFACES_MOST 16 /* that a rule names */

struct net_interface_rule {
    unsigned n; /* 0: not set */
    bool excludes;
    char name[NET_INTERFACES_MOST][IF_NAMESIZE];
};

/* value     of DDP_SOCKET_IFNAME; NULL or "": not set
 * returns   0; -ENOEXEC the text names the variable: a name is empty, longer than 15 bytes, given
 *           twice, or has a character that no interface has; more than NET_INTERFACES_MOST names */
int net_interface_rule_parse(const char *value, struct net_interface_rule *ret,
                             struct co_error *err);

/* Whether the rule leaves an interface in. */
bool net_interface_rule_allows(const struct net_interface_rule *rule, const char *name);

struct net_interface { /* an address of one: an interface may be listed more than once */
    char name[IF_NAMESIZE];
    struct net_address address;
    uint8_t prefix;
    uint32_t speed_mbit; /* 0: unknown */
    int memory_node;     /* -1: unknown */
    bool is_up, is_loopback, is_physical;
};

/* In the system's order.
 * returns   0, *ret_list from malloc(); -ENOMEM, -errno */
int net_interface_list(struct net_interface **ret_list, unsigned *ret_n, struct co_error *err);

/* The name of the interface that has an address. returns whether there is one */
bool net_interface_find_name(const struct net_address *a, char name[IF_NAMESIZE]);

/* The address of the first connections.
 *
 * reached_by   from which this node reaches the store
 * returns      0; -ENOEXEC no such interface, it has no address, or no interface is left: the text
 *              names DDP_SOCKET_IFNAME */
int net_interface_choose_first(const struct net_interface_rule *rule,
                               const struct net_interface *list, unsigned n,
                               const struct net_address *reached_by, struct net_address *ret,
                               struct co_error *err);

struct net_interface_user { /* a rank */
    unsigned local_rank;
    int memory_node; /* -1: bound to none, or to several */
};

/* The ends of a rank's lanes; none, if that would be the interface of the first connections alone.
 *
 * first     the address of the first connections: ends are of its family
 * returns   0; -ENOEXEC as above */
int net_interface_choose_ends(const struct net_interface_rule *rule,
                              const struct net_interface *list, unsigned n,
                              const struct net_address *first,
                              const struct net_interface_user *user, struct net_ends *ret,
                              struct co_error *err);

#endif
