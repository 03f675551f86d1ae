/* failover_link.h - the way to a job's roster where another node replaces a coordinator that is
 * lost or leaves: --rdzv-conf failover=majority. docs/design/quorum.md has the rules. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_FAILOVER_LINK_H
#define DDP_LAUNCHER_MEMBERSHIP_FAILOVER_LINK_H

#include "roster_link.h"

extern const struct roster_link_ops failover_link_ops;

#endif
