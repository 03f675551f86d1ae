#include "topology.h"

#include "linkage.h"

#include "common/error.h"
#include "common/scope.h"

#include <dlfcn.h>
#include <errno.h>
#include <hwloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The names that are called, and what they are. Of hwloc.h only types and constants are used: its
 * inline functions would call the library by link. */
#define HWLOC_CALLS(X)                                                                             \
    X(hwloc_get_api_version)                                                                       \
    X(hwloc_topology_init)                                                                         \
    X(hwloc_topology_destroy)                                                                      \
    X(hwloc_topology_load)                                                                         \
    X(hwloc_topology_set_synthetic)                                                                \
    X(hwloc_get_nbobjs_by_depth)                                                                   \
    X(hwloc_get_obj_by_depth)                                                                      \
    X(hwloc_get_type_depth)                                                                        \
    X(hwloc_bitmap_isset)

struct hwloc {
    void *library;
#define MEMBER(name) __typeof__(&name) name;
    HWLOC_CALLS(MEMBER)
#undef MEMBER
};

static const char library_name[] = "libhwloc.so.15"; /* the ABI of all versions 2 */

static int open_hwloc(struct hwloc *h, struct co_error *err)
{
    struct co_error why;
    if (linkage_load(library_name, &h->library, &why) < 0)
        return co_fail(err, -ENOTSUP, "%s is needed and cannot be loaded: %s: install hwloc 2",
                       library_name, why.text);
#define TAKE(name)                                                                                 \
    if ((h->name = (__typeof__(h->name))dlsym(h->library, #name)) == NULL)                         \
        return co_fail(err, -ENOTSUP, "%s has no %s: install hwloc 2", library_name, #name);
    HWLOC_CALLS(TAKE)
#undef TAKE
    if (h->hwloc_get_api_version() >> 16 != HWLOC_API_VERSION >> 16)
        return co_fail(err, -ENOTSUP, "%s is of another version than ddprun was built for",
                       library_name);
    return 0;
}

/* Plug-ins look at GPUs, which takes seconds where one must be woken up. There is no other way to
 * leave them out than a variable, which nobody else is to see. */
static int init_without_plugins(const struct hwloc *h, hwloc_topology_t *ret)
{
    static const char variable[] = "HWLOC_PLUGINS_PATH";
    bool is_set = getenv(variable) != NULL;
    if (!is_set && setenv(variable, "/dev/null", 1) < 0)
        return -ENOMEM;
    int rc = h->hwloc_topology_init(ret);
    if (!is_set)
        unsetenv(variable);
    return rc < 0 ? -EIO : 0;
}

static int load(const struct hwloc *h, const char *synthetic, hwloc_topology_t t,
                struct co_error *err)
{
    if (synthetic != NULL && h->hwloc_topology_set_synthetic(t, synthetic) < 0)
        return co_fail(err, -EINVAL, "'%.200s' describes no machine", synthetic);
    if (h->hwloc_topology_load(t) < 0) /* devices are left out as long as nobody asks */
        return co_fail(err, -EIO, "hwloc cannot tell what this machine is made of: %s",
                       strerror(errno));
    return 0;
}

static hwloc_obj_t find_above(hwloc_obj_t o, hwloc_obj_type_t type)
{
    while (o != NULL && o->type != type)
        o = o->parent;
    return o;
}

/* The largest cache that other cores have, too. */
static hwloc_obj_t find_cache(hwloc_obj_t core)
{
    hwloc_obj_t found = NULL;
    for (hwloc_obj_t o = core; o != NULL; o = o->parent)
        if (o->type >= HWLOC_OBJ_L1CACHE && o->type <= HWLOC_OBJ_L5CACHE)
            found = o;
    return found;
}

static uint32_t index_of(hwloc_obj_t o, uint32_t if_none)
{
    return o != NULL ? o->logical_index : if_none;
}

/* Caches are counted apart for each level: the level belongs to the number. A core without one
 * counts as its own. */
static uint32_t cache_index(hwloc_obj_t pu, uint32_t core)
{
    hwloc_obj_t cache = find_cache(pu);
    if (cache == NULL)
        return core;
    return ((uint32_t)cache->type - HWLOC_OBJ_L1CACHE + 1) << 16 | cache->logical_index;
}

static uint32_t node_of(const struct hwloc *h, hwloc_topology_t t, unsigned cpu)
{
    unsigned n = h->hwloc_get_nbobjs_by_depth(t, HWLOC_TYPE_DEPTH_NUMANODE);
    for (unsigned i = 0; i < n; i++) {
        hwloc_obj_t node = h->hwloc_get_obj_by_depth(t, HWLOC_TYPE_DEPTH_NUMANODE, i);
        if (h->hwloc_bitmap_isset(node->cpuset, cpu))
            return node->os_index;
    }
    return 0;
}

static int compare(const void *left, const void *right)
{
    const struct topology_cpu *a = left, *b = right;
    const uint32_t of_a[] = {a->socket, a->node, a->cache, a->core, a->cpu};
    const uint32_t of_b[] = {b->socket, b->node, b->cache, b->core, b->cpu};
    for (size_t i = 0; i < sizeof of_a / sizeof *of_a; i++)
        if (of_a[i] != of_b[i])
            return of_a[i] < of_b[i] ? -1 : 1;
    return 0;
}

static int copy_cpus(const struct hwloc *h, hwloc_topology_t t, struct topology **ret,
                     struct co_error *err)
{
    int depth = h->hwloc_get_type_depth(t, HWLOC_OBJ_PU);
    size_t n = h->hwloc_get_nbobjs_by_depth(t, depth);
    if (n < 1 || n > CPU_SET_CPUS)
        return co_fail(err, -EINVAL, "a machine of %zu CPUs: ddprun knows up to %d", n,
                       CPU_SET_CPUS);
    co_autofree struct topology *to = malloc(sizeof *to + n * sizeof to->cpus[0]);
    if (to == NULL)
        return co_fail(err, -ENOMEM, "no memory for %zu CPUs", n);
    to->n_cpus = n;
    for (size_t i = 0; i < n; i++) {
        hwloc_obj_t pu = h->hwloc_get_obj_by_depth(t, depth, (unsigned)i);
        uint32_t core = index_of(find_above(pu, HWLOC_OBJ_CORE), pu->logical_index);
        if (pu->os_index >= CPU_SET_CPUS)
            return co_fail(err, -EINVAL, "CPU %u: ddprun knows up to %d", pu->os_index,
                           CPU_SET_CPUS);
        to->cpus[i] = (struct topology_cpu){
            .cpu = pu->os_index,
            .core = core,
            .cache = cache_index(pu, core),
            .node = node_of(h, t, pu->os_index),
            .socket = index_of(find_above(pu, HWLOC_OBJ_PACKAGE), 0),
        };
    }
    qsort(to->cpus, n, sizeof to->cpus[0], compare);
    *ret = co_take(&to);
    return 0;
}

int topology_load(const char *synthetic, struct topology **ret, struct co_error *err)
{
    struct hwloc h = {0};
    hwloc_topology_t t;
    int rc = open_hwloc(&h, err);
    if (rc == 0 && (rc = init_without_plugins(&h, &t)) < 0)
        co_fail(err, rc, "hwloc cannot be started: %s", strerror(-rc));
    if (rc == 0) {
        rc = load(&h, synthetic, t, err);
        if (rc == 0)
            rc = copy_cpus(&h, t, ret, err);
        h.hwloc_topology_destroy(t);
    }
    if (h.library != NULL)
        dlclose(h.library);
    return rc;
}
