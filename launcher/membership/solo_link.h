/* solo_link.h - the way to the roster of a job that has one node: the roster is in this process,
 * and messages are handed over as they are. No port, no lease, no bytes. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_SOLO_LINK_H
#define DDP_LAUNCHER_MEMBERSHIP_SOLO_LINK_H

#include "roster_link.h"

/* For a job whose spec->world.has_others is not set. */
extern const struct roster_link_ops solo_link_ops;

#endif
