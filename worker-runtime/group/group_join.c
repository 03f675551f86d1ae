/* group_join.c - joining and leaving the job, and groups of some of its ranks.
 *
 * ddp_init() and ddp_run() call group_enter(): join_job() reads the environment, meet_ranks()
 * enters the job and opens the back end of its group (group_open.c). ddp_group_join() forms a group
 * outside the job, join_beside(); ddp_group_split() one of some of the ranks. take_leave() undoes
 * all of it: children, queue, communicator and back end, in this order. Read group_enter() and
 * meet_ranks() first. */
#include "group_join.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/hash.h"
#include "common/parse.h"
#include "common/scope.h"
#include "recovery.h"
#include "segments/control.h"
#include "worker-runtime/core/backend.h"
#include "worker-runtime/core/call_marker.h"
#include "worker-runtime/core/env_value.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/core/requests.h"
#include "worker-runtime/device/device.h"
#include "worker-runtime/join/env.h"
#include "worker-runtime/shm/cpu_tuning.h"

#include <ddp/env.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define DEFAULT_TIMEOUT_MS 600000u

struct world *group_create_world(void)
{
    struct world *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    w->group.world = w;
    w->step_fd = -1;
    w->on_stream = &device_stream_ops;
    return w;
}

/* --- joining ---------------------------------------------------------------------------------- */

static int check_who(const struct env_who *who, struct co_error *err)
{
    if (who->local_world_size > CONTROL_MAX_LOCAL)
        return co_fail(err, -ENOTSUP, "%d ranks on one node exceed the maximum of %d",
                       who->local_world_size, CONTROL_MAX_LOCAL);
    return 0;
}

int group_read_options(const struct ddp_init_opts *opts, struct ddp_group *g, struct co_error *err)
{
    const char *timeout = getenv(DDP_ENV_TIMEOUT), *thread = getenv(DDP_ENV_PROGRESS_THREAD);
    struct cpu_tunings tunings;
    int code = env_value_check_all(err);
    if (code == 0)
        code = cpu_tuning_read(getenv(DDP_ENV_TUNING), &tunings, err);
    if (code != 0)
        return code;
    g->timeout_ms = opts->timeout_ms != 0 ? opts->timeout_ms : DEFAULT_TIMEOUT_MS;
    if (opts->timeout_ms == 0 && timeout != NULL && timeout[0] != '\0')
        co_parse_duration_ms(DDP_ENV_TIMEOUT, timeout, &g->timeout_ms, NULL);
    g->progress_thread = opts->progress_thread > 0;
    if (opts->progress_thread == 0 && thread != NULL)
        g->progress_thread = thread[0] == '1';
    return 0;
}

/* The place of this rank, from its back end. */
static void place_group(struct ddp_group *g)
{
    struct backend_place place;
    if (g->backend == NULL || g->backend->ops->place == NULL)
        return;
    g->backend->ops->place(g->backend, &place);
    g->local_rank = place.local_rank;
    g->local_world_size = place.local_world_size;
    g->node_rank = place.node_rank;
    g->n_nodes = place.n_nodes;
}

static void take_who(struct world *w, const struct env_who *who)
{
    struct ddp_group *g = &w->group;
    g->rank = who->rank;
    g->world_size = who->world_size;
    g->local_rank = who->local_rank;
    g->local_world_size = who->local_world_size;
    g->node_rank = who->node_rank;
    g->n_nodes = who->n_nodes;
    w->generation = who->generation;
    w->store_port = who->store_port;
    memcpy(w->store_host, who->store_host, sizeof w->store_host);
}

/* Rendezvous with the other ranks. A rank that comes back has entered the job before. */
static int meet_ranks(struct world *w, struct env_who *who, uint64_t deadline_ms,
                      struct co_error *err)
{
    struct recovery *r = w->recovery;
    const bool is_inside = r != NULL && r->is_inside;
    int code = is_inside ? 0 : process_enter(who->node_fd, (unsigned)who->local_rank, err);
    if (code != 0)
        return code;
    if (r != NULL)
        r->is_inside = true;
    code = group_open(w, who, r != NULL ? &r->again : NULL, deadline_ms, err);
    process_begin_generation(who->generation);
    if (code == -ECONNRESET &&
        (r == NULL || !r->again.may_follow)) /* as long as the reason can be reported */
        process_lose_peer();
    rt_set_rank(who->rank);
    take_who(w, who);
    if (code == 0)
        place_group(&w->group);
    else if (r == NULL)
        process_leave(false);
    return code;
}

/* A rank that is alone skips the rendezvous, unless others may join later while it lives on. */
static bool has_to_meet(const struct world *w, const struct env_who *who)
{
    const char *checkpoint_fd = getenv(DDP_ENV_CHECKPOINT_FD);
    if (who->world_size > 1)
        return true;
    return w->recovery != NULL && who->node_fd >= 0 &&
           (w->recovery->is_inside || (checkpoint_fd != NULL && checkpoint_fd[0] != '\0'));
}

