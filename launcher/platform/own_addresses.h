/* own_addresses.h - the addresses of this machine, from which its ranks connect to a store
 * elsewhere, and its name. */
#ifndef DDP_LAUNCHER_PLATFORM_OWN_ADDRESSES_H
#define DDP_LAUNCHER_PLATFORM_OWN_ADDRESSES_H

#include "rendezvous/membership/message.h"

#include <netinet/in.h>
#include <stdbool.h>

struct co_error;

/* Those of all interfaces that are up, except loopback; link-local ones last. Those that do not fit
 * are left out.
 *
 * returns   how many; 0: none, or the system does not report them */
size_t own_addresses_find(struct message_address ret[MESSAGE_MAX_ADDRESSES]);

/* Is this the name or an address of this machine? No name is looked up. */
bool own_addresses_have(const char *host);

/* The name of this node, in messages and for the order of ranks.
 *
 * given     NULL: the name of the machine up to its first dot */
void own_name_find(const char *given, char ret[MESSAGE_NAME_BYTES]);

/* --- the numeric address of MASTER_ADDR, for programs that know no names --- */

/* An IPv4 address, if it has one: programs that take a number often know no other.
 *
 * host       numeric: copied, without a question to anybody. A name: the system's resolver is
 *            asked, for MASTER_IP_WAIT_MS at most, during which the caller does nothing else
 * returns    0; -ENOENT: no such name; -EAGAIN: no answer in that time; -errno */
int master_ip_find(const char *host, char ret_ip[INET6_ADDRSTRLEN], struct co_error *err);

/* Less than a lease (rendezvous/membership/lease.h): the node's keep-alives must continue. */
#define MASTER_IP_WAIT_MS 1000

#endif
