/* PMIx for the ranks of this node. libpmix answers them itself; it gathers what they bring to a
 * fence, and asks for the other nodes' part only if there are others. ddprun watches: on_event()
 * reads what ranks did (look_at_ranks()) and which fences have begun (serve_fences()), and
 * pmix_host_rank_gone() decides how the end of a rank counts. pmix_host_begin() makes the namespace
 * of a generation, and fill_variables() what Open MPI finds in the environment.
 *
 * Invariant: no rank waits for what cannot arrive. MPI_Init is a fence over all ranks, which
 * libpmix does not end when one of them has exited without it: look_for_stuck() makes one that
 * waits fail. */
#include "pmix_host.h"

#include "launcher/job/worker_env.h"
#include "launcher/placement/placement.h"
#include "launcher/platform/resources.h"
#include "mpi_end.h"
#include "pmix_loader.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "common/tree.h"
#include "rendezvous/pmix/pmix_names.h"
#include "rendezvous/pmix/pmix_plugin.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NONE = -1, SECRET_BYTES = 16, NUMBER_BYTES = 12 };

struct pmix_host_rank {
    struct pmix_plugin_rank seen; /* as of the last look */
    bool is_gone;
    bool is_made_to_fail; /* it waits for a rank that has ended */
};

struct pmix_host {
    struct pmix_host_opts opts;
    const struct pmix_plugin *plugin;  /* NULL: not loaded */
    struct pmix_plugin_server *server; /* owned, by the plug-in; NULL: not started */
    uv_poll_t poll;
    bool has_poll;
    char *directory; /* owned; libpmix's */
    char *session;   /* owned; of a generation; NULL: none yet */
    char *shared;    /* owned */
    char node_name[PMIX_NAMES_NODE_BYTES];
    char secret[2 * SECRET_BYTES + 1]; /* in the names of namespaces */
    int first_rank;
    bool is_oversubscribed;
    int n_gone;
    int aborter;    /* NONE, or local */
    int silent_end; /* a rank that has ended with 0, without MPI_Init; NONE */
    struct worker_variable variables[WORKER_VARIABLES_MAX];
    size_t n_variables;
    char **names; /* owned; of libpmix's variables: NULL-terminated */
    char numbers[2][NUMBER_BYTES];
    struct pmix_host_rank ranks[];
};

