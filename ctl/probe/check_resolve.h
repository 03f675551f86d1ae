/* check_resolve.h - this machine's addresses, its name, and whether they lead to each other. */
#ifndef DDP_CTL_PROBE_CHECK_RESOLVE_H
#define DDP_CTL_PROBE_CHECK_RESOLVE_H

#include "ctl/check/check_facts.h"

/* Fill host, addresses, forward, reverse and what they lead to. A name lookup can take half a
 * minute if a name server does not answer: a thread does it, and the call returns without it if it
 * is late.
 *
 * at   the address that others know; "": the first of its own */
void check_resolve_find(const char *at, uint64_t timeout_ms, struct check_facts *facts);

#endif
