/* bucket.c - memory for gradients, and which of it a communicator knows.
 *
 * NCCL copies what it is given into buffers of its own, unless the memory also comes from NCCL
 * (ncclMemAlloc()), and was registered with the communicator: then peers, switches and networks
 * reach it where it lies. A registration ends before its memory does, and before a communicator is
 * finalized, or kept.
 * A communicator that is aborted drops its registrations by itself, after the end of its kernels:
 * to request it before would be to wait for kernels that only the abort ends.
 *
 * Both calls may take their time, in the driver, or with a peer's proxy that does not answer: a
 * helper call makes them without the device's mutex, and they are counted (n_calls), so that no
 * other thread frees the communicator during them, and a thread that breaks it does not wait for
 * them. */
#include "device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bucket_block { /* of bucket_alloc() */
    struct bucket_block *next;
    char *at;
    size_t bytes;
    bool is_nccl;  /* of ncclMemAlloc() */
    char why[256]; /* it is not, where that was asked for */
};

struct bucket_mark { /* a block that a communicator knows */
    struct bucket_mark *next;
    struct device_group *group; /* borrowed, as comm; once it is taken out */
    ncclComm_t comm;
    const void *at;
    void *handle;
};

/* --- memory ----------------------------------------------------------------------------------- */

/* CUDA may provide what NCCL cannot: then NCCL still makes its copies. */
static cudaError_t get_memory(struct bucket_block *b, bool for_nccl)
{
    struct co_error why;
    void *at = NULL;
    const ncclResult_t result = for_nccl ? ncclMemAlloc(&at, b->bytes) : ncclInvalidUsage;
    cudaError_t cuda = cudaSuccess;
    b->is_nccl = result == ncclSuccess;
    if (for_nccl && !b->is_nccl) {
        nccl_map_nccl_failed("ncclMemAlloc", result, NULL, &why);
        snprintf(b->why, sizeof b->why, "%s", why.text);
        cudaGetLastError();
    }
    if (!b->is_nccl)
        cuda = cudaMalloc(&at, b->bytes);
    b->at = at;
    return cuda;
}

static void give_memory(const struct bucket_block *b)
{
    if (b->is_nccl)
        ncclMemFree(b->at);
    else
        cudaFree(b->at);
}