__attribute__((format(printf, 2, 3))) static void note_text(struct pmix_host *h, const char *format,
                                                            ...)
{
    char text[CO_ERROR_TEXT_BYTES + 64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    h->opts.on_note(h->opts.arg, text);
}

static int global_rank(const struct pmix_host *h, int local_rank)
{
    return h->first_rank + local_rank;
}

/* --- what ranks do ---------------------------------------------------------------------------- */

static void note_refused(struct pmix_host *h, int rank, unsigned news)
{
    static const struct {
        enum pmix_plugin_refused what;
        const char *text;
    } texts[] = {
        {PMIX_PLUGIN_SPAWN, "called MPI_Comm_spawn, which ddprun does not support; start all ranks "
                            "at launch"},
        {PMIX_PLUGIN_PUBLISH, "published or looked up a name, which ddprun does not support"},
        {PMIX_PLUGIN_CONNECT, "connected to processes of another job, which ddprun does not "
                              "support"},
        {PMIX_PLUGIN_MODEX, "asked for data of a single rank, which ddprun does not support; unset "
                            "OMPI_MCA_pmix_base_async_modex and OMPI_MCA_pmix_base_collect_data"},
        {PMIX_PLUGIN_FENCE, "began a fence over some of the ranks, which ddprun does not support"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if ((news & texts[i].what) != 0)
            note_text(h, "MPI: rank %d %s", global_rank(h, rank), texts[i].text);
}

static void end_rank(struct pmix_host *h, int rank)
{
    if (h->aborter != NONE)
        return;
    h->aborter = rank;
    h->opts.on_abort(h->opts.arg, rank);
}

/* A rank that has ended enters no fence any more, and MPI_Init is one. */
static void look_for_stuck(struct pmix_host *h)
{
    for (int i = 0; h->silent_end != NONE && h->aborter == NONE && i < h->opts.n_local; i++) {
        if (h->ranks[i].is_gone || h->ranks[i].seen.state != PMIX_PLUGIN_INSIDE)
            continue;
        note_text(h, "MPI: rank %d waits for rank %d, which has exited without calling MPI_Init",
                  global_rank(h, i), global_rank(h, h->silent_end));
        h->ranks[i].is_made_to_fail = true;
        end_rank(h, i);
    }
}

static void look_at_rank(struct pmix_host *h, int rank)
{
    struct pmix_host_rank *r = &h->ranks[rank];
    const struct pmix_plugin_rank before = r->seen;
    r->seen = h->plugin->look(h->server, rank);
    if (r->seen.refused != before.refused)
        note_refused(h, rank, r->seen.refused & ~before.refused);
    if (r->seen.has_aborted)
        end_rank(h, rank);
}

static void look_at_ranks(struct pmix_host *h)
{
    h->plugin->drain(h->server); /* first: what comes after it wakes us again */
    for (int i = 0; i < h->opts.n_local; i++)
        if (!h->ranks[i].is_gone)
            look_at_rank(h, i);
}

/* libpmix asks only for fences with other nodes; with none, all is there. */
static void serve_fences(struct pmix_host *h)
{
    struct pmix_plugin_fence fence;
    while (h->plugin->take_fence(h->server, &fence)) {
        uint8_t *bytes = fence.len > 0 ? malloc(fence.len) : NULL;
        const bool failed = fence.len > 0 && bytes == NULL;
        if (bytes != NULL)
            memcpy(bytes, fence.bytes, fence.len);
        h->plugin->end_fence(h->server, fence.id, bytes, failed ? 0 : fence.len, failed);
    }
}

static void on_event(uv_poll_t *poll, int status, int events)
{
    struct pmix_host *h = poll->data;
    (void)status;
    (void)events;
    look_at_ranks(h);
    serve_fences(h);
    look_for_stuck(h);
}

/* All ranks are gone. Those of another MPI have each run alone, and exited with 0. */
static void look_for_singletons(struct pmix_host *h)
{
    for (int i = 0; i < h->opts.n_local; i++)
        if (h->ranks[i].seen.state != PMIX_PLUGIN_SILENT)
            return;
    if (h->silent_end != NONE)
        note_text(h,
                  "MPI: rank %d exited without using PMIx: if it is an MPI program, its MPI is not "
                  "Open MPI and it ran as a singleton; use --mpi pmi1 for MPICH",
                  global_rank(h, h->silent_end));
}

int pmix_host_rank_gone(struct pmix_host *h, int local_rank, int status, bool was_told)
{
    struct pmix_host_rank *r = &h->ranks[local_rank];
    look_at_ranks(h); /* libpmix answers a rank after it is recorded what that did */
    r->is_gone = true;
    const enum pmix_plugin_state state = r->seen.state;
    const struct mpi_end end = {.stage = state == PMIX_PLUGIN_SILENT   ? MPI_END_SILENT
                                         : state == PMIX_PLUGIN_INSIDE ? MPI_END_INSIDE
                                                                       : MPI_END_FINALIZED,
                                .has_aborted = r->seen.has_aborted || r->is_made_to_fail,
                                .exit_code = r->seen.exit_code,
                                .status = status,
                                .was_told = was_told};
    enum mpi_end_note note;
    const int counts = mpi_end_status(&end, &note);
    if (note == MPI_END_LEFT)
        note_text(h,
                  "MPI: rank %d exited with 0 without calling MPI_Finalize; ddprun treats this as "
                  "a failure",
                  global_rank(h, local_rank));
    if (note == MPI_END_ALONE && h->silent_end == NONE)
        h->silent_end = local_rank;
    look_for_stuck(h);
    if (++h->n_gone == h->opts.n_local)
        look_for_singletons(h);
    return counts;
}

int pmix_host_aborter(const struct pmix_host *h)
{
    return h->aborter;
}

/* --- the environment -------------------------------------------------------------------------- */

static int add_variable(struct pmix_host *h, const char *name, const char *value, bool is_default)
{
    if (h->n_variables == WORKER_VARIABLES_MAX)
        return -E2BIG;
    h->variables[h->n_variables++] =
        (struct worker_variable){.name = name, .value = value, .is_default = is_default};
    return 0;
}

/* PMIX_RANK is each rank's own. */
static int add_of_libpmix(struct pmix_host *h)
{
    char *const *text = h->plugin->variables(h->server);
    int n = 0;
    while (text != NULL && text[n] != NULL)
        n++;
    h->names = calloc((size_t)n + 1, sizeof *h->names);
    int rc = h->names != NULL ? 0 : -ENOMEM;
    for (int i = 0; rc == 0 && i < n; i++) {
        const char *equals = strchr(text[i], '=');
        if (equals == NULL || strncmp(text[i], "PMIX_RANK=", strlen("PMIX_RANK=")) == 0)
            continue;
        char *name = strndup(text[i], (size_t)(equals - text[i]));
        size_t at = 0;
        while (h->names[at] != NULL)
            at++;
        h->names[at] = name;
        rc = name != NULL ? add_variable(h, name, equals + 1, false) : -ENOMEM;
    }
    return rc;
}

static int add_number(struct pmix_host *h, int at, const char *name, int number)
{
    snprintf(h->numbers[at], NUMBER_BYTES, "%d", number);
    return add_variable(h, name, h->numbers[at], false);
}

/* Open MPI 4 has a list of launchers, and runs alone under any other: without a component that
 * decides, it uses PMIx. Like those of its list, ddprun binds ranks itself. Open MPI 5 ignores
 * these. */
static int add_of_launcher(struct pmix_host *h, int world_size)
{
    return add_variable(h, "OMPI_MCA_schizo", "^orte,slurm,flux,jsm,ompi", false)
               ?: add_variable(h, "OMPI_MCA_orte_externally_bound", "1", false)
               ?: add_variable(h, "OMPI_MCA_hwloc_base_binding_policy", "none", true)
               ?: add_number(h, 0, "OMPI_COMM_WORLD_SIZE", world_size)
               ?: add_number(h, 1, "OMPI_COMM_WORLD_LOCAL_SIZE", h->opts.n_local);
}

static int add_of_shared(struct pmix_host *h)
{
    static const char *const names[] = {
        "OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory",
        "OMPI_MCA_osc_sm_backing_directory", "OMPI_MCA_osc_rdma_backing_directory",
        "OMPI_MCA_osc_ucx_backing_directory"};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof names / sizeof *names; i++)
        rc = add_variable(h, names[i], h->shared, true);
    return rc;
}

/* Waiting ranks that do not yield make others wait for their time slice: a small all-reduce takes
 * 19 ms instead of 0.3. Open MPI 5 gets it by PMIx. */
static int add_of_crowd(struct pmix_host *h)
{
    return h->is_oversubscribed ? add_variable(h, "OMPI_MCA_mpi_oversubscribe", "1", true) : 0;
}

static void forget_variables(struct pmix_host *h)
{
    for (char **name = h->names; name != NULL && *name != NULL; name++)
        free(*name);
    free(h->names);
    h->names = NULL;
    h->n_variables = 0;
}

static int fill_variables(struct pmix_host *h, int world_size, struct co_error *err)
{
    int rc = add_of_libpmix(h) ?: add_of_launcher(h, world_size) ?: add_of_shared(h)
                 ?: add_of_crowd(h);
    return rc == 0
               ? 0
               : co_fail(err, rc, "cannot make the environment of the ranks: %s", strerror(-rc));
}

size_t pmix_host_variables(const struct pmix_host *h, const struct worker_variable **ret)
{
    *ret = h->variables;
    return h->n_variables;
}

/* --- generations ------------------------------------------------------------------------------ */

static int make_directory(const char *path, struct co_error *err)
{
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return co_fail(err, -errno, "cannot make directory '%s': %s", path, strerror(errno));
    return 0;
}

/* What killed ranks of the generation before have left is removed. */
static int renew_directories(struct pmix_host *h, uint32_t generation, struct co_error *err)
{
    co_tree_remove(h->session);
    co_tree_remove(h->shared);
    free(h->session);
    h->session = co_format("%s/%u", h->directory, generation);
    if (h->session == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    return make_directory(h->session, err) ?: make_directory(h->shared, err);
}

struct cpu_lists { /* the text of each rank's CPUs */
    char **of;     /* owned; NULL-terminated; NULL: not bound */
};

static void cpu_lists_fini(struct cpu_lists *c)
{
    for (char **text = c->of; text != NULL && *text != NULL; text++)
        free(*text);
    free(c->of);
}

static int print_cpus(const struct cpu_set *const *cpus, int n, struct cpu_lists *ret)
{
    enum {
        LIST_BYTES = 16 << 10
    }; /* 8192 CPUs, none next to another, take 20 KiB: cut, Open MPI
                                     * knows less */
    *ret = (struct cpu_lists){0};
    if (cpus == NULL)
        return 0;
    co_autofree char *text = malloc(LIST_BYTES);
    ret->of = calloc((size_t)n + 1, sizeof *ret->of);
    for (int i = 0; text != NULL && ret->of != NULL && i < n; i++)
        if ((ret->of[i] = strdup(cpu_set_print(cpus[i], text, LIST_BYTES))) == NULL)
            return -ENOMEM;
    return text != NULL && ret->of != NULL ? 0 : -ENOMEM;
}

static int begin_space(struct pmix_host *h, const struct pmix_host_place *place,
                       struct co_error *err)
{
    char nspace[PMIX_NAMES_SPACE_BYTES];
    const struct pmix_plugin_node node = {.name = h->node_name,
                                          .n_ranks = (uint32_t)h->opts.n_local};
    struct cpu_lists cpus;
    pmix_names_space(h->secret, place->generation, nspace);
    int rc = print_cpus(place->cpus, h->opts.n_local, &cpus);
    const struct pmix_plugin_job job = {.nspace = nspace,
                                        .nodes = &node,
                                        .n_nodes = 1,
                                        .appnum = place->appnum,
                                        .directory = h->session,
                                        .cpus = (const char *const *)cpus.of,
                                        .is_oversubscribed = h->is_oversubscribed};
    rc = rc == 0 ? h->plugin->begin(h->server, &job, err) : co_fail(err, rc, "out of memory");
    cpu_lists_fini(&cpus);
    return rc;
}

int pmix_host_begin(struct pmix_host *h, const struct pmix_host_place *place, struct co_error *err)
{
    h->plugin->end(h->server);
    forget_variables(h);
    memset(h->ranks, 0, (size_t)h->opts.n_local * sizeof h->ranks[0]);
    h->first_rank = place->first_rank;
    h->aborter = h->silent_end = NONE;
    h->n_gone = 0;
    return renew_directories(h, place->generation, err) ?: begin_space(h, place, err)
        ?: fill_variables(h, h->opts.n_local, err);
}

/* --- beginning and end ------------------------------------------------------------------------ */

static int draw_secret(struct pmix_host *h, struct co_error *err)
{
    uint8_t bits[SECRET_BYTES];
    if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        return co_fail(err, -EIO, "cannot get random bytes for PMIx");
    co_print_hex(bits, sizeof bits, h->secret);
    return 0;
}

static void name_node(struct pmix_host *h)
{
    enum { HOST_BYTES = 256, MARK_BYTES = 9 };
    char host[HOST_BYTES] = "", mark[MARK_BYTES] = "";
    gethostname(host, sizeof host - 1);
    if (h->opts.has_others)
        snprintf(mark, sizeof mark, "%s", h->secret);
    pmix_names_node(host, mark, h->node_name);
}

static int make_directories(struct pmix_host *h, struct co_error *err)
{
    h->directory = co_format("%s/pmix", h->opts.directory);
    h->shared = co_format("%s/mpi", h->opts.shared_directory);
    if (h->directory == NULL || h->shared == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    return make_directory(h->directory, err);
}

static int start_server(struct pmix_host *h, uv_loop_t *loop, struct co_error *err)
{
    const struct pmix_plugin_config config = {.node_name = h->node_name, .directory = h->directory};
    int rc = h->plugin->open(&config, &h->server, err);
    if (rc < 0)
        return rc;
    rc = uv_poll_init(loop, &h->poll, h->plugin->fd(h->server));
    h->has_poll = rc == 0;
    h->poll.data = h;
    if (rc == 0)
        rc = uv_poll_start(&h->poll, UV_READABLE, on_event);
    return rc == 0 ? 0 : co_fail(err, rc, "cannot watch a descriptor: %s", uv_strerror(rc));
}

int pmix_host_open(uv_loop_t *loop, const struct pmix_host_opts *opts, struct pmix_host **ret,
                   struct co_error *err)
{
    struct pmix_host *h = calloc(1, sizeof *h + (size_t)opts->n_local * sizeof h->ranks[0]);
    if (h == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    h->opts = *opts;
    h->aborter = h->silent_end = NONE;
    h->is_oversubscribed = opts->n_local > resources_n_cpus("", 0);
    int rc = pmix_load(&h->plugin, err) ?: draw_secret(h, err) ?: make_directories(h, err);
    if (rc == 0) {
        name_node(h);
        rc = start_server(h, loop, err);
    }
    if (rc < 0) {
        pmix_host_close(h);
        return rc;
    }
    *ret = h;
    return 0;
}

static void on_poll_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void pmix_host_close(struct pmix_host *h)
{
    if (h == NULL)
        return;
    if (h->has_poll)
        uv_close((uv_handle_t *)&h->poll, on_poll_closed); /* before its descriptor goes */
    if (h->server != NULL)
        h->plugin->close(h->server);
    forget_variables(h);
    co_tree_remove(h->directory);
    co_tree_remove(h->shared);
    free(h->directory);
    free(h->session);
    free(h->shared);
    explicit_bzero(h->secret, sizeof h->secret);
    if (!h->has_poll)
        free(h);
}
