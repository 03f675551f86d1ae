/* node_hang.h - --hang-timeout: look at the ranks now and then, report which one hangs, and end it.
 * What follows is what follows any rank's failure. hang.h decides. */
#ifndef DDP_LAUNCHER_NODE_NODE_HANG_H
#define DDP_LAUNCHER_NODE_NODE_HANG_H

#include "node_view.h"

#include <sys/types.h>

struct hang_finding;

/* While all ranks run, and only with --hang-timeout. */
extern const struct node_feature node_hang_feature;

/* Why a process was ended; NULL: not for this. */
const struct hang_finding *node_hang_of(const struct node_view *n, pid_t pid);

#endif
