/* PMIx for the ranks of this node. libpmix answers them itself; it gathers what they bring to a
 * fence, and asks for the other nodes' part only if there are others. ddprun watches: on_event()
 * reads what ranks did (look_at_ranks()) and which fences have begun (serve_fences()), and
 * pmix_host_rank_gone() decides how the end of a rank counts. pmix_host_begin() begins a
 * generation: several nodes exchange their data first (pmix_nodes.c), then begin_space() makes the
 * namespace, and what Open MPI finds in the environment (pmix_variables.c).
 *
 * Invariant: no rank waits for what cannot arrive. MPI_Init is a fence over all ranks, which
 * libpmix does not end when one of them has exited without it: look_for_stuck() makes one that
 * waits fail, and on_gone() does if the rank that has exited was one of another node. */
#include "pmix_host.h"

#include "launcher/placement/placement.h"
#include "launcher/platform/resources.h"
#include "mpi_end.h"
#include "pmix_loader.h"
#include "pmix_nodes.h"
#include "pmix_variables.h"

#include "common/error.h"
#include "common/hash.h"
#include "common/parse.h"
#include "common/scope.h"
#include "common/tree.h"
#include "rendezvous/pmix/pmix_hello.h"
#include "rendezvous/pmix/pmix_names.h"
#include "rendezvous/pmix/pmix_plugin.h"

#include <ddp/env.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NONE = -1, SECRET_BYTES = 16 };

struct pmix_host_rank {
    struct pmix_plugin_rank seen; /* as of the last look */
    bool is_gone;
    bool is_made_to_fail; /* it waits for a rank that has ended */
};

struct pmix_host {
    struct pmix_host_opts opts;
    const struct pmix_plugin *plugin;  /* NULL: not loaded */
    struct pmix_plugin_server *server; /* owned, by the plug-in; NULL: not started */
    uv_loop_t *loop;                   /* borrowed */
    uv_poll_t poll;
    bool has_poll;
    char *directory;              /* owned; libpmix's */
    char *session;                /* owned; of a generation; NULL: none yet */
    char *shared;                 /* owned */
    struct pmix_hello own;        /* of this node, in this generation */
    struct pmix_host_place place; /* of this generation, without what was lent */
    char **cpus; /* owned; the text of each local rank's CPUs, NULL-terminated; NULL: not bound */
    struct pmix_nodes *nodes; /* owned; of this generation; NULL: this one is the only one */
    bool is_meeting;          /* the other nodes are awaited; no rank runs */
    uint64_t fence;           /* that this node has brought; 0: none */
    bool has_brought_gone;
    int n_gone;
    int aborter;    /* NONE, or local */
    int silent_end; /* a rank that has ended with 0, without MPI_Init; NONE */
    struct pmix_variables variables;
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
    return h->place.first_rank + local_rank;
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
    h->opts.on_abort(h->opts.arg, rank, mpi_end_of_abort(h->ranks[rank].seen.exit_code));
}

/* A rank that has ended enters no fence any more, and MPI_Init is one: one that is there fails.
 *
 * gone   its number in the job */
static void fail_waiting(struct pmix_host *h, int gone)
{
    for (int i = 0; h->aborter == NONE && i < h->opts.n_local; i++) {
        if (h->ranks[i].is_gone || h->ranks[i].seen.state != PMIX_PLUGIN_INSIDE)
            continue;
        note_text(h, "MPI: rank %d waits for rank %d, which has exited without calling MPI_Init",
                  global_rank(h, i), gone);
        h->ranks[i].is_made_to_fail = true;
        end_rank(h, i);
    }
}

