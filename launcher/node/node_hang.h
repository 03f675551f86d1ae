/* node_hang.h - --hang-timeout: look at the ranks now and then, report which one hangs, and end it.
 * What follows is what follows any rank's failure. hang.h decides; a rank that the kernel keeps
 * asleep (TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT), and one whose timer has expired
 * (node_timers.h), are reported and ended in the same way. */
#ifndef DDP_LAUNCHER_NODE_NODE_HANG_H
#define DDP_LAUNCHER_NODE_NODE_HANG_H

#include "node_view.h"

#include <sys/types.h>

struct hang_finding;

/* While all ranks run, and only if one of the three is wanted. */
extern const struct node_feature node_hang_feature;

/* Report a rank that hangs, as the caller has found, where all ranks are, and end it.
 *
 * f         copied
 * sig       the first signal that it gets; what it does not end is killed
 * returns   whether that was begun; false: a rank is being ended, or not all of them run */
bool node_hang_end(const struct node_view *n, const struct hang_finding *f, int sig);

/* Why a process was ended; NULL: not for this. */
const struct hang_finding *node_hang_of(const struct node_view *n, pid_t pid);

#endif
