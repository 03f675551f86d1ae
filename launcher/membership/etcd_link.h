/* etcd_link.h - a node's way to the roster, where the nodes find out at etcd which of them has it.
 *
 * Each node is ready to have the roster: it listens, and its elector (elector.h, in a plug-in
 * that is loaded now) says whether it has it or where else it is. Who has it writes each generation
 * down before anybody is told, and when its process ends another one goes on from there, while the
 * ranks run. docs/design/etcd.md has what is promised. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_ETCD_LINK_H
#define DDP_LAUNCHER_MEMBERSHIP_ETCD_LINK_H

#include "roster_link.h"

/* For a job whose spec->world.etcd is set. open() fails with -ELIBACC or -ELIBBAD where the
 * plug-in cannot be had. */
extern const struct roster_link_ops etcd_link_ops;

#endif
