/* own_addresses.h - the addresses of this machine: whence its ranks come to a store elsewhere. */
#ifndef DDP_LAUNCHER_PLATFORM_OWN_ADDRESSES_H
#define DDP_LAUNCHER_PLATFORM_OWN_ADDRESSES_H

#include "rendezvous/membership/message.h"

#include <stdbool.h>

/* Those of all interfaces that are up, but for loopback; the ones that only count on their own wire
 * last. More than there is room for are left out.
 *
 * returns   how many; 0: none, or the system does not tell */
size_t own_addresses_find(struct message_address ret[MESSAGE_MAX_ADDRESSES]);

/* Is this the name or an address of this machine? No name is looked up. */
bool own_addresses_have(const char *host);

#endif
