/* group_open.c - from the environment to a back end.
 *
 * group_open() makes, one after the other, the user segment of the process, the node, join_node(),
 * its back end, make_local(), and, where the job has several nodes, what connects them,
 * connect_nodes(): net_join(), start_watch(), make_net(). undo_opening() takes apart what a
 * failure leaves. */
#include "group_join.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "segments/control.h"
#include "worker-runtime/arithmetic/reduce.h"
#include "worker-runtime/core/backend.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/core/user_segment.h"
#include "worker-runtime/join/env.h"
#include "worker-runtime/join/net_join.h"
#include "worker-runtime/join/node_join.h"
#include "worker-runtime/shm/backend_cpu.h"
#include "worker-runtime/shm/cpu_tuning.h"
#include "worker-runtime/shm/transport_shm.h"
#include "worker-runtime/tcp/backend_net.h"
#include "worker-runtime/tcp/net_watch.h"

#include <ddp/env.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CAUSE_MS = 2000, /* from the end of a connection until why is known here, at most */
    LOOK_MS = 2,
};

struct opening { /* made one after the other, and unmade the other way round */
    struct env_who *who;
    struct node_again *again;
    uint64_t deadline_ms, timeout_ms;
    const struct reduce_kernels *kernels;
    struct cpu_tunings tunings;
    struct user_segment *own; /* the process's */
    struct node *node;
    struct transport_shm *shm;
    struct backend *local; /* has shm; NULL: alone on a node of several */
    struct net_join *join;
    struct net_watch *watch;
};

/* A name for the job if the environment has none: the process that started all ranks. */
static void name_after_starter(struct env_who *who)
{
    struct ucred starter;
    socklen_t size = sizeof starter;
    if (who->pmi_fd >= 0 && /* srun has named the job itself */
        getsockopt(who->pmi_fd, SOL_SOCKET, SO_PEERCRED, &starter, &size) == 0 && starter.pid > 0)
        snprintf(who->job, sizeof who->job, "hydra %d", starter.pid);
    else
        snprintf(who->job, sizeof who->job, "parent %d", getppid());
}

/* --- this node -------------------------------------------------------------------------------- */

static int join_node(struct opening *o, struct co_error *err)
{
    struct env_who named = *o->who;
    const char *hint = "";
    if (named.job[0] == '\0') {
        name_after_starter(&named);
        hint = "ranks that different shells start find each other by the same " DDP_ENV_JOB_ID;
    }
    struct node_join_opts join = {.local_rank = (unsigned)named.local_rank,
                                  .n_local = (unsigned)named.local_world_size,
                                  .generation = named.generation,
                                  .node_fd = named.node_fd,
                                  .job = named.job,
                                  .hint = hint,
                                  .terms = cpu_tuning_digest(&o->tunings),
                                  .terms_name = DDP_ENV_TUNING,
                                  .deadline_ms = o->deadline_ms,
                                  .again = o->again};
    return node_join(&join, o->own, &o->node, err);
}

/* The environment is that of the process's start. */
static void take_place(struct env_who *who, const struct node_again *again, uint32_t generation)
{
    if (again == NULL || !again->may_follow)
        return;
    who->generation = generation;
    if (again->n_local == 0)
        return;
    who->local_rank = (int)again->local_rank;
    who->local_world_size = (int)again->n_local;
    who->rank = (int)again->place.rank;
    who->world_size = (int)again->place.world_size;
    who->node_rank = (int)again->place.node_rank;
    who->n_nodes = (int)again->place.n_nodes;
    who->store_port = (uint16_t)again->place.port;
    memcpy(who->store_host, again->store_host, sizeof who->store_host);
}

static void on_alone_destroy(void *node)
{
    node_leave(node);
}

