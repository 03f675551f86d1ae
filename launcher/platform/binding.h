/* binding.h - what the ranks of this node are bound to: the shell around placement.h, which looks
 * at the machine, at what we are allowed, and at the devices. */
#ifndef DDP_LAUNCHER_PLATFORM_BINDING_H
#define DDP_LAUNCHER_PLATFORM_BINDING_H

#include "launcher/placement/placement.h"

#include <stdbool.h>
#include <stddef.h>

struct co_error;

struct binding {
    bool is_bound;    /* else the ranks may run wherever we may; it is only known where that is */
    char *node_list;  /* DDP_NUMA_NODES; of this block */
    char (*gpus)[20]; /* by local rank: the device's address on its bus, ""; of this block */
    struct placement_rank ranks[];
};

struct binding_request {
    enum placement_bind bind; /* PLACEMENT_NONE: only find out where the ranks may run */
    int n_ranks;              /* on this node, >= 1 */
    const char *visible;      /* $CUDA_VISIBLE_DEVICES of the ranks; NULL: unset */
};

/* ret       one block, to free()
 * returns   0
 *           -ENOTSUP, -EIO   the machine cannot be examined; the text names what is missing
 *           -ERANGE          more ranks than cores
 *           -ENODEV, -ENOMEM, -errno */
int binding_find(const struct binding_request *r, struct binding **ret, struct co_error *err);

enum { BINDING_LINE_BYTES = 600 }; /* are enough for any rank's */

/* A rank's, in words: "CPUs 0-3 (4 cores, NUMA node 0, socket 0), GPU 0000:3b:00.0".
 * returns to */
char *binding_print(const struct binding *b, int local_rank, char *to, size_t n);

/* --- which CPUs share a core, a cache, a node, a socket --- */

/* From hwloc, which is loaded only on request: first its library by dlopen(3), so that a ddprun
 * that binds nothing neither needs it nor spends time on it, and then the machine, which takes some
 * 10 ms. */

/* synthetic hwloc's description of a machine that need not exist, "pack:2 core:4 pu:2"; NULL: this
 *           machine as it runs, less what its control group hides
 * ret       one block, to free()
 * returns   0
 *           -ENOTSUP   hwloc is not installed: the text names what to install
 *           -EINVAL    not a valid description, or its machine is too large
 *           -ENOMEM, -EIO (hwloc gives up) */
int topology_load(const char *synthetic, struct topology **ret, struct co_error *err);

#endif
