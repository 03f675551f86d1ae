#include "binding.h"

#include "gpus.h"
#include "topology.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
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

static void list_nodes(struct binding *b, int n)
{
    char *to = b->node_list;
    for (int i = 0; i < n; i++)
        to += sprintf(to, "%s%" PRId32, i > 0 ? "," : "", b->ranks[i].node);
}

static int place(const struct binding_request *r, const struct gpus *gpus, struct binding *b,
                 struct co_error *err)
{
    struct cpu_set allowed = {0};
    co_autofree struct topology *topology = NULL;
    co_autofree const struct cpu_set **near = calloc((size_t)r->n_ranks, sizeof *near);
    if (near == NULL)
        return co_fail(err, -ENOMEM, "no memory for %d ranks", r->n_ranks);
    if (sched_getaffinity(0, sizeof allowed, (cpu_set_t *)&allowed) < 0)
        return co_fail(err, -errno, "cannot ask which CPUs are allowed: %s", strerror(errno));
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
        return co_fail(err, -ENOMEM, "no memory to bind %d ranks", r->n_ranks);
    int rc = place(r, gpus, b, err);
    if (rc < 0 && !b->is_bound)
        return co_fail_in(err, "--report-bindings");
    if (rc < 0)
        return co_fail_in(err, "--bind-to %s", placement_bind_words[r->bind]);
    list_nodes(b, r->n_ranks);
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
