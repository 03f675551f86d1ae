/* bucket.c - memory for gradients, and which of it a communicator knows.
 *
 * NCCL copies what it is given into buffers of its own, unless the memory is its own, too
 * (ncclMemAlloc()), and was registered with the communicator: then peers, switches and networks
 * reach it where it lies. A registration ends before its memory does, and before a communicator is
 * finalized, or kept.
 * One that is aborted drops what it knows by itself, behind the end of its kernels: to ask for it
 * before would be to wait for kernels that only the abort ends. */
#include "device.h"

#include "words.h"

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
    const void *at;
    void *handle;
};

/* --- memory ----------------------------------------------------------------------------------- */

/* What NCCL cannot give CUDA may have: then NCCL's copies go on to cost what they cost. */
static cudaError_t get_memory(struct bucket_block *b, bool for_nccl)
{
    struct co_error why;
    void *at = NULL;
    const ncclResult_t result = for_nccl ? ncclMemAlloc(&at, b->bytes) : ncclInvalidUsage;
    cudaError_t cuda = cudaSuccess;
    b->is_nccl = result == ncclSuccess;
    if (for_nccl && !b->is_nccl) {
        words_nccl_failed("ncclMemAlloc", result, NULL, &why);
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

static void add(struct device *d, struct bucket_block *b)
{
    pthread_mutex_lock(&d->mutex);
    b->next = d->blocks;
    d->blocks = b;
    pthread_mutex_unlock(&d->mutex);
}

int bucket_alloc(struct device *d, size_t bytes, bool for_nccl, void *stream, void **ret,
                 struct co_error *err)
{
    struct bucket_block *b = calloc(1, sizeof *b);
    if (b == NULL)
        return co_fail(err, -ENOMEM, "no memory for gradients");
    b->bytes = bytes;
    cudaError_t result = cudaSetDevice(d->index);
    if (result == cudaSuccess)
        result = get_memory(b, for_nccl);
    if (result == cudaSuccess)
        result = cudaMemsetAsync(b->at, 0, bytes, stream);
    if (result == cudaSuccess) {
        *ret = b->at;
        add(d, b);
        return 0;
    }
    words_cuda_failed("memory for gradients", result, err);
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

/* With the mutex held. One that a hand holds is lost, and its memory is not freed. */
static void forget(struct device_group *g, const void *at)
{
    struct bucket_mark **m = &g->marks;
    while (*m != NULL && (*m)->at != at)
        m = &(*m)->next;
    struct bucket_mark *found = *m;
    if (found == NULL)
        return;
    *m = found->next;
    if (g->comm != NULL && !g->is_out)
        ncclCommDeregister(g->comm, found->handle);
    free(found);
}

void bucket_free(struct device *d, void *at)
{
    pthread_mutex_lock(&d->mutex);
    struct bucket_block *b = at != NULL ? take_block(d, at) : NULL;
    for (struct device_group *g = d->first; b != NULL && g != NULL; g = g->next)
        forget(g, at);
    pthread_mutex_unlock(&d->mutex);
    if (b != NULL)
        give_memory(b);
    free(b);
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

static bool is_known(const struct device_group *g, const void *at)
{
    const struct bucket_mark *m = g->marks;
    while (m != NULL && m->at != at)
        m = m->next;
    return m != NULL;
}

static int refuse(const struct bucket_block *b, struct co_error *err)
{
    if (b == NULL)
        return co_fail(err, -ENOTSUP, "they are the program's own memory");
    return co_fail(err, -ENOTSUP, "%s",
                   b->why[0] != '\0' ? b->why : "they were allocated without nccl_memory");
}

static int mark(struct device_group *g, const struct bucket_block *b, struct co_error *err)
{
    struct bucket_mark *m = calloc(1, sizeof *m);
    if (m == NULL)
        return co_fail(err, -ENOTSUP, "there is no memory to note it down");
    const ncclResult_t result = ncclCommRegister(g->comm, b->at, b->bytes, &m->handle);
    if (result != ncclSuccess || m->handle == NULL) {
        free(m);
        if (result == ncclSuccess)
            return co_fail(err, -ENOTSUP, "ncclCommRegister does nothing (NCCL_LOCAL_REGISTER)");
        words_nccl_failed("ncclCommRegister", result, g->comm, err);
        return -ENOTSUP;
    }
    m->at = b->at;
    m->next = g->marks;
    g->marks = m;
    return 0;
}

int bucket_enlist(struct device_group *g, const void *at, struct co_error *err)
{
    int code = wait_check(g, err);
    if (code != 0)
        return code;
    pthread_mutex_lock(&g->device->mutex);
    const struct bucket_block *b = find_block(g->device, at);
    if (g->is_broken)
        code = co_fail(err, g->why.code, "%s", g->why.text);
    else if (b == NULL || !b->is_nccl)
        code = refuse(b, err);
    else if (!is_known(g, b->at))
        code = mark(g, b, err);
    pthread_mutex_unlock(&g->device->mutex);
    return code;
}

void bucket_delist(struct device_group *g, const void *at)
{
    pthread_mutex_lock(&g->device->mutex);
    const struct bucket_block *b = find_block(g->device, at);
    if (b != NULL)
        forget(g, b->at);
    pthread_mutex_unlock(&g->device->mutex);
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
        const ncclResult_t result =
            comm != NULL ? ncclCommDeregister(comm, m->handle) : ncclSuccess;
        first = first == ncclSuccess ? result : first;
        marks = m->next;
        free(m);
    }
    return first;
}

/* --- zeros, and the host ---------------------------------------------------------------------- */

int bucket_clear(struct device *d, void *at, size_t bytes, void *stream, struct co_error *err)
{
    (void)d;
    const cudaError_t result = bytes > 0 ? cudaMemsetAsync(at, 0, bytes, stream) : cudaSuccess;
    return result == cudaSuccess ? 0 : words_cuda_failed("zeros for gradients", result, err);
}

int bucket_alloc_host(struct device *d, size_t bytes, void **ret, struct co_error *err)
{
    void *at = NULL;
    cudaError_t result = cudaSetDevice(d->index);
    if (result == cudaSuccess)
        result = cudaHostAlloc(&at, bytes, cudaHostAllocDefault);
    if (result != cudaSuccess) {
        words_cuda_failed("pinned memory", result, err);
        return result == cudaErrorMemoryAllocation ? -ENOMEM : -EIO;
    }
    memset(at, 0, bytes);
    *ret = at;
    return 0;
}

void bucket_free_host(struct device *d, void *at)
{
    (void)d;
    cudaFreeHost(at);
}