int bucket_alloc(struct device *d, size_t bytes, bool for_nccl, void *stream, void **ret,
                 struct co_error *err)
{
    struct bucket_block *b = calloc(1, sizeof *b);
    if (b == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    b->bytes = bytes;
    cudaError_t result = cudaSetDevice(d->index);
    if (result == cudaSuccess)
        result = get_memory(b, for_nccl);
    if (result == cudaSuccess)
        result = cudaMemsetAsync(b->at, 0, bytes, stream);
    if (result == cudaSuccess) {
        *ret = b->at;
        pthread_mutex_lock(&d->mutex);
        b->next = d->blocks;
        d->blocks = b;
        pthread_mutex_unlock(&d->mutex);
        return 0;
    }
    nccl_map_cuda("memory for gradients", result, err);
    give_memory(b);
    free(b);
    return result == cudaErrorMemoryAllocation ? -ENOMEM : -EIO;
}

/* With the mutex held: out of the list. returns NULL: nothing was allocated there */
static struct bucket_block *take_block(struct device *d, const void *at)
{
    struct bucket_block **b = &d->blocks;
    while (*b != NULL && (*b)->at != at)
        b = &(*b)->next;
    struct bucket_block *found = *b;
    if (found != NULL)
        *b = found->next;
    return found;
}

/* CUDA waits for all kernels where it frees memory: what they do not end for stays. */
static bool can_free(struct device *d)
{
    bool can = true;
    pthread_mutex_lock(&d->mutex);
    for (const struct device_group *g = d->first; g != NULL; g = g->next)
        can = can && !g->is_undrained;
    pthread_mutex_unlock(&d->mutex);
    return can;
}

/* --- what NCCL knows -------------------------------------------------------------------------- */

/* With the mutex held: that in which the address lies. */
static const struct bucket_block *find_block(const struct device *d, const void *at)
{
    const struct bucket_block *b = d->blocks;
    while (b != NULL && ((const char *)at < b->at || (const char *)at >= b->at + b->bytes))
        b = b->next;
    return b;
}

/* Where the list of marks has that of an address; its end if it has none. */
static struct bucket_mark **find_mark(struct device_group *g, const void *at)
{
    struct bucket_mark **m = &g->marks;
    while (*m != NULL && (*m)->at != at)
        m = &(*m)->next;
    return m;
}

struct telling { /* for a hand */
    ncclComm_t comm;
    struct bucket_mark *mark;
    char *at; /* of one that is to be known */
    size_t bytes;
};

static int make_known(const void *arg)
{
    const struct telling *c = arg;
    return ncclCommRegister(c->comm, c->at, c->bytes, &c->mark->handle);
}

static int make_unknown(const void *arg)
{
    const struct telling *c = arg;
    return ncclCommDeregister(c->comm, c->mark->handle);
}

/* For a group of which n_calls was counted. After that the group belongs to another thread again:
 * not to be touched.
 *
 * returns   0; -ENOMEM nothing was done; -ETIMEDOUT it continues, with what c points to */
static int run_call(struct device_group *g, int (*work)(const void *arg), const struct telling *c,
                    int *ret_result)
{
    const int code = helper_call_run(g->device->index, work, c, sizeof *c,
                                     g->device->abort_timeout_ms, ret_result);
    if (code == -ETIMEDOUT)
        g->is_out = true; /* first: a thread that waits for n_calls looks at it then */
    atomic_fetch_sub(&g->n_calls, 1);
    return code;
}

/* With the mutex held: into a list for forget_all(), where there is something to be called.
 * returns whether the memory may go then: not where a hand holds the communicator */
static bool take_mark(struct device_group *g, const void *at, struct bucket_mark **list)
{
    struct bucket_mark **m = find_mark(g, at), *found = *m;
    if (found == NULL)
        return true;
    *m = found->next;
    if (g->comm == NULL || g->is_out) {
        free(found);
        return g->comm == NULL;
    }
    atomic_fetch_add(&g->n_calls, 1);
    found->group = g;
    found->comm = g->comm;
    found->next = *list;
    *list = found;
    return true;
}

/* returns whether the memory may go: all has come back */
static bool forget_all(struct bucket_mark *list)
{
    bool has_all = true;
    while (list != NULL) {
        struct bucket_mark *m = list;
        const struct telling c = {.comm = m->comm, .mark = m};
        int unused;
        list = m->next;
        const int code = run_call(m->group, make_unknown, &c, &unused);
        has_all &= code == 0;
        if (code != -ETIMEDOUT)
            free(m);
    }
    return has_all;
}

/* After the call: its result.
 * returns   0; -ENOTSUP */
static int check_known(const struct device_group *g, int code, int result,
                       const struct bucket_mark *m, struct co_error *err)
{
    if (code != 0)
        return co_fail(err, -ENOTSUP, "out of memory");
    if (result == ncclSuccess && m->handle != NULL)
        return 0;
    if (result == ncclSuccess)
        return co_fail(err, -ENOTSUP, "ncclCommRegister has no effect (check NCCL_LOCAL_REGISTER)");
    nccl_map_nccl_failed("ncclCommRegister", (ncclResult_t)result, g->comm, err);
    return -ENOTSUP;
}

/* Note it down. Of a communicator that has gone meanwhile there is nothing to note. */
static int mark_keep(struct device_group *g, struct bucket_mark *m, struct co_error *err)
{
    int code = 0;
    pthread_mutex_lock(&g->device->mutex);
    if (g->is_broken)
        code = co_fail(err, g->why.code, "%s", g->why.text);
    const bool is_there = g->comm != NULL;
    if (is_there) {
        m->next = g->marks;
        g->marks = m;
    }
    pthread_mutex_unlock(&g->device->mutex);
    if (!is_there)
        free(m);
    return code;
}

static int block_mark(struct device_group *g, const struct telling *c, struct co_error *err)
{
    struct bucket_mark *m = c->mark;
    int result = ncclSuccess;
    int code = run_call(g, make_known, c, &result);
    if (code == -ETIMEDOUT) {
        co_fail(err, -ECONNRESET, "timed out waiting for ncclCommRegister");
        return device_break(g, COMM_LATE, -ECONNRESET, err);
    }
    code = check_known(g, code, result, m, err);
    if (code == 0)
        return mark_keep(g, m, err);
    free(m);
    return code;
}

/* With the mutex held: whether there is memory to register, and which.
 * returns   0, and c->comm is NULL if NCCL knows it or the communicator has gone; -ENOTSUP;
 *           -errno of a broken group */
static int mark_prepare(struct device_group *g, const void *at, struct telling *c,
                        struct co_error *err)
{
    const struct bucket_block *b = find_block(g->device, at);
    if (g->is_broken)
        return co_fail(err, g->why.code, "%s", g->why.text);
    if (b == NULL || !b->is_nccl)
        return co_fail(err, -ENOTSUP, "%s",
                       b == NULL           ? "they are in memory that the program allocated"
                       : b->why[0] != '\0' ? b->why
                                           : "they were allocated without nccl_memory");
    if (g->comm == NULL || *find_mark(g, b->at) != NULL)
        return 0;
    c->mark = calloc(1, sizeof *c->mark);
    if (c->mark == NULL)
        return co_fail(err, -ENOTSUP, "out of memory");
    c->mark->at = c->at = b->at;
    c->bytes = b->bytes;
    c->comm = g->comm;
    atomic_fetch_add(&g->n_calls, 1);
    return 0;
}

int bucket_enlist(struct device_group *g, const void *at, struct co_error *err)
{
    struct telling c = {0};
    int code = wait_check(g, err);
    if (code != 0)
        return code;
    pthread_mutex_lock(&g->device->mutex);
    code = mark_prepare(g, at, &c, err);
    pthread_mutex_unlock(&g->device->mutex);
    return code == 0 && c.comm != NULL ? block_mark(g, &c, err) : code;
}

void bucket_delist(struct device_group *g, const void *at)
{
    struct bucket_mark *marks = NULL;
    pthread_mutex_lock(&g->device->mutex);
    const struct bucket_block *b = find_block(g->device, at);
    if (b != NULL)
        take_mark(g, b->at, &marks);
    pthread_mutex_unlock(&g->device->mutex);
    forget_all(marks);
}

/* What a communicator may still reach is not freed. */
void bucket_free(struct device *d, void *at)
{
    struct bucket_mark *marks = NULL;
    bool may_go = true;
    if (!can_free(d))
        return;
    pthread_mutex_lock(&d->mutex);
    struct bucket_block *b = at != NULL ? take_block(d, at) : NULL;
    for (struct device_group *g = d->first; b != NULL && g != NULL; g = g->next)
        may_go &= take_mark(g, at, &marks);
    pthread_mutex_unlock(&d->mutex);
    may_go &= forget_all(marks);
    if (b != NULL && may_go)
        give_memory(b);
    free(b);
}

struct bucket_mark *bucket_take_marks(struct device_group *g)
{
    pthread_mutex_lock(&g->device->mutex);
    struct bucket_mark *marks = g->marks;
    g->marks = NULL;
    pthread_mutex_unlock(&g->device->mutex);
    return marks;
}

int bucket_drop_marks(struct bucket_mark *marks, ncclComm_t comm)
{
    ncclResult_t first = ncclSuccess;
    while (marks != NULL) {
        struct bucket_mark *m = marks;
        if (comm != NULL)
            nccl_map_keep_first(&first, ncclCommDeregister(comm, m->handle));
        marks = m->next;
        free(m);
    }
    return first;
}

/* --- zeros, and the host ---------------------------------------------------------------------- */

int bucket_clear(struct device *d, void *at, size_t bytes, void *stream, struct co_error *err)
{
    cudaError_t result = cudaSetDevice(d->index);
    if (result == cudaSuccess && bytes > 0)
        result = cudaMemsetAsync(at, 0, bytes, stream);
    return nccl_map_cuda("zeros for gradients", result, err);
}

int bucket_alloc_host(struct device *d, size_t bytes, void **ret, struct co_error *err)
{
    void *at = NULL;
    cudaError_t result = cudaSetDevice(d->index);
    if (result == cudaSuccess)
        result = cudaHostAlloc(&at, bytes, cudaHostAllocDefault);
    if (result != cudaSuccess) {
        nccl_map_cuda("pinned memory", result, err);
        return result == cudaErrorMemoryAllocation ? -ENOMEM : -EIO;
    }
    memset(at, 0, bytes);
    *ret = at;
    return 0;
}

void bucket_free_host(struct device *d, void *at)
{
    if (can_free(d))
        cudaFreeHost(at);
}
