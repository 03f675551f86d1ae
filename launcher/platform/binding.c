/* The machine as placement.c wants it. binding_find() asks which CPUs are allowed, which GPUs
 * there are (gpus.c) and what the machine is made of (topology_load(), by hwloc), and has
 * placement_make() decide. Read place() first, then topology_load(). */
#include "binding.h"

#include "gpus.h"
#include "linkage.h"

#include "common/error.h"
#include "common/scope.h"

#include <dlfcn.h>
#include <errno.h>
#include <hwloc.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_BYTES = 12, LIST_BYTES = 400 };

/* One block: the struct, its ranks, the devices' addresses, the list of nodes. */
static struct binding *make_binding(const struct binding_request *r)
{
    size_t n = (size_t)r->n_ranks;
    struct binding *b =
        calloc(1, sizeof *b + n * (sizeof b->ranks[0] + sizeof b->gpus[0] + NODE_BYTES));
    if (b == NULL)
        return NULL;
    b->is_bound = r->bind != PLACEMENT_NONE;
    b->gpus = (char(*)[20])(b->ranks + n);
    b->node_list = (char *)(b->gpus + n);
    return b;
}

static void find_near(const struct gpus *gpus, const char *visible, int n, struct binding *b,
                      const struct cpu_set **near)
{
    static const struct cpu_set unknown;
    for (int i = 0; i < n; i++) {
        const struct gpu *gpu = gpus_get(gpus, visible, i);
        bool is_known = gpu != NULL && memcmp(&gpu->near, &unknown, sizeof unknown) != 0;
        near[i] = is_known ? &gpu->near : NULL;
        snprintf(b->gpus[i], sizeof b->gpus[i], "%s", gpu != NULL ? gpu->bus_id : "");
    }
}

