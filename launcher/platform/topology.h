/* topology.h - which CPUs share a core, a cache, a memory node, a socket.
 *
 * hwloc knows, and is loaded only when somebody asks: its library by dlopen(3), which a ddprun that
 * binds nothing neither needs nor pays for, and then the machine, which takes some 10 ms. */
#ifndef DDP_LAUNCHER_PLATFORM_TOPOLOGY_H
#define DDP_LAUNCHER_PLATFORM_TOPOLOGY_H

#include "launcher/placement/placement.h"

struct co_error;

/* synthetic hwloc's description of a machine that need not exist, "pack:2 core:4 pu:2"; NULL: this
 *           machine as it runs, less what its control group hides
 * ret       one block, to free()
 * returns   0
 *           -ENOTSUP   there is no hwloc here: the text says what to install
 *           -EINVAL    the description is none, or its machine is too large
 *           -ENOMEM, -EIO (hwloc gives up) */
int topology_load(const char *synthetic, struct topology **ret, struct co_error *err);

#endif
