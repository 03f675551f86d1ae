/* master_ip.h - the numeric address behind MASTER_ADDR, for programs that know no names. */
#ifndef DDP_LAUNCHER_PLATFORM_MASTER_IP_H
#define DDP_LAUNCHER_PLATFORM_MASTER_IP_H

#include <netinet/in.h>

struct co_error;

/* An IPv4 address, if it has one: programs that take a number often know no other.
 *
 * host       numeric: copied, without a question to anybody. A name: the system's resolver is
 *            asked, for MASTER_IP_WAIT_MS at most, during which the caller does nothing else
 * returns    0; -ENOENT: no such name; -EAGAIN: no answer in that time; -errno */
int master_ip_find(const char *host, char ret_ip[INET6_ADDRSTRLEN], struct co_error *err);

/* Less than a lease (rendezvous/membership/lease.h): the node must go on being heard of. */
#define MASTER_IP_WAIT_MS 1000

#endif