static int make_local(struct opening *o, bool is_alone, struct co_error *err)
{
    const char *cma = getenv(DDP_ENV_CMA);
    struct node *node = o->node;
    struct transport_shm_opts transport = {.control = node->control,
                                           .spin = node->n_local <= node->n_cpus,
                                           .timeout_ms = o->timeout_ms};
    int code = transport_shm_create_world(&transport, node->local_rank, &o->shm, err);
    if (code != 0 || node->n_local == 1)
        return code;
    struct backend_cpu_opts cpu = {.shm = o->shm,
                                   .own = o->own,
                                   .user = node->user,
                                   .kernels = o->kernels,
                                   .tunings = &o->tunings,
                                   .may_cma = cma == NULL || strcmp(cma, "0") != 0};
    if (is_alone) {
        cpu.on_destroy = on_alone_destroy;
        cpu.arg = node;
    }
    return backend_cpu_create(&cpu, &o->local, err);
}

/* --- the other nodes -------------------------------------------------------------------------- */

/* Each rank watches one of every other node, or, where that has more ranks, several, so that every
 * rank is watched from every node. returns how many */
static unsigned list_watched(const struct net_map *m, unsigned *ret)
{
    const unsigned n_own = net_map_n_local(m, m->node);
    unsigned n = 0;
    for (unsigned k = 0; k < m->n_nodes; k++) {
        const unsigned n_other = net_map_n_local(m, k), most = n_own > n_other ? n_own : n_other;
        for (unsigned i = m->local; k != m->node && i < most; i += n_own)
            ret[n++] = m->first[k] + i % n_other;
    }
    return n;
}

/* What a rendezvous watches, where another generation can follow. Without one a rendezvous that has
 * all it needs succeeds, even if ranks that were faster have left by now. */
static const struct control *ends_meetings(const struct opening *o)
{
    return o->again != NULL && o->again->may_follow ? o->node->control : NULL;
}

