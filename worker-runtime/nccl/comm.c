/* comm.c - a communicator from its making to its end. */
#include "device.h"

#include "common/clock.h"
#include "common/scope.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 5 }; /* at the job, while a hand is at work */

/* --- beginning -------------------------------------------------------------------------------- */

enum begin_how { BEGIN_NEW, BEGIN_SHRUNK, BEGIN_SPLIT };
static const char *const begin_names[] = {"creating a communicator", "shrinking a communicator",
                                          "splitting a communicator"};

struct begin { /* what a hand needs of its own */
    enum begin_how how;
    struct device_group *group, *parent; /* parent: NULL of a new one */
    int color, key;                      /* of a split */
    int n_words;                         /* ids of a new one, ranks that a shrunk one lost */
    ncclUniqueId words[];                /* the latter are ints */
};

static int begin_comm(const void *arg)
{
    const struct begin *b = arg;
    struct device_group *g = b->group;
    const struct newer *newer = &g->device->newer;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0; /* no call waits for peers, and each may be ended at any time */
    if (b->how == BEGIN_SPLIT)
        return ncclCommSplit(b->parent->comm, b->color, b->key, &g->comm, &config);
    if (b->how == BEGIN_SHRUNK)
        return newer->ncclCommShrink(b->parent->comm, (int *)(void *)b->words, b->n_words, &g->comm,
                                     &config, NCCL_SHRINK_DEFAULT);
    if (b->n_words > 1)
        return newer->ncclCommInitRankScalable(&g->comm, g->n, g->rank, b->n_words,
                                               (ncclUniqueId *)b->words, &config);
    return ncclCommInitRankConfig(&g->comm, g->n, b->words[0], g->rank, &config);
}

/* By a hand, while the job is looked at: where NCCL_COMM_BLOCKING=1 makes the call a long one, or
 * the device has to be woken up first.
 * returns   0; as device_break() */
static int begin_by_hand(struct device_group *g, const struct begin *b, size_t bytes,
                         struct co_error *err)
{
    const char *what = begin_names[b->how];
    const uint64_t deadline_ms = co_deadline_ms(g->timeout_ms);
    int result = ncclSuccess, job = 0, code = -ETIMEDOUT;
    struct helper_call *h = helper_call_start(g->device->index, begin_comm, b, bytes);
    if (h == NULL) {
        co_fail(err, -ENOMEM, "%s: out of memory", what);
        return device_break(g, COMM_FAILED, -ENOMEM, err);
    }
    while (code != 0 && job == 0 && co_left_ms(deadline_ms) != 0) {
        code = helper_call_wait(h, LOOK_MS, &result);
        job = code != 0 ? g->job.look(g->job.arg, err) : 0;
    }
    if (code != 0) /* it gets its time to come back, so that the rest can be freed */
        g->is_out = helper_call_wait(h, g->device->abort_timeout_ms, &result) != 0;
    helper_call_leave(h);
    if (job != 0)
        return device_break(g, COMM_BROKEN, job, err);
    if (code != 0) {
        co_fail(err, -ECONNRESET, "timed out waiting for %s", what);
        return device_break(g, COMM_LATE, -ECONNRESET, err);
    }
    if (result == ncclSuccess || result == ncclInProgress)
        return 0;
    return device_break(g, COMM_FAILED,
                        nccl_map_nccl_failed(what, (ncclResult_t)result, g->comm, err), err);
}

/* --- making ----------------------------------------------------------------------------------- */

static struct device_group *new_group(struct device *d, const struct device_make *how)
{
    struct device_group *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    g->holds = graph_holds_new();
    if (g->holds == NULL) {
        free(g);
        return NULL;
    }
    g->device = d;
    g->rank = how->rank;
    g->n = how->n;
    g->job = how->job;
    g->timeout_ms = how->timeout_ms;
    g->life.can_revoke = d->newer.ncclCommRevoke != NULL && d->newer.ncclCommShrink != NULL;
    pthread_mutex_lock(&d->mutex);
    g->next = d->first;
    d->first = g;
    d->has_made = true;
    pthread_mutex_unlock(&d->mutex);
    device_step(g, COMM_MAKE);
    return g;
}

/* One that NCCL still knows the address of stays, in the list. */
static void group_drop(struct device_group *g)
{
    if (g->is_out || g->life.state != COMM_GONE)
        return;
    pthread_mutex_lock(&g->device->mutex);
    struct device_group **at = &g->device->first;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    pthread_mutex_unlock(&g->device->mutex);
    side_stream_close(&g->averages);
    side_stream_close(&g->detour);
    bucket_drop_marks(bucket_take_marks(g), NULL);
    graph_holds_leave(g->holds);
    free(g);
}

