#include "binding.h"

#include "gpus.h"
#include "launcher/job/job_spec.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_BYTES = 12, LIST_BYTES = 400 };

static const char *const bind_words[] = {[PLACEMENT_NONE] = "none",
                                         [PLACEMENT_CORE] = "core",
                                         [PLACEMENT_CACHE] = "cache",
                                         [PLACEMENT_NUMA] = "numa",
                                         [PLACEMENT_SOCKET] = "socket"};

static int find_allowed(struct cpu_set *ret, struct co_error *err)
{
    *ret = (struct cpu_set){0};
    if (sched_getaffinity(0, sizeof *ret, (cpu_set_t *)ret) == 0)
        return 0;
    return co_fail(err, -errno, "cannot ask which CPUs are allowed: %s", strerror(errno));
}

/* One block: the struct, its ranks, the devices' addresses, the list of nodes. */
static struct binding *make_binding(const struct job_spec *spec)
{
    size_t n = (size_t)spec->n_local;
    struct binding *b =
        calloc(1, sizeof *b + n * (sizeof b->ranks[0] + sizeof b->gpus[0] + NODE_BYTES));
    if (b == NULL)
        return NULL;
    b->is_bound = spec->bind != PLACEMENT_NONE;
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

static void lower_threads(struct job_spec *spec, const struct binding *b)
{
    if (spec->omp_asked || spec->as_torchrun)
        return;
    for (int i = 0; i < spec->n_local; i++) {
        int n = (int)cpu_set_count(&b->ranks[i].cpus);
        if (spec->omp_threads > n)
            spec->omp_threads = n;
    }
}

/* All of it at hand. */
static int place(struct job_spec *spec, const struct gpus *gpus, const char *visible,
                 struct binding *b, struct co_error *err)
{
    const struct topology_source here = {0};
    struct cpu_set allowed;
    co_autofree struct topology *topology = NULL;
    co_autofree const struct cpu_set **near = calloc((size_t)spec->n_local, sizeof *near);
    int rc = near != NULL ? find_allowed(&allowed, err)
                          : co_fail(err, -ENOMEM, "no memory for %d ranks", spec->n_local);
    if (rc == 0)
        rc = topology_load(&here, &topology, err);
    if (rc < 0)
        return rc;
    find_near(gpus, visible, spec->n_local, b, near);
    const struct placement_wish wish = {
        .bind = spec->bind, .n_ranks = spec->n_local, .allowed = &allowed, .near = near};
    return placement_make(topology, &wish, b->ranks, err);
}

int binding_find(struct job_spec *spec, const char *visible, struct co_error *err)
{
    if (spec->bind == PLACEMENT_NONE && !spec->report_bindings)
        return 0;
    co_autofree struct gpus *gpus = NULL;
    co_autofree struct binding *b = make_binding(spec);
    if (b == NULL || gpus_find("", &gpus) < 0)
        return co_fail(err, -ENOMEM, "no memory to bind %d ranks", spec->n_local);
    int rc = place(spec, gpus, visible, b, err);
    if (rc < 0 && spec->bind == PLACEMENT_NONE)
        return co_fail_in(err, "--report-bindings");
    if (rc < 0)
        return co_fail_in(err, "--bind-to %s", bind_words[spec->bind]);
    list_nodes(b, spec->n_local);
    if (b->is_bound)
        lower_threads(spec, b);
    spec->binding = co_take(&b);
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

void binding_report(const struct job_spec *spec, FILE *out)
{
    char line[BINDING_LINE_BYTES];
    for (int i = 0; i < spec->n_local; i++)
        fprintf(out, "ddprun: %srank %d: %s%s\n", spec->world.guided ? "local " : "", i,
                spec->binding->is_bound ? "bound to " : "not bound: ",
                binding_print(spec->binding, i, line, sizeof line));
}
