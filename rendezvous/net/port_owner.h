/* port_owner.h - which process has a TCP port that is taken? */
#ifndef DDP_RENDEZVOUS_NET_PORT_OWNER_H
#define DDP_RENDEZVOUS_NET_PORT_OWNER_H

#include <stddef.h>
#include <sys/socket.h>

enum { PORT_OWNER_BYTES = 128 };

/* " by python3 (pid 4711)"; " by a process of user ID 0" where /proc does not show which one: only
 * root sees the sockets of other users. "" where no owner is found. Control characters of the name
 * become '?'. The search reads 65536 descriptors at most, and never waits for a
 * process.
 *
 * returns   buf */
char *port_owner_text(const struct sockaddr_storage *address, char buf[PORT_OWNER_BYTES]);

#endif