/* The end of one that may be revoked. NCCL does not wait for graphs that hold a revoked one: it is
 * kept until no graph does. */
static void group_end(struct device_group *g)
{
    pthread_mutex_lock(&g->device->mutex);
    g->is_given_back = g->life.state == COMM_REVOKED && graph_holds_any(g->holds);
    g->is_out |= g->is_given_back && g->is_undrained; /* nothing ends its kernels then */
    const bool stays = g->is_given_back && !g->is_out;
    pthread_mutex_unlock(&g->device->mutex);
    if (stays)
        return;
    device_step(g, COMM_CLOSE);
    group_drop(g);
}

/* With the mutex held. returns one that was kept for graphs, and no graph holds any more; NULL */
static struct device_group *find_released(const struct device *d)
{
    struct device_group *g = d->first;
    while (g != NULL && (!g->is_given_back || graph_holds_any(g->holds)))
        g = g->next;
    if (g != NULL)
        g->is_given_back = false; /* the caller's */
    return g;
}

static void end_released(struct device *d)
{
    struct device_group *g;
    do {
        pthread_mutex_lock(&d->mutex);
        g = find_released(d);
        pthread_mutex_unlock(&d->mutex);
        if (g != NULL)
            group_end(g);
    } while (g != NULL);
}

/* Begin, and wait until it is there. A child is there when its parent is at rest.
 * returns   0; as device_break(), and *g is gone */
static int group_make(struct device_group **g, const struct begin *b, size_t bytes,
                      struct co_error *err)
{
    const char *what = begin_names[b->how];
    int code = begin_by_hand(*g, b, bytes, err);
    if (code == 0 && b->parent != NULL)
        code = wait_settled(*g, b->parent, what, err);
    if (code == 0 && (*g)->comm == NULL && b->parent != NULL && b->color >= 0) {
        co_fail(err, -EIO, "%s: NCCL returned no communicator", what);
        code = device_break(*g, COMM_FAILED, -EIO, err);
    }
    if (code == 0)
        code = wait_settled(*g, *g, what, err);
    if (code == 0) {
        device_step(*g, COMM_DONE);
        return 0;
    }
    (*g)->is_out |= b->parent != NULL && (*g)->comm == NULL; /* it may come late, and is written */
    group_drop(*g);
    *g = NULL;
    return code;
}

/* Replace the one that is kept. By any thread: groups are closed by the thread that used them, and
 * describe() looks.
 *
 * g         taken over; NULL: none is kept from now on
 * returns   what was kept, handed over; NULL */
static struct device_group *swap_kept(struct device *d, struct device_group *g)
{
    pthread_mutex_lock(&d->mutex);
    struct device_group *before = d->kept;
    d->kept = g;
    pthread_mutex_unlock(&d->mutex);
    return before;
}

/* Of the world before; nothing runs on it. NULL is fine. */
static void drop_old(struct device_group *old)
{
    if (old == NULL)
        return;
    group_end(old);
}

/* A new one of the ids, or one that `from` is shrunk to: what this rank reported that it has kept,
 * or NULL, if it has gone since.
 * returns   0; as device_break(), and *g is gone */
static int make_of(struct device_group **g, struct device_group *from,
                   const struct device_make *how, struct co_error *err)
{
    const bool shrinks = how->way == DEVICE_SHRINK;
    const size_t n_words = (size_t)(shrinks ? how->n_lost : how->n_ids);
    const size_t bytes = n_words * (shrinks ? sizeof(int) : sizeof(ncclUniqueId));
    co_autofree struct begin *b = calloc(1, sizeof *b + bytes);
    int code = b == NULL ? co_fail(err, -ENOMEM, "out of memory") : 0;
    if (code == 0 && shrinks && from == NULL)
        code = co_fail(err, -EIO, "shrinking a communicator: another thread has destroyed it");
    if (code != 0) {
        code = device_break(*g, COMM_FAILED, code, err);
        group_drop(*g);
        *g = NULL;
        return code;
    }
    b->how = shrinks ? BEGIN_SHRUNK : BEGIN_NEW;
    (*g)->is_new = !shrinks;
    b->group = *g;
    b->parent = shrinks ? from : NULL;
    b->n_words = (int)n_words;
    memcpy(b->words, shrinks ? (const void *)how->lost : how->ids, bytes);
    return group_make(g, b, sizeof *b + bytes, err);
}

