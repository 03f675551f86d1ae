/* cudart_graph.c - graphs: what one stream is told while it captures, done when it is launched.
 * Other streams do not join in: an event that is recorded meanwhile is reported. */
#include "cudart.h"

#include <stdlib.h>
#include <string.h>

struct graph_op {
    struct graph_op *next;
    const char *name;
    void (*work)(void *arg);
    struct double_range *range;
    size_t n_ranges, bytes;
    _Alignas(max_align_t) unsigned char arg[];
};

struct graph_holder { /* see double_graph_hold() */
    struct graph_holder *next;
    void (*let_go)(void *arg);
    void *arg;
};

struct CUgraph_st { /* and what is made of it, which share it */
    struct graph_op *first, **last;
    struct graph_holder *holders;
    unsigned n_owners; /* the graph, and each that can be launched */
};

struct CUgraphExec_st {
    cudaGraph_t graph;
};

unsigned cudart_n_captures;

cudaError_t cudart_graph_add(struct CUgraph_st *g, const char *name, void (*work)(void *arg),
                             const void *arg, size_t bytes, const struct double_range *range,
                             size_t n)
{
    struct graph_op *op = calloc(1, sizeof *op + bytes);
    struct double_range *own = calloc(n + 1, sizeof *own);
    if (op == NULL || own == NULL) {
        free(op);
        free(own);
        return cudaErrorMemoryAllocation;
    }
    *op =
        (struct graph_op){.name = name, .work = work, .range = own, .n_ranges = n, .bytes = bytes};
    memcpy(op->arg, arg, bytes);
    if (n > 0)
        memcpy(own, range, n * sizeof *own);
    *g->last = op;
    g->last = &op->next;
    return cudaSuccess;
}

void double_graph_hold(cudaStream_t stream, void (*let_go)(void *arg), void *arg)
{
    struct graph_holder *h = calloc(1, sizeof *h);
    pthread_mutex_lock(&cudart_mutex);
    struct CUgraph_st **of = cudart_graph_of(stream);
    if (h != NULL && of != NULL && *of != NULL) {
        *h = (struct graph_holder){(*of)->holders, let_go, arg};
        (*of)->holders = h;
        h = NULL;
    }
    pthread_mutex_unlock(&cudart_mutex);
    if (h == NULL)
        return;
    free(h);
    let_go(arg);
}

/* One owner less. The last one frees it. */
static void release(struct CUgraph_st *g)
{
    pthread_mutex_lock(&cudart_mutex);
    const bool is_last = --g->n_owners == 0;
    pthread_mutex_unlock(&cudart_mutex);
    if (!is_last)
        return;
    while (g->first != NULL) {
        struct graph_op *op = g->first;
        g->first = op->next;
        free(op->range);
        free(op);
    }
    while (g->holders != NULL) {
        struct graph_holder *h = g->holders;
        g->holders = h->next;
        h->let_go(h->arg);
        free(h);
    }
    free(g);
}

static _Thread_local enum cudaStreamCaptureMode own_mode = cudaStreamCaptureModeGlobal;

bool cudart_is_unsafe(const char *call)
{
    pthread_mutex_lock(&cudart_mutex);
    const bool is_captured = cudart_n_captures > 0;
    pthread_mutex_unlock(&cudart_mutex);
    if (!is_captured || own_mode != cudaStreamCaptureModeGlobal)
        return false;
    double_report("%s is called while a graph is captured", call);
    return true;
}

/* --- the calls -------------------------------------------------------------------------------- */

DOUBLE_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    const enum cudaStreamCaptureMode before = own_mode;
    own_mode = *mode;
    *mode = before;
    return cudart_return(cudaSuccess);
}

DOUBLE_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                                 enum cudaStreamCaptureMode mode)
{
    struct CUgraph_st *g = calloc(1, sizeof *g);
    pthread_mutex_lock(&cudart_mutex);
    struct CUgraph_st **of = g != NULL ? cudart_graph_of(stream) : NULL;
    const bool can = of != NULL && *of == NULL && mode == cudaStreamCaptureModeGlobal;
    if (can) {
        g->last = &g->first;
        g->n_owners = 1;
        *of = g;
        cudart_n_captures++;
    }
    pthread_mutex_unlock(&cudart_mutex);
    if (!can)
        free(g);
    return cudart_return(can ? cudaSuccess : cudaErrorIllegalState);
}

DOUBLE_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *ret)
{
    pthread_mutex_lock(&cudart_mutex);
    struct CUgraph_st **of = cudart_graph_of(stream);
    const bool can = of != NULL && *of != NULL;
    if (can) {
        *ret = *of;
        *of = NULL;
        cudart_n_captures--;
    }
    pthread_mutex_unlock(&cudart_mutex);
    return cudart_return(can ? cudaSuccess : cudaErrorIllegalState);
}

DOUBLE_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                                enum cudaStreamCaptureStatus *ret)
{
    *ret =
        double_is_capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudart_return(cudaSuccess);
}

bool double_is_capturing(cudaStream_t stream)
{
    pthread_mutex_lock(&cudart_mutex);
    struct CUgraph_st **of = cudart_graph_of(stream);
    const bool is = of != NULL && *of != NULL;
    pthread_mutex_unlock(&cudart_mutex);
    return is;
}

DOUBLE_EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ret, cudaGraph_t graph,
                                               unsigned long long flags)
{
    (void)flags;
    *ret = calloc(1, sizeof **ret);
    if (*ret != NULL) {
        (*ret)->graph = graph;
        pthread_mutex_lock(&cudart_mutex);
        graph->n_owners++;
        pthread_mutex_unlock(&cudart_mutex);
    }
    return cudart_return(*ret != NULL ? cudaSuccess : cudaErrorMemoryAllocation);
}

DOUBLE_EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    cudaError_t result = cudaSuccess;
    for (const struct graph_op *op = exec->graph->first; op != NULL && result == cudaSuccess;
         op = op->next)
        result =
            double_queue(stream, op->name, op->work, op->arg, op->bytes, op->range, op->n_ranges);
    return result;
}

DOUBLE_EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    release(exec->graph);
    free(exec);
    return cudart_return(cudaSuccess);
}

DOUBLE_EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    release(graph);
    return cudart_return(cudaSuccess);
}