static int place(const struct binding_request *r, const struct gpus *gpus, struct binding *b,
                 struct co_error *err)
{
    struct cpu_set allowed = {0};
    co_autofree struct topology *topology = NULL;
    co_autofree const struct cpu_set **near = calloc((size_t)r->n_ranks, sizeof *near);
    if (near == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    if (sched_getaffinity(0, sizeof allowed, (cpu_set_t *)&allowed) < 0)
        return co_fail(err, -errno, "cannot read the allowed CPUs: %s", strerror(errno));
    int rc = topology_load(NULL, &topology, err);
    if (rc < 0)
        return rc;
    find_near(gpus, r->visible, r->n_ranks, b, near);
    const struct placement_wish wish = {
        .bind = r->bind, .n_ranks = r->n_ranks, .allowed = &allowed, .near = near};
    return placement_make(topology, &wish, b->ranks, err);
}

int binding_find(const struct binding_request *r, struct binding **ret, struct co_error *err)
{
    co_autofree struct gpus *gpus = NULL;
    co_autofree struct binding *b = make_binding(r);
    if (b == NULL || gpus_find("", &gpus) < 0)
        return co_fail(err, -ENOMEM, "out of memory");
    int rc = place(r, gpus, b, err);
    if (rc < 0 && !b->is_bound)
        return co_fail_in(err, "--report-bindings");
    if (rc < 0)
        return co_fail_in(err, "--bind-to %s", placement_bind_words[r->bind]);
    char *to = b->node_list;
    for (int i = 0; i < r->n_ranks; i++)
        to += sprintf(to, "%s%" PRId32, i > 0 ? "," : "", b->ranks[i].node);
    *ret = co_take(&b);
    return 0;
}

static size_t put_place(const char *what, int32_t number, char *to, size_t n)
{
    int len = number == PLACEMENT_NOWHERE ? snprintf(to, n, ", several %ss", what)
                                          : snprintf(to, n, ", %s %" PRId32, what, number);
    return (size_t)len < n ? (size_t)len : n - 1;
}

char *binding_print(const struct binding *b, int local_rank, char *to, size_t n)
{
    const struct placement_rank *r = &b->ranks[local_rank];
    char list[LIST_BYTES], places[80];
    size_t len = put_place("NUMA node", r->node, places, sizeof places);
    put_place("socket", r->socket, places + len, sizeof places - len);
    snprintf(to, n, "CPU%s %s (%" PRIu32 " core%s%s)%s%s", cpu_set_count(&r->cpus) == 1 ? "" : "s",
             cpu_set_print(&r->cpus, list, sizeof list), r->n_cores, r->n_cores == 1 ? "" : "s",
             places, b->gpus[local_rank][0] != '\0' ? ", GPU " : "", b->gpus[local_rank]);
    return to;
}

/* --- which CPUs share a core, a cache, a node, a socket --- */

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
        return co_fail(err, -ENOTSUP, "cannot load %s: %s; install hwloc 2", library_name,
                       why.text);
#define TAKE(name)                                                                                 \
    if ((h->name = (__typeof__(h->name))dlsym(h->library, #name)) == NULL)                         \
        return co_fail(err, -ENOTSUP, "%s lacks %s; install hwloc 2", library_name, #name);
    HWLOC_CALLS(TAKE)
#undef TAKE
    if (h->hwloc_get_api_version() >> 16 != HWLOC_API_VERSION >> 16)
        return co_fail(
            err, -ENOTSUP,
            "%s has another version than ddprun was built for; install that of the build",
            library_name);
    return 0;
}

/* Plug-ins look at GPUs, which takes seconds where one must be woken up. The only way to leave them
 * out is a variable, which must not be visible elsewhere. */
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

static int load_topology(const struct hwloc *h, const char *synthetic, hwloc_topology_t t,
                         struct co_error *err)
{
    if (synthetic != NULL && h->hwloc_topology_set_synthetic(t, synthetic) < 0)
        return co_fail(err, -EINVAL, "'%.200s' is not a valid hwloc topology file", synthetic);
    if (h->hwloc_topology_load(t) < 0) /* devices are left out unless they are requested */
        return co_fail(err, -EIO, "hwloc cannot read the topology of this machine: %s",
                       strerror(errno));
    return 0;
}

static hwloc_obj_t find_above(hwloc_obj_t o, hwloc_obj_type_t type)
{
    while (o != NULL && o->type != type)
        o = o->parent;
    return o;
}

/* The largest cache that is shared with other cores. */
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

static int compare_cpus(const void *left, const void *right)
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
        return co_fail(err, -EINVAL, "the machine has %zu CPUs; ddprun supports up to %d", n,
                       CPU_SET_CPUS);
    co_autofree struct topology *to = malloc(sizeof *to + n * sizeof to->cpus[0]);
    if (to == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    to->n_cpus = n;
    for (size_t i = 0; i < n; i++) {
        hwloc_obj_t pu = h->hwloc_get_obj_by_depth(t, depth, (unsigned)i);
        uint32_t core = index_of(find_above(pu, HWLOC_OBJ_CORE), pu->logical_index);
        if (pu->os_index >= CPU_SET_CPUS)
            return co_fail(err, -EINVAL,
                           "the machine has a CPU %u; ddprun supports numbers up to %d",
                           pu->os_index, CPU_SET_CPUS);
        to->cpus[i] = (struct topology_cpu){
            .cpu = pu->os_index,
            .core = core,
            .cache = cache_index(pu, core),
            .node = node_of(h, t, pu->os_index),
            .socket = index_of(find_above(pu, HWLOC_OBJ_PACKAGE), 0),
        };
    }
    qsort(to->cpus, n, sizeof to->cpus[0], compare_cpus);
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
        rc = load_topology(&h, synthetic, t, err) ?: copy_cpus(&h, t, ret, err);
        h.hwloc_topology_destroy(t);
    }
    if (h.library != NULL)
        dlclose(h.library);
    return rc;
}
