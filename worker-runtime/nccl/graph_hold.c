/* graph_hold.c - graphs that hold calls on a communicator.
 *
 * NCCL's abort waits for such graphs, but not if the communicator was revoked: then it frees what a
 * graph uses when it is destroyed. So graphs are counted here: each capture of a call gives its
 * graph an object of CUDA, which CUDA destroys with the graph and with all that was made of it. */
#include "device.h"

#include <stdlib.h>

struct graph_holds { /* owned by all that it counts; the last one frees it */
    atomic_uint n;   /* graphs, and the group */
};

static void CUDART_CB holds_drop(void *arg)
{
    struct graph_holds *h = arg;
    if (atomic_fetch_sub(&h->n, 1) == 1)
        free(h);
}

struct graph_holds *graph_holds_new(void)
{
    struct graph_holds *h = malloc(sizeof *h);
    if (h != NULL)
        atomic_init(&h->n, 1);
    return h;
}

void graph_holds_leave(struct graph_holds *h)
{
    if (h != NULL)
        holds_drop(h);
}

bool graph_holds_any(const struct graph_holds *h)
{
    return atomic_load(&h->n) > 1;
}

static cudaError_t hold_by(cudaGraph_t graph, struct graph_holds *h)
{
    cudaUserObject_t object;
    cudaError_t result =
        cudaUserObjectCreate(&object, h, holds_drop, 1, cudaUserObjectNoDestructorSync);
    if (result != cudaSuccess)
        return result;
    atomic_fetch_add(&h->n, 1);
    result = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
    if (result != cudaSuccess)
        cudaUserObjectRelease(object, 1); /* drops h */
    return result;
}

cudaError_t graph_hold(struct device_group *g, cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    cudaGraph_t graph = NULL;
    const cudaError_t asked =
        cudaStreamGetCaptureInfo(stream, &status, &id, &graph, NULL, NULL, NULL);
    if (asked != cudaSuccess)
        cudaGetLastError(); /* NCCL's call on that stream reports it */
    if (asked != cudaSuccess || status != cudaStreamCaptureStatusActive || id == g->capture)
        return cudaSuccess;
    const cudaError_t result = hold_by(graph, g->holds);
    if (result == cudaSuccess)
        g->capture = id;
    return result;
}
