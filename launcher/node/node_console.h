/* node_console.h - what ddpctl asks of this node, and what is done about it: console.h knows how it
 * is asked, this knows the answers. */
#ifndef DDP_LAUNCHER_NODE_NODE_CONSOLE_H
#define DDP_LAUNCHER_NODE_NODE_CONSOLE_H

#include "node_view.h"

/* The socket is opened from the loop, a moment later: a job that is over by then has none, and
 * ranks that have just begun lose no CPU to it. */
extern const struct node_feature node_console_feature;

#endif
