/* node_timers.h - the timers of torch.distributed.elastic.timer (file_timers.h), with
 * TORCHELASTIC_ENABLE_FILE_TIMER=1: a named pipe for the ranks, whose path they get in
 * TORCHELASTIC_TIMER_FILE.
 *
 * A rank whose timer expires counts as one that hangs (node_hang.h): the stacks are shown, it gets
 * the signal of the timer, and has failed. Another process of a rank gets the signal, and nothing
 * else. Processes that do not descend from a rank have no timers. */
#ifndef DDP_LAUNCHER_NODE_NODE_TIMERS_H
#define DDP_LAUNCHER_NODE_NODE_TIMERS_H

#include "node_view.h"

extern const struct node_feature node_timers_feature;

#endif
