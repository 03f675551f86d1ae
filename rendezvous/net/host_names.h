/* host_names.h - by which names clients may call this machine's pages.
 *
 * A page of another site can make a browser connect to this machine: by a name of that site that
 * leads to an address of ours, for a moment (DNS rebinding). It cannot hide that name, which the
 * browser sends with each request. So pages that not every program may read are for clients that
 * use an address, or a name that is known to be ours. */
#ifndef DDP_RENDEZVOUS_NET_HOST_NAMES_H
#define DDP_RENDEZVOUS_NET_HOST_NAMES_H

#include <stdbool.h>

struct co_error;

enum { HOST_NAME_CHARS = 253 }; /* a name of the DNS has no more */

/* Check the value of an option: "train.example.org,gate2", or "*" for any name. Pure.
 *
 * option    as it was spelled, for the text
 * returns   0, -EINVAL */
int host_names_check(const char *option, const char *value, struct co_error *err);

/* Is this localhost, the name of this machine, or its part before the first dot? Asks no server. */
bool host_names_are_own(const char *host);

/* May a client call this machine so?
 *
 * host   without port and brackets
 * more   a value that was checked: these names as well; NULL: no more */
bool host_names_allow(const char *host, const char *more);

#endif