static uint64_t start_deadline_ms(const struct ddp_init_opts *opts)
{
    return co_deadline_ms(opts->start_timeout_ms != 0 ? opts->start_timeout_ms
                                                      : DEFAULT_TIMEOUT_MS);
}

static int join_job(const struct ddp_init_opts *opts, struct world *w, struct co_error *err)
{
    struct env_who who;
    int code = env_read(env_getenv, NULL, &who, err);
    if (code == 0)
        code = check_who(&who, err);
    if (code == 0)
        code = group_read_options(opts, &w->group, err);
    if (code != 0)
        return code;
    if (node_join_is_socket(who.node_fd))
        fcntl(who.node_fd, F_SETFD, FD_CLOEXEC); /* the rank's, not its children's */
    else
        who.node_fd = -1;
    rt_set_rank(who.rank);
    take_who(w, &who);
    if (!has_to_meet(w, &who)) {
        w->step_fd = who.node_fd;
        return 0;
    }
    return meet_ranks(w, &who, start_deadline_ms(opts), err);
}

static int join_beside(const struct ddp_init_opts *opts, struct env_who *who, struct world *w,
                       struct co_error *err)
{
    int code = check_who(who, err);
    if (code == 0)
        code = group_read_options(opts, &w->group, err);
    if (code == 0)
        code = process_stand_beside(err);
    if (code != 0)
        return code;
    take_who(w, who);
    w->group.is_apart = true;
    if (who->world_size == 1)
        return 0;
    code = group_open(w, who, NULL, start_deadline_ms(opts), err);
    if (code == 0)
        place_group(&w->group);
    return code;
}

