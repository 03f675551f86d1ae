/* etcd_link.h - a node's way to the roster, where the nodes find out from etcd which of them has
 * it.
 *
 * Each node is ready to have the roster: it listens, and its elector (elector.h, in a plug-in that
 * is loaded now) decides whether it has it, or finds where else it is. The node with the roster
 * writes each generation to etcd before it announces it. When its process ends, another node
 * continues from there, while the ranks run. docs/design/etcd.md has the guarantees. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_ETCD_LINK_H
#define DDP_LAUNCHER_MEMBERSHIP_ETCD_LINK_H

#include "roster_link.h"

/* For a job whose spec->world.etcd is set. open() fails with -ELIBACC or -ELIBBAD where the
 * plug-in cannot be had. */
extern const struct roster_link_ops etcd_link_ops;

#endif