/* Ranks of other nodes may wait as well. */
static void look_for_stuck(struct pmix_host *h)
{
    if (h->silent_end == NONE)
        return;
    const int gone = global_rank(h, h->silent_end);
    fail_waiting(h, gone);
    if (h->nodes != NULL && !h->has_brought_gone && h->fence == 0)
        pmix_nodes_bring_gone(h->nodes, (uint32_t)gone); /* without memory, they wait */
    h->has_brought_gone = true;
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

/* With a single node, all is there. */
static void answer_alone(struct pmix_host *h, const struct pmix_plugin_fence *fence)
{
    uint8_t *bytes = fence->len > 0 ? malloc(fence->len) : NULL;
    const bool failed = fence->len > 0 && bytes == NULL;
    if (bytes != NULL)
        memcpy(bytes, fence->bytes, fence->len);
    h->plugin->end_fence(h->server, fence->id, bytes, failed ? 0 : fence->len, failed);
}

/* One at a time: all nodes have them in the same order. */
static void serve_fences(struct pmix_host *h)
{
    struct pmix_plugin_fence fence;
    while (h->fence == 0 && h->plugin->take_fence(h->server, &fence)) {
        if (h->nodes == NULL) {
            answer_alone(h, &fence);
        } else if (pmix_nodes_bring_fence(h->nodes, fence.bytes, fence.len) == 0) {
            h->fence = fence.id;
        } else {
            note_text(h, "MPI: out of memory");
            h->plugin->end_fence(h->server, fence.id, NULL, 0, true);
        }
    }
}

static void on_fence(void *arg, uint8_t *bytes, size_t len)
{
    struct pmix_host *h = arg;
    const uint64_t id = h->fence;
    h->fence = 0;
    h->plugin->end_fence(h->server, id, bytes, len, false);
    serve_fences(h);
}

/* libpmix has no answer by which Open MPI would end its ranks in all versions. */
static void on_gone(void *arg, uint32_t rank)
{
    fail_waiting(arg, (int)rank);
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

int pmix_host_rank_gone(struct pmix_host *h, int local_rank, int status, bool was_signaled,
                        bool *ret_aborted)
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
                                .was_signaled = was_signaled};
    enum mpi_end_note note;
    *ret_aborted = end.has_aborted;
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

void pmix_host_answer_aborts(struct pmix_host *h)
{
    h->plugin->answer_aborts(h->server);
}

size_t pmix_host_variables(const struct pmix_host *h, const struct worker_variable **ret)
{
    *ret = h->variables.of;
    return h->variables.n;
}

bool pmix_host_is_meeting(const struct pmix_host *h)
{
    return h->is_meeting;
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

static void forget_cpus(struct pmix_host *h)
{
    for (char **text = h->cpus; text != NULL && *text != NULL; text++)
        free(*text);
    free(h->cpus);
    h->cpus = NULL;
}

static int print_cpus(struct pmix_host *h, const struct cpu_set *const *cpus)
{
    enum { LIST_BYTES = 16 << 10 }; /* of 8192 CPUs, none next to another, Open MPI knows less */
    const int n = h->opts.n_local;
    forget_cpus(h);
    if (cpus == NULL)
        return 0;
    co_autofree char *text = malloc(LIST_BYTES);
    h->cpus = calloc((size_t)n + 1, sizeof *h->cpus);
    for (int i = 0; text != NULL && h->cpus != NULL && i < n; i++)
        if ((h->cpus[i] = strdup(cpu_set_print(cpus[i], text, LIST_BYTES))) == NULL)
            return -ENOMEM;
    return text != NULL && h->cpus != NULL ? 0 : -ENOMEM;
}

static const struct pmix_hello *hello_of(const struct pmix_host *h, uint32_t node)
{
    return h->nodes != NULL ? pmix_nodes_get(h->nodes, node) : &h->own;
}

/* Waiting ranks are to yield if they outnumber the CPUs, those of other nodes of this machine
 * included. */
static bool is_crowded(const struct pmix_host *h)
{
    uint64_t n_here = 0;
    for (uint32_t i = 0; i < h->place.n_nodes; i++)
        n_here += hello_of(h, i)->machine == h->own.machine ? hello_of(h, i)->n_ranks : 0;
    return h->opts.n_local > resources_n_cpus("", 0) || n_here > (uint64_t)resources_affinity();
}

/* Which program each rank of the job has. ret   owned by the caller; NULL: there is one */
static int number_programs(const struct pmix_host *h, uint32_t world_size, int **ret)
{
    uint32_t rank = 0, most = 0;
    *ret = NULL;
    for (uint32_t i = 0; i < h->place.n_nodes; i++)
        most = hello_of(h, i)->n_programs > most ? hello_of(h, i)->n_programs : most;
    if (most < 2)
        return 0;
    int *numbers = calloc(world_size, sizeof *numbers);
    if (numbers == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < h->place.n_nodes; i++)
        for (uint32_t program = 0; program < hello_of(h, i)->n_programs; program++)
            for (uint32_t j = 0; j < hello_of(h, i)->ranks[program]; j++)
                numbers[rank++] = (int)program;
    *ret = numbers;
    return 0;
}

static void fill_nodes(const struct pmix_host *h, struct pmix_plugin_node *nodes,
                       uint32_t *ret_world_size)
{
    *ret_world_size = 0;
    for (uint32_t i = 0; i < h->place.n_nodes; i++) {
        const struct pmix_hello *hello = hello_of(h, i);
        nodes[i] = (struct pmix_plugin_node){.name = hello->name, .n_ranks = hello->n_ranks};
        *ret_world_size += hello->n_ranks;
    }
}

static int fill_variables(struct pmix_host *h, uint32_t world_size, bool is_oversubscribed,
                          struct co_error *err)
{
    const char *interface = getenv(DDP_ENV_SOCKET_IFNAME);
    const bool is_list = interface != NULL && *interface != '\0' && *interface != '^';
    const struct pmix_variables_opts opts = {.of_libpmix = h->plugin->variables(h->server),
                                             .shared_directory = h->shared,
                                             .interface =
                                                 is_list && h->nodes != NULL ? interface : NULL,
                                             .world_size = (int)world_size,
                                             .n_local = h->opts.n_local,
                                             .is_oversubscribed = is_oversubscribed};
    return pmix_variables_fill(&h->variables, &opts, err);
}

/* All nodes are known. Node 0 draws the secret of the namespace. */
static int begin_space(struct pmix_host *h, struct co_error *err)
{
    char nspace[PMIX_NAMES_SPACE_BYTES];
    co_autofree struct pmix_plugin_node *nodes = calloc(h->place.n_nodes, sizeof *nodes);
    co_autofree int *appnum = NULL;
    uint32_t world_size;
    if (nodes == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    fill_nodes(h, nodes, &world_size);
    if (world_size != h->place.world_size)
        return co_fail(err, -EPROTO, "the nodes have %u ranks in total, but the job has %u",
                       world_size, h->place.world_size);
    if (number_programs(h, world_size, &appnum) < 0)
        return co_fail(err, -ENOMEM, "out of memory");
    pmix_names_space(hello_of(h, 0)->secret, h->place.generation, nspace);
    const struct pmix_plugin_job job = {.nspace = nspace,
                                        .nodes = nodes,
                                        .n_nodes = h->place.n_nodes,
                                        .node = h->place.node,
                                        .appnum = appnum,
                                        .directory = h->session,
                                        .cpus = (const char *const *)h->cpus,
                                        .is_oversubscribed = is_crowded(h)};
    return h->plugin->begin(h->server, &job, err)
               ?: fill_variables(h, world_size, job.is_oversubscribed, err);
}

/* --- several nodes --- */

static void resume(struct pmix_host *h, int failure)
{
    h->is_meeting = false;
    h->opts.on_ready(h->opts.arg, failure);
}

static void on_met(void *arg)
{
    struct pmix_host *h = arg;
    struct co_error err;
    int rc = begin_space(h, &err);
    if (rc < 0)
        note_text(h, "MPI: %s", err.text);
    resume(h, rc);
}

/* The ranks that wait get an error. */
static void on_failed(void *arg, const char *text)
{
    struct pmix_host *h = arg;
    const uint64_t fence = h->fence;
    note_text(h, "MPI: %s", text);
    h->fence = 0;
    if (fence != 0)
        h->plugin->end_fence(h->server, fence, NULL, 0, true);
    if (h->is_meeting)
        resume(h, -EIO);
}

static int meet(struct pmix_host *h, const struct pmix_host_place *place, struct co_error *err)
{
    const struct pmix_nodes_opts opts = {.store_host = place->store_host,
                                         .store_port = place->store_port,
                                         .generation = place->generation,
                                         .node = place->node,
                                         .n_nodes = place->n_nodes,
                                         .own = &h->own,
                                         .on_met = on_met,
                                         .on_fence = on_fence,
                                         .on_gone = on_gone,
                                         .on_failed = on_failed,
                                         .arg = h};
    int rc = pmix_nodes_open(h->loop, &opts, &h->nodes, err);
    h->is_meeting = rc == 0;
    return rc;
}

/* --- the beginning --- */

static void count_programs(struct pmix_host *h, const int *appnum)
{
    struct pmix_hello *own = &h->own;
    own->n_ranks = (uint32_t)h->opts.n_local;
    own->n_programs = 1;
    memset(own->ranks, 0, sizeof own->ranks);
    for (int i = 0; i < h->opts.n_local; i++) {
        const uint32_t program = appnum != NULL ? (uint32_t)appnum[i] : 0;
        own->n_programs = program >= own->n_programs ? program + 1 : own->n_programs;
        own->ranks[program]++;
    }
}

int pmix_host_begin(struct pmix_host *h, const struct pmix_host_place *place, struct co_error *err)
{
    pmix_nodes_close(h->nodes);
    h->nodes = NULL;
    h->plugin->end(h->server);
    pmix_variables_fini(&h->variables);
    memset(h->ranks, 0, (size_t)h->opts.n_local * sizeof h->ranks[0]);
    h->aborter = h->silent_end = NONE;
    h->n_gone = 0;
    h->fence = 0;
    h->is_meeting = h->has_brought_gone = false;
    h->place = *place;
    h->place.store_host = NULL; /* was lent, as the next ones */
    h->place.appnum = NULL;
    h->place.cpus = NULL;
    count_programs(h, place->appnum);
    int rc = renew_directories(h, place->generation, err);
    if (rc == 0 && print_cpus(h, place->cpus) < 0)
        rc = co_fail(err, -ENOMEM, "out of memory");
    if (rc < 0)
        return rc;
    return place->n_nodes > 1 ? meet(h, place, err) : begin_space(h, err);
}

/* --- beginning and end ------------------------------------------------------------------------ */

static int draw_secret(struct pmix_host *h, struct co_error *err)
{
    uint8_t bits[SECRET_BYTES];
    if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        return co_fail(err, -EIO, "cannot get random bytes for PMIx");
    co_print_hex(bits, sizeof bits, h->own.secret);
    return 0;
}

/* Nodes of a job may share a host, and its CPUs. */
static void name_node(struct pmix_host *h)
{
    enum { HOST_BYTES = 256, MARK_BYTES = 9, BOOT_BYTES = 64 };
    char host[HOST_BYTES] = "", mark[MARK_BYTES] = "", boot[BOOT_BYTES];
    cpu_set_t cpus;
    gethostname(host, sizeof host - 1);
    if (h->opts.has_others)
        snprintf(mark, sizeof mark, "%s", h->own.secret);
    pmix_names_node(host, mark, h->own.name);
    co_autoclose_fd int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, boot, sizeof boot) : 0;
    CPU_ZERO(&cpus);
    sched_getaffinity(0, sizeof cpus, &cpus);
    h->own.machine = co_hash_bytes(CO_HASH_START, boot, n > 0 ? (size_t)n : 0);
    h->own.machine = co_hash_bytes(h->own.machine, &cpus, sizeof cpus);
}

static int make_directories(struct pmix_host *h, struct co_error *err)
{
    h->directory = co_format("%s/pmix", h->opts.directory);
    h->shared = co_format("%s/mpi", h->opts.shared_directory);
    if (h->directory == NULL || h->shared == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    return make_directory(h->directory, err);
}

static int start_server(struct pmix_host *h, struct co_error *err)
{
    const struct pmix_plugin_config config = {.node_name = h->own.name, .directory = h->directory};
    int rc = h->plugin->open(&config, &h->server, err);
    if (rc < 0)
        return rc;
    snprintf(h->own.library, sizeof h->own.library, "%s", h->plugin->library(h->server));
    rc = uv_poll_init(h->loop, &h->poll, h->plugin->fd(h->server));
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
    h->loop = loop;
    int rc = pmix_load(&h->plugin, err) ?: draw_secret(h, err) ?: make_directories(h, err);
    if (rc == 0) {
        name_node(h);
        rc = start_server(h, err);
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
    pmix_nodes_close(h->nodes);
    if (h->server != NULL)
        h->plugin->close(h->server);
    pmix_variables_fini(&h->variables);
    forget_cpus(h);
    co_tree_remove(h->directory);
    co_tree_remove(h->shared);
    free(h->directory);
    free(h->session);
    free(h->shared);
    explicit_bzero(h->own.secret, sizeof h->own.secret);
    if (!h->has_poll)
        free(h);
}