static int start_watch(struct opening *o, const struct net_member *member, struct co_error *err)
{
    const struct net_map *m = &o->join->map;
    int *listener = &o->join->listener[NET_WATCH];
    unsigned *peer = calloc(m->n, sizeof *peer);
    if (peer == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    struct net_watch_opts watch = {.links = {.rank = m->position,
                                             .n = m->n,
                                             .member = member,
                                             .channel = NET_WATCH,
                                             .cookie = o->join->cookie,
                                             .key = net_join_key(o->join),
                                             .listener = *listener,
                                             .timeout_ms = o->timeout_ms,
                                             .control = ends_meetings(o)},
                                   .peer = peer,
                                   .n_peers = list_watched(m, peer),
                                   .control = o->node->control,
                                   .local_rank = o->node->local_rank,
                                   .shm = o->shm};
    *listener = -1; /* handed over */
    int code = net_watch_create(&watch, o->deadline_ms, &o->watch, err);
    free(peer);
    return code;
}

/* What is left when the back end is gone. */
static void on_nodes_destroy(void *arg)
{
    struct opening *o = arg;
    if (o->local == NULL)
        transport_shm_destroy(o->shm);
    net_join_destroy(o->join);
    node_leave(o->node);
    free(o);
}

static int make_net(struct opening *o, struct net_member *member, struct backend **ret,
                    struct co_error *err)
{
    int *listener = o->join->listener;
    struct net_tuning tuning = NET_TUNING_DEFAULT;
    tuning.network = o->join->network;
    struct opening *kept = malloc(sizeof *kept);
    if (kept == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    *kept = *o;
    struct backend_net_opts net = {.local = o->local,
                                   .map = &o->join->map,
                                   .member = member,
                                   .listener = listener,
                                   .watch = o->watch,
                                   .control = ends_meetings(o),
                                   .line = &o->node->control->line[o->node->local_rank],
                                   .owns_watch = true,
                                   .own = o->own,
                                   .kernels = o->kernels,
                                   .tuning = &tuning,
                                   .cookie = o->join->cookie,
                                   .key = net_join_key(o->join),
                                   .spin = o->node->n_local <= o->node->n_cpus,
                                   .timeout_ms = o->timeout_ms,
                                   .deadline_ms = o->deadline_ms,
                                   .on_destroy = on_nodes_destroy,
                                   .arg = kept};
    int code = backend_net_create(&net, ret, err);
    listener[NET_DATA] = listener[NET_MESSAGES] = -1; /* taken in any case */
    if (code != 0)
        free(kept);
    return code;
}

/* Another node's rank, or its store, is gone: usually ddprun soon reports that the generation is
 * over, and then that is the cause, not this rank. */
static int find_cause(const struct opening *o, int code, struct co_error *err)
{
    const struct control *c = ends_meetings(o);
    const bool is_of_others = code == -EIO || code == -EPIPE || code == -ECONNRESET ||
                              code == -ECONNREFUSED || code == -EHOSTUNREACH;
    const uint64_t deadline_ms = co_deadline_ms(is_of_others ? CAUSE_MS : 0);
    if (c == NULL)
        return code;
    while (control_abort_get(c).cause == CONTROL_OK && co_left_ms(deadline_ms) != 0)
        poll(NULL, 0, LOOK_MS);
    const unsigned cause = control_abort_get(c).cause;
    if (cause == CONTROL_OK)
        return code;
    if (cause == CONTROL_REPORTED)
        return net_watch_judge_failure(o->shm, code, err);
    return co_fail(err, -ECONNRESET, "the generation ended before all nodes had joined");
}

static int connect_nodes(struct opening *o, struct backend **ret, struct co_error *err)
{
    const bool is_counted = (o->again != NULL && o->again->may_follow) || /* by generations */
                            o->who->is_named_once;
    const struct net_join_opts join = {.who = o->who,
                                       .local = o->local,
                                       .network = o->tunings.network,
                                       .control = ends_meetings(o),
                                       .number = is_counted ? 0 : process_count_join()};
    int code = net_join(&join, o->deadline_ms, &o->join, err);
    if (code != 0)
        return code;
    transport_shm_name_ranks(o->shm, (struct transport_shm_names){.world_rank = o->join->world_rank,
                                                                  .where = o->join->where});
    struct net_member *member = co_take(&o->join->member);
    code = start_watch(o, member, err);
    if (code == 0)
        code = make_net(o, member, ret, err);
    if (code != 0 && o->watch != NULL)
        net_watch_tell_failure(o->watch, code, err);
    if (code != 0) {
        net_watch_destroy(o->watch);
        o->watch = NULL;
        free(member);
    }
    return code;
}

/* ---------------------------------------------------------------------------------------------- */

static void undo_opening(struct opening *o)
{
    if (o->local != NULL)
        o->local->ops->destroy(o->local);
    else
        transport_shm_destroy(o->shm);
    net_join_destroy(o->join);
    node_leave(o->node);
}

int group_open(struct world *w, struct env_who *who, struct node_again *again, uint64_t deadline_ms,
               struct co_error *err)
{
    struct opening o = {
        .who = who, .again = again, .deadline_ms = deadline_ms, .timeout_ms = w->group.timeout_ms};
    bool is_known;
    int code = cpu_tuning_read(getenv(DDP_ENV_TUNING), &o.tunings, err);
    o.kernels = reduce_choose(getenv(DDP_ENV_SIMD), &is_known);
    if (code == 0)
        code = process_user_segment((unsigned)who->local_world_size, &o.own, err);
    if (code == 0)
        code = join_node(&o, err);
    if (code == 0)
        take_place(who, again, o.node->generation);
    if (code == 0 && !w->group.is_apart)
        process_begin_generation(who->generation);
    if (code == 0 && who->world_size == 1) {
        w->line = &o.node->control->line[o.node->local_rank];
        w->alone = o.node;
        w->control = w->segment = o.node->control;
        return 0;
    }
    const bool is_alone = who->local_world_size == who->world_size;
    if (code == 0)
        code = make_local(&o, is_alone, err);
    if (code == 0 && is_alone)
        w->group.backend = o.local;
    else if (code == 0 && (code = connect_nodes(&o, &w->group.backend, err)) != 0)
        code = find_cause(&o, code, err);
    if (code != 0) {
        undo_opening(&o);
        return code;
    }
    w->line = &o.node->control->line[o.node->local_rank];
    w->control = ends_meetings(&o);
    w->segment = o.node->control;
    w->group.place = rank_status_open(&w->line->progress);
    return 0;
}
