/* group.c - joining and leaving the job; who is who. */
#include "worker-runtime/core/group.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/hash.h"
#include "common/parse.h"
#include "common/scope.h"
#include "group_open.h"
#include "recovery.h"
#include "segments/control.h"
#include "worker-runtime/core/backend.h"
#include "worker-runtime/core/call_marker.h"
#include "worker-runtime/core/collective.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/core/requests.h"
#include "worker-runtime/core/status.h"
#include "worker-runtime/device/device.h"
#include "worker-runtime/join/env.h"
#include "worker-runtime/join/node_join.h"
#include "worker-runtime/join/place.h"

#include <ddp/env.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_MS 600000u

static const char *get_variable(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

/* --- children --------------------------------------------------------------------------------- */

void group_adopt(struct ddp_group *g, struct group_child *child)
{
    child->next = g->children;
    child->link = &g->children;
    if (child->next != NULL)
        child->next->link = &child->next;
    g->children = child;
}

void group_disown(struct group_child *child)
{
    if (child->link == NULL)
        return;
    *child->link = child->next;
    if (child->next != NULL)
        child->next->link = child->link;
    child->link = NULL;
    child->next = NULL;
}

/* --- joining ---------------------------------------------------------------------------------- */

static int check_who(const struct env_who *who, struct co_error *err)
{
    if (who->local_world_size > CONTROL_MAX_LOCAL)
        return co_fail(err, -ENOTSUP, "%d ranks on one node are more than this version's %d",
                       who->local_world_size, CONTROL_MAX_LOCAL);
    return 0;
}

int group_read_options(const struct ddp_init_opts *opts, struct ddp_group *g, struct co_error *err)
{
    const char *timeout = getenv(DDP_ENV_TIMEOUT), *thread = getenv(DDP_ENV_PROGRESS_THREAD);
    g->timeout_ms = opts->timeout_ms != 0 ? opts->timeout_ms : DEFAULT_TIMEOUT_MS;
    if (opts->timeout_ms == 0 && timeout != NULL && timeout[0] != '\0') {
        int code = co_parse_duration_ms(DDP_ENV_TIMEOUT, timeout, &g->timeout_ms, err);
        if (code != 0)
            return -ENOEXEC;
        if (g->timeout_ms == 0)
            return co_fail(err, -ENOEXEC, "%s is 0: nothing could ever come in time",
                           DDP_ENV_TIMEOUT);
    }
    g->progress_thread = opts->progress_thread > 0;
    if (opts->progress_thread == 0 && thread != NULL && thread[0] != '\0') {
        if (strcmp(thread, "0") != 0 && strcmp(thread, "1") != 0)
            return co_fail(err, -ENOEXEC, "%s '%.100s' is neither 0 nor 1", DDP_ENV_PROGRESS_THREAD,
                           thread);
        g->progress_thread = thread[0] == '1';
    }
    return 0;
}

/* Where its back end says that this rank is. */
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

static void take_who(struct ddp_group *g, const struct env_who *who)
{
    g->rank = who->rank;
    g->world_size = who->world_size;
    g->local_rank = who->local_rank;
    g->local_world_size = who->local_world_size;
    g->node_rank = who->node_rank;
    g->n_nodes = who->n_nodes;
    g->generation = who->generation;
    g->store_port = who->store_port;
    memcpy(g->store_host, who->store_host, sizeof g->store_host);
}

/* Meet the other ranks. Who comes back has entered the job before. */
static int meet(struct ddp_group *g, struct env_who *who, uint64_t deadline_ms,
                struct co_error *err)
{
    struct recovery *r = g->recovery;
    const bool is_inside = r != NULL && r->is_inside;
    int code = is_inside ? 0 : process_enter(who->node_fd, (unsigned)who->local_rank, err);
    if (code != 0)
        return code;
    if (r != NULL)
        r->is_inside = true;
    code = group_open(g, who, r != NULL ? &r->again : NULL, deadline_ms, err);
    process_begin_generation(who->generation);
    if (code == -ECONNRESET &&
        (r == NULL || !r->again.may_follow)) /* while there is a way to tell */
        process_lose_peer();
    rt_set_rank(who->rank);
    take_who(g, who);
    if (code == 0)
        place_group(g);
    else if (r == NULL)
        process_leave(false);
    return code;
}

/* One that is alone meets nobody, unless others may come later while it lives on. */
static bool has_to_meet(const struct ddp_group *g, const struct env_who *who)
{
    const char *checkpoint_fd = getenv(DDP_ENV_CHECKPOINT_FD);
    if (who->world_size > 1)
        return true;
    return g->recovery != NULL && who->node_fd >= 0 &&
           (g->recovery->is_inside || (checkpoint_fd != NULL && checkpoint_fd[0] != '\0'));
}

static uint64_t start_deadline_ms(const struct ddp_init_opts *opts)
{
    return co_deadline_ms(opts->start_timeout_ms != 0 ? opts->start_timeout_ms
                                                      : DEFAULT_TIMEOUT_MS);
}

static int join(const struct ddp_init_opts *opts, struct ddp_group *g, struct co_error *err)
{
    struct env_who who;
    int code = env_read(get_variable, NULL, &who, err);
    if (code == 0)
        code = check_who(&who, err);
    if (code == 0)
        code = group_read_options(opts, g, err);
    if (code != 0)
        return code;
    if (node_join_is_socket(who.node_fd))
        fcntl(who.node_fd, F_SETFD, FD_CLOEXEC); /* the rank's, not its children's */
    else
        who.node_fd = -1;
    rt_set_rank(who.rank);
    take_who(g, &who);
    g->step_fd = -1;
    if (!has_to_meet(g, &who)) {
        g->step_fd = who.node_fd;
        return 0;
    }
    return meet(g, &who, start_deadline_ms(opts), err);
}

static int join_beside(const struct ddp_init_opts *opts, struct env_who *who, struct ddp_group *g,
                       struct co_error *err)
{
    int code = check_who(who, err);
    if (code == 0)
        code = group_read_options(opts, g, err);
    if (code == 0)
        code = process_stand_beside(err);
    if (code != 0)
        return code;
    take_who(g, who);
    g->world = g;
    g->step_fd = -1;
    g->is_apart = true;
    if (who->world_size == 1)
        return 0;
    code = group_open(g, who, NULL, start_deadline_ms(opts), err);
    if (code == 0)
        place_group(g);
    return code;
}

int group_enter(const struct ddp_init_opts *opts, struct recovery *recovery,
                struct ddp_group **ret_world, struct co_error *err)
{
    co_autofree struct ddp_group *g = calloc(1, sizeof *g);
    if (g == NULL)
        return co_fail(err, -ENOMEM, "no memory for a group");
    g->recovery = recovery;
    int code = join(opts, g, err);
    if (code == -EPROTO) /* among the pieces of the job, not among its collectives */
        code = -EIO;
    if (code != 0) {
        co_fail_in(err, "cannot join the job");
        return code;
    }
    g->world = g;
    if (g->line != NULL)
        rank_status_ready(&g->line->progress, co_now_ns());
    process_set_may_go_on(recovery != NULL && recovery->again.may_follow);
    *ret_world = co_take(&g);
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
        return rt_fail(DDP_EINVAL, "ddp_group_join: place and ret_group are needed");
    co_autofree struct ddp_group *g = calloc(1, sizeof *g);
    if (g == NULL)
        return rt_fail(DDP_ENOMEM, "no memory for a group");
    int code = place_read(place, &who, &err);
    if (code == 0)
        code = join_beside(opts != NULL ? opts : &defaults, &who, g, &err);
    if (code != 0) {
        co_fail_in(&err, "cannot join the group");
        return rt_return(code == -EPROTO ? -EIO : code, &err);
    }
    *ret_group = co_take(&g);
    return DDP_OK;
}

static void destroy_children(struct ddp_group *g)
{
    while (g->children != NULL) {
        struct group_child *child = g->children;
        group_disown(child);
        child->destroy(child);
    }
}

/* returns whether it had met others */
static bool take_leave(struct ddp_group *world)
{
    const bool has_met = (world->backend != NULL || world->alone != NULL) &&
                         !process_is_forked(); /* a child's group is not its own */
    destroy_children(world);
    requests_destroy(world->requests);
    if (!process_is_forked())
        device_close(world);
    if (has_met && world->backend != NULL)
        world->backend->ops->destroy(world->backend);
    else if (has_met)
        node_leave(world->alone);
    free(world);
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

void ddp_finalize(struct ddp_group *world)
{
    const bool is_beside = world != NULL && world->is_apart;
    if (world != NULL && take_leave(world) && !is_beside)
        process_leave(true);
}

/* --- groups of some of the ranks -------------------------------------------------------------- */

static void destroy_sub(struct group_child *child)
{
    ddp_group_destroy((struct ddp_group *)child);
}

/* What tells the group of a color from others: all its ranks have made the same calls. */
static uint16_t mark_of(const struct ddp_group *g, int color)
{
    uint64_t hash = co_hash_number(CO_HASH_START, g->mark);
    hash = co_hash_number(hash, g->n_calls);
    hash = co_hash_number(hash, (uint64_t)color);
    const uint16_t mark = (uint16_t)hash;
    return mark != 0 ? mark : 1; /* 0 is the world's */
}

const struct device_link *group_any_device(const struct ddp_group *g)
{
    const struct device_link *found = g->device != NULL ? g->device : g->world->device;
    const struct group_child *child = g->world->children;
    for (; found == NULL && child != NULL; child = child->next)
        if (child->destroy == destroy_sub)
            found = ((const struct ddp_group *)child)->device;
    return found;
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
                              .generation = g->generation,
                              .timeout_ms = g->timeout_ms,
                              .line = g->line,
                              .step_fd = -1,
                              .progress_thread = g->progress_thread,
                              .is_apart = g->is_apart};
}

static int split(struct ddp_group *g, int color, int key, struct backend **ret, int *ret_rank,
                 int *ret_n, struct co_error *err)
{
    static const struct collective what = {.kind = CALL_GROUP_SPLIT, .dtype = DDP_UINT8};
    call_marker_enter(g, &what, RANK_STATUS_WAITS);
    int code = g->backend->ops->split(g->backend, color, key, ret, ret_rank, ret_n, err);
    call_marker_leave(g, true);
    g->n_calls++; /* the back end has met twice */
    return code;
}

int ddp_group_split(struct ddp_group *g, int color, int key, struct ddp_group **ret_sub)
{
    struct co_error err = {0};
    struct backend *backend = NULL;
    int rank = 0, n = 1;
    int rc = collective_check_group("ddp_group_split", g);
    if (rc != DDP_OK)
        return rc;
    if (ret_sub == NULL)
        return rt_fail(DDP_EINVAL, "ddp_group_split: ret_sub is NULL");
    if (color < 0 && color != DDP_NO_COLOR)
        return rt_fail(DDP_EINVAL,
                       "ddp_group_split: color is %d, neither 0 or more nor DDP_NO_COLOR", color);
    co_autofree struct ddp_group *sub = calloc(1, sizeof *sub);
    if (sub == NULL)
        return rt_fail(DDP_ENOMEM, "no memory for a group");
    requests_finish(g->requests);
    int code = g->backend != NULL ? split(g, color, key, &backend, &rank, &n, &err) : 0;
    if (code != 0)
        return rt_return(code, &err);
    if (color == DDP_NO_COLOR) {
        *ret_sub = NULL;
        return device_split(g, color, key, NULL);
    }
    fill_sub(sub, g, rank, n);
    sub->backend = backend;
    if (backend != NULL && g->line != NULL) {
        sub->mark = mark_of(g, color);
        sub->place = rank_status_open(&g->line->progress);
    }
    place_group(sub);
    group_adopt(g->world, &sub->child);
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
    if (sub == NULL || sub->world == sub)
        return;
    group_disown(&sub->child);
    destroy_children(sub);
    requests_destroy(sub->requests);
    if (!process_is_forked())
        device_close(sub);
    if (sub->backend != NULL && !process_is_forked()) {
        if (sub->line != NULL)
            rank_status_close(&sub->line->progress, sub->place);
        sub->backend->ops->destroy(sub->backend);
    }
    free(sub);
}

int group_check_alone(const struct ddp_group *g, struct co_error *err)
{
    const struct control *c = g->world->control;
    if (c == NULL || control_abort_get(c).cause == CONTROL_OK)
        return 0;
    return co_fail(err, -ECONNRESET, "the job goes on in another generation");
}

void group_count_step(struct ddp_group *g, uint64_t began_ns)
{
    const uint64_t now_ns = co_now_ns();
    if (g->world == g)
        recovery_count_step(g);
    if (g->line != NULL)
        rank_status_step(&g->line->progress, now_ns, now_ns - began_ns);
    else if (g->step_fd >= 0)
        node_message_notify(g->step_fd, NODE_STEP, (unsigned)g->local_rank, 0);
    g->step_fd = -1; /* the first is enough */
}

/* --- asking ----------------------------------------------------------------------------------- */

int ddp_rank(const struct ddp_group *g)
{
    return g->rank;
}

int ddp_world_size(const struct ddp_group *g)
{
    return g->world_size;
}

int ddp_local_rank(const struct ddp_group *g)
{
    return g->local_rank;
}

int ddp_local_world_size(const struct ddp_group *g)
{
    return g->local_world_size;
}

int ddp_node_rank(const struct ddp_group *g)
{
    return g->node_rank;
}

int ddp_n_nodes(const struct ddp_group *g)
{
    return g->n_nodes;
}

uint64_t ddp_generation(const struct ddp_group *g)
{
    return g->generation;
}

/* --- memory ----------------------------------------------------------------------------------- */

/* A world that may become larger has its memory where it will be shared then. */
static int alloc_alone(const struct ddp_group *g, size_t bytes, void **ret, struct co_error *err)
{
    void *p;
    if (g->world->alone != NULL)
        return process_alloc(bytes, ret, err);
    if (posix_memalign(&p, 64, bytes > 0 ? bytes : 1) != 0)
        return co_fail(err, -ENOMEM, "no memory for %zu bytes", bytes);
    memset(p, 0, bytes);
    *ret = p;
    return 0;
}

/* It is the same for all groups, also for one of a single rank. */
static struct backend *memory_of(const struct ddp_group *g)
{
    return g->backend != NULL ? g->backend : g->world->backend;
}

int ddp_alloc(struct ddp_group *g, size_t bytes, void **ret_ptr)
{
    struct co_error err = {0};
    if (ret_ptr == NULL)
        return rt_fail(DDP_EINVAL, "ddp_alloc: ret_ptr is NULL");
    if (process_is_forked())
        return rt_fail(DDP_EINVAL, "ddp_alloc: this process was forked from the one that joined");
    struct backend *b = memory_of(g);
    return rt_return(b == NULL ? alloc_alone(g, bytes, ret_ptr, &err)
                               : b->ops->alloc(b, bytes, ret_ptr, &err),
                     &err);
}

void ddp_free(struct ddp_group *g, void *ptr)
{
    if (ptr == NULL || process_is_forked())
        return;
    struct backend *b = memory_of(g);
    if (b != NULL)
        b->ops->free(b, ptr);
    else if (!process_free(ptr)) /* of a world before this one, which had more ranks */
        free(ptr);
}