int comm_make(struct device *d, const struct device_make *how, struct device_group **ret,
              struct co_error *err)
{
    end_released(d); /* their memory may be needed */
    struct device_group *g = new_group(d, how);
    if (g == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    g->tag = how->tag;
    g->may_be_kept = how->may_be_kept;
    struct device_group *old =
        how->way == DEVICE_SHRINK || how->may_be_kept ? swap_kept(d, NULL) : NULL;
    if (how->way == DEVICE_NEW)
        drop_old(old); /* its memory may be needed */
    const int code = make_of(&g, old, how, err);
    if (how->way == DEVICE_SHRINK)
        drop_old(old);
    if (code == 0)
        *ret = g;
    return code != 0 ? code : device_check(d, err);
}

int comm_split(struct device_group *from, int color, int key, const struct device_make *how,
               struct device_group **ret, struct co_error *err)
{
    int code = wait_check(from, err);
    if (code != 0)
        return code;
    struct device_group *g = new_group(from->device, how);
    if (g == NULL) {
        co_fail(err, -ENOMEM, "out of memory");
        return device_break(from, COMM_FAILED, -ENOMEM, err);
    }
    const struct begin b = {.how = BEGIN_SPLIT,
                            .group = g,
                            .parent = from,
                            .color = color >= 0 ? color : NCCL_SPLIT_NOCOLOR,
                            .key = key};
    code = group_make(&g, &b, sizeof b, err);
    if (code == 0 && color < 0) {
        comm_close(g);
        g = NULL;
    }
    if (code == 0)
        *ret = g;
    return code;
}

/* --- its end ---------------------------------------------------------------------------------- */

struct ending { /* for a hand */
    struct device_group *group;
    struct bucket_mark *marks; /* owned */
};

static int let_go(const void *arg)
{
    const struct ending *e = arg;
    return bucket_drop_marks(e->marks, e->group->comm);
}

/* What cannot be deregistered is not a reason to stop. */
static int nccl_finish(const void *arg)
{
    const struct ending *e = arg;
    let_go(e);
    return ncclCommFinalize(e->group->comm);
}

static int nccl_destroy(const void *arg)
{
    const struct ending *e = arg;
    return ncclCommDestroy(e->group->comm);
}

/* returns COMM_DONE where NCCL has taken the call; what became of it else */
static enum comm_event by_hand(struct device_group *g, int (*work)(const void *arg))
{
    int result = ncclSuccess, code = -ETIMEDOUT;
    const struct ending e = {g, bucket_take_marks(g)}; /* without them no thread begins a call */
    device_wait_unused(g, co_deadline_ms(g->device->abort_timeout_ms));
    if (!g->is_out)
        code = helper_call_run(g->device->index, work, &e, sizeof e, g->device->abort_timeout_ms,
                               &result);
    else
        bucket_drop_marks(e.marks, NULL);
    if (code == -ENOMEM) /* nothing was done */
        bucket_drop_marks(e.marks, NULL);
    if (code == -ETIMEDOUT) {
        g->is_out = true;
        return COMM_LATE;
    }
    if (code == 0 && (result == ncclSuccess || result == ncclInProgress))
        return COMM_DONE;
    return COMM_FAILED;
}

/* In good order: what was begun is finished. Peers may have left by now, and are not asked. */
static void end_well(struct device_group *g)
{
    device_step(g, COMM_CLOSE);
    if (g->comm == NULL) { /* of a split that this rank is not in */
        device_step(g, COMM_DONE);
        return;
    }
    enum comm_event e = by_hand(g, nccl_finish);
    if (e == COMM_DONE)
        e = device_wait_rest(g->comm, "ncclCommFinalize",
                             co_deadline_ms(g->device->abort_timeout_ms));
    if (e == COMM_DONE)
        e = by_hand(g, nccl_destroy);
    device_step(g, e);
}

void comm_close(struct device_group *g)
{
    struct co_error err;
    if (g == NULL)
        return;
    const int code = g->is_broken ? 0 : g->job.look(g->job.arg, &err);
    if (code != 0)
        device_break(g, COMM_BROKEN, code, &err);
    if (g->life.state == COMM_READY)
        end_well(g);
    const bool is_idle = g->is_out || g->life.state == COMM_STUCK || average_drain(g);
    /* also if it is aborted then: NCCL drops its own registrations after its own end */
    if (g->life.state == COMM_REVOKED && is_idle && by_hand(g, let_go) == COMM_DONE &&
        g->may_be_kept) {
        drop_old(swap_kept(g->device, g));
        return;
    }
    group_end(g);
}
