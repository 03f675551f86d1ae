/* nccl_memory.c - memory of the double's ncclMemAlloc(), and the communicators that have registered
 * it, until it is deregistered or the communicator is aborted; a forgotten one is reported. */
#include "comm.h"

#include "double.h"
#include "faults.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

struct mark { /* what a handle points to */
    struct mark *next;
    ncclComm_t comm;
    const char *at;
    size_t bytes;
};

struct block {
    struct block *next;
    char *at;
    size_t bytes;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct mark *marks;
static struct block *blocks;

DOUBLE_EXPORT ncclResult_t ncclMemAlloc(void **ret, size_t bytes)
{
    struct block *b = calloc(1, sizeof *b);
    if (fault_is(FAULT_NO_MEMORY, 0, NULL) || cudaMalloc(ret, bytes) != cudaSuccess) {
        free(b);
        return ncclUnhandledCudaError;
    }
    double_log("ncclMemAlloc");
    pthread_mutex_lock(&mutex);
    *b = (struct block){blocks, *ret, bytes};
    blocks = b;
    pthread_mutex_unlock(&mutex);
    return ncclSuccess;
}

/* returns NULL: it is none */
static struct block *find(const char *at, size_t bytes)
{
    struct block *b = blocks;
    while (b != NULL && (at < b->at || at + bytes > b->at + b->bytes))
        b = b->next;
    return b;
}

DOUBLE_EXPORT ncclResult_t ncclMemFree(void *at)
{
    double_log("ncclMemFree");
    pthread_mutex_lock(&mutex);
    struct block **b = &blocks;
    while (*b != NULL && (*b)->at != at)
        b = &(*b)->next;
    struct block *found = *b;
    if (found != NULL)
        *b = found->next;
    for (const struct mark *m = marks; m != NULL; m = m->next)
        if (m->at == at)
            double_report("ncclMemFree frees what is registered");
    pthread_mutex_unlock(&mutex);
    if (found == NULL) {
        double_report("ncclMemFree of what is not of ncclMemAlloc");
        return ncclInvalidArgument;
    }
    free(found);
    return cudaFree(at) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

/* returns NULL if out of memory */
static struct mark *remember(ncclComm_t comm, const void *at, size_t bytes)
{
    struct mark *m = calloc(1, sizeof *m);
    pthread_mutex_lock(&mutex);
    if (find(at, bytes) == NULL)
        double_report("ncclCommRegister of memory that is not of ncclMemAlloc");
    if (m != NULL) {
        *m = (struct mark){marks, comm, at, bytes};
        marks = m;
    }
    pthread_mutex_unlock(&mutex);
    return m;
}

static bool forget(ncclComm_t comm, const void *handle)
{
    pthread_mutex_lock(&mutex);
    struct mark **m = &marks;
    while (*m != NULL && *m != handle)
        m = &(*m)->next;
    struct mark *found = *m;
    if (found != NULL)
        *m = found->next;
    pthread_mutex_unlock(&mutex);
    if (found == NULL || found->comm != comm)
        double_report("ncclCommDeregister of what is not registered");
    free(found);
    return found != NULL;
}

static void hang_if(enum fault_kind kind, enum fault_counter counter)
{
    for (const unsigned number = fault_count(counter); fault_is(kind, number, NULL);)
        pause();
}

DOUBLE_EXPORT ncclResult_t ncclCommRegister(const ncclComm_t comm, void *at, size_t bytes,
                                            void **ret)
{
    if (!comm_check(comm, "ncclCommRegister", false))
        return ncclInvalidUsage;
    if (fault_is(FAULT_NO_REGISTER, 0, NULL))
        return ncclSystemError;
    atomic_fetch_add(&comm->n_inside, 1);
    double_log("ncclCommRegister");
    hang_if(FAULT_REGISTER_HANG, FAULT_REGISTERS);
    *ret = remember(comm, at, bytes);
    atomic_fetch_sub(&comm->n_inside, 1);
    return *ret != NULL ? ncclSuccess : ncclSystemError;
}

DOUBLE_EXPORT ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    if (comm_check(comm, "ncclCommDeregister", true))
        atomic_fetch_add(&comm->n_inside, 1);
    else
        return ncclInvalidUsage;
    double_log("ncclCommDeregister");
    hang_if(FAULT_DEREGISTER_HANG, FAULT_DEREGISTERS);
    const bool is_known = forget(comm, handle);
    atomic_fetch_sub(&comm->n_inside, 1);
    return is_known ? ncclSuccess : ncclInvalidArgument;
}

unsigned comm_forget_memory(ncclComm_t comm)
{
    unsigned n = 0;
    pthread_mutex_lock(&mutex);
    for (struct mark **m = &marks; *m != NULL;) {
        struct mark *one = *m;
        if (one->comm != comm) {
            m = &one->next;
            continue;
        }
        *m = one->next;
        free(one);
        n++;
    }
    pthread_mutex_unlock(&mutex);
    return n;
}
