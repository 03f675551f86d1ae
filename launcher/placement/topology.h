/* topology.h - which CPUs share a core, a cache, a memory node, a socket.
 *
 * hwloc knows, and is loaded only when somebody asks: its library by dlopen(3), which a ddprun that
 * binds nothing neither needs nor pays for, and then the machine, which takes some 10 ms. */
#ifndef DDP_LAUNCHER_PLACEMENT_TOPOLOGY_H
#define DDP_LAUNCHER_PLACEMENT_TOPOLOGY_H

#include "cpu_set.h"

#include <stddef.h>
#include <stdint.h>

struct co_error;

struct topology_cpu { /* what it is part of, each counted from 0 through the machine */
    uint32_t cpu;     /* the kernel's number: < CPU_SET_CPUS */
    uint32_t core;
    uint32_t cache; /* the largest that it shares with other cores; its core, if there is none */
    uint32_t node;  /* of memory: the kernel's number. A CPU that several are as near to has the
                       first of them; 0 on a machine that has none */
    uint32_t socket;
};

struct topology {
    size_t n_cpus;              /* >= 1 */
    struct topology_cpu cpus[]; /* neighbours stand together: by socket, node, cache, core */
};

/* Where from. With neither, this machine as it runs, less what its control group hides. */
struct topology_source {
    const char *synthetic; /* hwloc's description of a machine that needs not exist: "pack:2
                              core:4 pu:2" */
};

/* source    borrowed
 * ret       one block, to free()
 * returns   0
 *           -ENOTSUP   there is no hwloc here: the text says what to install
 *           -EINVAL    the description is none, or its machine is too large
 *           -ENOMEM, -EIO (hwloc gives up) */
int topology_load(const struct topology_source *source, struct topology **ret,
                  struct co_error *err);

#endif