int group_enter(const struct ddp_init_opts *opts, struct recovery *recovery,
                struct ddp_group **ret_world, struct co_error *err)
{
    co_autofree struct world *w = group_create_world();
    if (w == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    w->recovery = recovery;
    int code = join_job(opts, w, err);
    if (code == -EPROTO) /* among the pieces of the job, not among its collectives */
        code = -EIO;
    if (code != 0) {
        co_fail_in(err, "%s: cannot join the job", recovery != NULL ? "ddp_run" : "ddp_init");
        return code;
    }
    if (w->line != NULL)
        rank_status_ready(&w->line->progress, co_now_ns());
    process_set_may_go_on(recovery != NULL && recovery->again.may_follow);
    *ret_world = &co_take(&w)->group;
    return 0;
}

int ddp_group_join(const struct ddp_rank_info *place, const struct ddp_init_opts *opts,
                   struct ddp_group **ret_group)
{
    static const struct ddp_init_opts defaults;
    struct co_error err = {0};
    struct env_who who;
    rt_set_apart(true);
    if (place == NULL || ret_group == NULL)
        return rt_fail(DDP_EINVAL, "ddp_group_join: info or ret_group is NULL");
    co_autofree struct world *w = group_create_world();
    if (w == NULL)
        return rt_fail(DDP_ENOMEM, "out of memory");
    int code = env_from_info(place, &who, &err);
    if (code != 0)
        return rt_return_from("ddp_group_join", code, &err);
    code = join_beside(opts != NULL ? opts : &defaults, &who, w, &err);
    if (code != 0)
        return rt_return_from("ddp_group_join: cannot join the group",
                              code == -EPROTO ? -EIO : code, &err);
    *ret_group = &co_take(&w)->group;
    return DDP_OK;
}

/* returns whether it had peers */
static bool take_leave(struct ddp_group *world)
{
    struct world *w = world->world;
    const bool has_met = (world->backend != NULL || w->alone != NULL) &&
                         !process_is_forked(); /* a child's group is not its own */
    group_destroy_children(world);
    requests_destroy(world->requests);
    if (!process_is_forked())
        device_close(world);
    if (has_met && world->backend != NULL)
        world->backend->ops->destroy(world->backend);
    else if (has_met)
        node_leave(w->alone);
    free(w);
    return has_met;
}

int ddp_init(const struct ddp_init_opts *opts, struct ddp_group **ret_world)
{
    static const struct ddp_init_opts defaults;
    struct co_error err = {0};
    struct ddp_group *world;
    if (ret_world == NULL)
        return rt_fail(DDP_EINVAL, "ddp_init: ret_world is NULL");
    int code = group_enter(opts != NULL ? opts : &defaults, NULL, &world, &err);
    int rc = code == 0 ? device_begin(world) : rt_return(code, &err);
    if (code == 0 && rc != DDP_OK)
        ddp_finalize(world);
    if (rc == DDP_OK)
        *ret_world = world;
    return rc;
}

void group_lend(struct ddp_group *world)
{
    world->world->is_lent = true;
}

int group_check_result(const char *name, const struct ddp_group *world, int rc)
{
    char what[64];
    if (rc > 0)
        return rt_fail(DDP_EINVAL, "%s: the function returned %d: return 0 or a negative status",
                       name, rc);
    if (rc == 0 && world->world->was_finalized)
        return rt_fail(DDP_EINVAL,
                       "%s: the function called ddp_finalize(), which had no effect: remove the "
                       "call, because %s does it after the function returns",
                       name, name);
    snprintf(what, sizeof what, "%s: the function", name);
    return rc == 0 ? 0 : rt_fail_returned(what, rc);
}

void group_close(struct ddp_group *world)
{
    if (world != NULL)
        take_leave(world);
}

void group_leave(struct ddp_group *world)
{
    take_leave(world);
    process_set_may_go_on(false);
}

void group_finalize(struct ddp_group *world)
{
    const bool is_beside = world != NULL && world->is_apart;
    if (world != NULL && take_leave(world) && !is_beside)
        process_leave(true);
}

void ddp_finalize(struct ddp_group *world)
{
    if (world != NULL && !group_is_world(world))
        ddp_group_destroy(world);
    else if (world != NULL && world->world->is_lent)
        world->world->was_finalized = true;
    else
        group_finalize(world);
}

/* --- groups of some of the ranks -------------------------------------------------------------- */

static void destroy_sub(struct group_child *child)
{
    ddp_group_destroy((struct ddp_group *)child);
}

/* What distinguishes the group of a color from others: all its ranks have made the same calls. */
static uint16_t mark_of(const struct ddp_group *g, int color)
{
    uint64_t hash = co_hash_number(CO_HASH_START, g->mark);
    hash = co_hash_number(hash, g->n_calls);
    hash = co_hash_number(hash, (uint64_t)color);
    const uint16_t mark = (uint16_t)hash;
    return mark != 0 ? mark : 1; /* 0 is the world's */
}

/* A group of which this rank is number `rank` of `n`. */
static void fill_sub(struct ddp_group *sub, const struct ddp_group *g, int rank, int n)
{
    *sub = (struct ddp_group){.child.destroy = destroy_sub,
                              .world = g->world,
                              .rank = rank,
                              .world_size = n,
                              .local_rank = rank,
                              .local_world_size = n,
                              .n_nodes = 1,
                              .timeout_ms = g->timeout_ms,
                              .call_timeout_ms = g->call_timeout_ms,
                              .progress_thread = g->progress_thread,
                              .is_apart = g->is_apart};
}

static int split_backend(struct ddp_group *g, int color, int key, struct backend **ret,
                         int *ret_rank, int *ret_n, struct co_error *err)
{
    static const struct collective what = {.kind = CALL_GROUP_SPLIT, .dtype = DDP_UINT8};
    call_marker_enter(g, &what, RANK_STATUS_WAITS);
    int code = g->backend->ops->split(g->backend, color, key, ret, ret_rank, ret_n, err);
    call_marker_leave(g, true);
    g->n_calls++; /* the back end has synchronized twice */
    return code;
}

int ddp_group_split(struct ddp_group *g, int color, int key, struct ddp_group **ret_sub)
{
    struct co_error err = {0};
    struct backend *backend = NULL;
    int rank = 0, n = 1;
    int rc = group_check("ddp_group_split", g);
    if (rc != DDP_OK)
        return rc;
    if (ret_sub == NULL)
        return rt_fail(DDP_EINVAL, "ddp_group_split: ret_sub is NULL");
    if (color < 0 && color != DDP_NO_COLOR)
        return rt_fail(
            DDP_EINVAL,
            "ddp_group_split: invalid value %d for color: expected 0 or more, or DDP_NO_COLOR",
            color);
    co_autofree struct ddp_group *sub = calloc(1, sizeof *sub);
    if (sub == NULL)
        return rt_fail(DDP_ENOMEM, "out of memory");
    requests_finish(g->requests);
    int code = g->backend != NULL ? split_backend(g, color, key, &backend, &rank, &n, &err) : 0;
    if (code != 0)
        return rt_return(code, &err);
    if (color == DDP_NO_COLOR) {
        *ret_sub = NULL;
        return device_split(g, color, key, NULL);
    }
    fill_sub(sub, g, rank, n);
    sub->backend = backend;
    if (backend != NULL && g->world->line != NULL) {
        sub->mark = mark_of(g, color);
        sub->place = rank_status_open(&g->world->line->progress);
    }
    place_group(sub);
    group_adopt(&g->world->group, &sub->child);
    struct ddp_group *made = co_take(&sub); /* of the world from here on */
    rc = device_split(g, color, key, made);
    if (rc == DDP_OK)
        *ret_sub = made;
    else
        ddp_group_destroy(made);
    return rc;
}

void ddp_group_destroy(struct ddp_group *sub)
{
    if (sub == NULL || group_is_world(sub))
        return;
    group_disown(&sub->child);
    group_destroy_children(sub);
    requests_destroy(sub->requests);
    if (!process_is_forked())
        device_close(sub);
    if (sub->backend != NULL && !process_is_forked()) {
        if (sub->world->line != NULL)
            rank_status_close(&sub->world->line->progress, sub->place);
        sub->backend->ops->destroy(sub->backend);
    }
    free(sub);
}
