/* cudart_graph.c - graphs: captured by one stream and those that join through its events; executed,
 * when they are launched, on one stream in the order in which they were captured.
 *
 * A capture has clocks and accesses of its own (race.h), in which the host orders nothing: two
 * operations that only the order of calls puts in sequence are a race here. */
#include "cudart.h"

#include <stdlib.h>
#include <string.h>

struct graph_op {
    struct graph_op *next;
    const char *name;
    void (*work)(void *arg);
    void (*launched)(void *arg);
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

struct capture {
    struct capture *next; /* of all captures in progress */
    unsigned long number;
    const struct CUstream_st *origin;
    pthread_t thread;
    enum cudaStreamCaptureMode mode;
    bool is_spoiled;
    struct CUgraph_st *graph; /* owned */
    struct race race;         /* of what is captured */
};

static struct capture *captures;
static _Thread_local enum cudaStreamCaptureMode own_mode = cudaStreamCaptureModeGlobal;

/* --- graphs ----------------------------------------------------------------------------------- */

static void add(struct CUgraph_st *g, struct graph_op *op)
{
    *g->last = op;
    g->last = &op->next;
}

static struct graph_op *new_op(const void *arg, size_t bytes, const struct double_range *range,
                               size_t n)
{
    struct graph_op *op = calloc(1, sizeof *op + bytes);
    struct double_range *own = calloc(n + 1, sizeof *own);
    if (op == NULL || own == NULL) {
        free(op);
        free(own);
        return NULL;
    }
    op->range = own;
    op->n_ranges = n;
    op->bytes = bytes;
    memcpy(op->arg, arg, bytes);
    if (n > 0)
        memcpy(own, range, n * sizeof *own);
    return op;
}

void double_graph_hold(cudaStream_t stream, void (*let_go)(void *arg), void *arg)
{
    struct graph_holder *h = calloc(1, sizeof *h);
    pthread_mutex_lock(&cudart_mutex);
    const struct CUstream_st *s = cudart_stream(stream);
    if (h != NULL && s != NULL && s->capture != NULL) {
        struct CUgraph_st *g = s->capture->graph;
        *h = (struct graph_holder){g->holders, let_go, arg};
        g->holders = h;
        h = NULL;
    }
    pthread_mutex_unlock(&cudart_mutex);
    if (h == NULL)
        return;
    free(h);
    let_go(arg);
}

/* One owner less. The last one frees it. NULL is fine. */
static void release(struct CUgraph_st *g)
{
    if (g == NULL)
        return;
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

/* --- what spoils a capture -------------------------------------------------------------------- */

void cudart_capture_spoil(struct capture *c, const char *why)
{
    double_report("%s while a graph is captured", why);
    c->is_spoiled = true;
}

bool cudart_capture_spoil_blocking(const char *call)
{
    bool any = false;
    for (struct capture *c = captures; c != NULL; c = c->next)
        if (c->origin->is_blocking) {
            cudart_capture_spoil(c, call);
            any = true;
        }
    return any;
}

static bool forbids(const struct capture *c)
{
    if (own_mode == cudaStreamCaptureModeRelaxed || c->mode == cudaStreamCaptureModeRelaxed)
        return false;
    const bool is_own = pthread_equal(c->thread, pthread_self());
    return is_own ||
           (own_mode == cudaStreamCaptureModeGlobal && c->mode == cudaStreamCaptureModeGlobal);
}

bool cudart_is_unsafe(const char *call)
{
    bool is_unsafe = false;
    pthread_mutex_lock(&cudart_mutex);
    for (struct capture *c = captures; c != NULL; c = c->next)
        if (forbids(c)) {
            cudart_capture_spoil(c, call);
            is_unsafe = true;
        }
    pthread_mutex_unlock(&cudart_mutex);
    return is_unsafe;
}

/* --- what a capture records ------------------------------------------------------------------- */

static struct capture *find_capture(unsigned long number)
{
    struct capture *c = captures;
    while (c != NULL && c->number != number)
        c = c->next;
    return number != 0 ? c : NULL;
}

static void touch(struct capture *c, unsigned agent, const char *name,
                  const struct double_range *range, size_t n)
{
    char text[RACE_TEXT_BYTES];
    for (size_t i = 0; i < n; i++)
        if (!race_touch(&c->race, agent, name, range[i].at, range[i].bytes, range[i].writes, text))
            double_report("in a graph: %s", text);
}

cudaError_t cudart_capture_add(const struct CUstream_st *s, const char *name,
                               void (*work)(void *arg), void (*launched)(void *arg),
                               const void *arg, size_t bytes, const struct double_range *range,
                               size_t n)
{
    struct capture *c = s->capture;
    if (c->is_spoiled)
        return cudaErrorStreamCaptureInvalidated;
    struct graph_op *op = new_op(arg, bytes, range, n);
    if (op == NULL)
        return cudaErrorMemoryAllocation;
    op->name = name;
    op->work = work;
    op->launched = launched;
    add(c->graph, op);
    race_begin(&c->race, s->agent, s->agent);
    touch(c, s->agent, name, range, n);
    return cudaSuccess;
}

cudaError_t cudart_capture_record(const struct CUstream_st *s, struct CUevent_st *e)
{
    const struct capture *c = s->capture;
    if (c->is_spoiled)
        return cudaErrorStreamCaptureInvalidated;
    e->capture = c->number;
    e->seen = c->race.agent[s->agent];
    return cudaSuccess;
}

/* A wait on an event from outside the capture, by a stream that captures; or a stale event. */
static cudaError_t wait_outside(struct CUstream_st *s, const struct CUevent_st *e)
{
    if (e->capture == 0 && e->n_recorded == 0)
        return cudaSuccess;
    if (s->capture != NULL)
        cudart_capture_spoil(s->capture, "an event from outside is waited for");
    else
        double_report("an event of a capture that is over is waited for");
    return e->capture == 0 ? cudaErrorStreamCaptureIsolation : cudaErrorCapturedEvent;
}

cudaError_t cudart_capture_wait(struct CUstream_st *s, const struct CUevent_st *e, bool is_legacy)
{
    struct capture *c = find_capture(e->capture);
    if (c == NULL)
        return wait_outside(s, e);
    if (c->is_spoiled)
        return cudaErrorStreamCaptureInvalidated;
    if (is_legacy) {
        cudart_capture_spoil(c, "the legacy stream waits for an event");
        return cudaErrorStreamCaptureImplicit;
    }
    if (s->capture != NULL && s->capture != c) {
        cudart_capture_spoil(c, "a stream of another capture waits for an event");
        cudart_capture_spoil(s->capture, "an event of another capture is waited for");
        return cudaErrorStreamCaptureMerge;
    }
    s->capture = c; /* one that was not in it is now */
    race_see(&c->race, s->agent, &e->seen);
    return cudaSuccess;
}

bool double_is_capturing(cudaStream_t stream)
{
    pthread_mutex_lock(&cudart_mutex);
    const struct CUstream_st *s = cudart_stream(stream);
    const bool is = s != NULL && s->capture != NULL;
    pthread_mutex_unlock(&cudart_mutex);
    return is;
}

/* --- a capture's beginning and end ------------------------------------------------------------ */

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
    static unsigned long n_captures;
    struct capture *c = calloc(1, sizeof *c);
    struct CUgraph_st *g = calloc(1, sizeof *g);
    if (c == NULL || g == NULL) {
        free(c);
        free(g);
        return cudart_return(cudaErrorMemoryAllocation);
    }
    g->last = &g->first;
    g->n_owners = 1;
    pthread_mutex_lock(&cudart_mutex);
    struct CUstream_st *s = cudart_stream(stream);
    const bool can = s != NULL && s->capture == NULL && !cudart_is_legacy(stream);
    if (can) {
        *c = (struct capture){.next = captures,
                              .number = ++n_captures,
                              .origin = s,
                              .thread = pthread_self(),
                              .mode = mode,
                              .graph = g};
        captures = s->capture = c;
    }
    pthread_mutex_unlock(&cudart_mutex);
    if (!can) {
        free(c);
        free(g);
    }
    return cudart_return(can ? cudaSuccess : cudaErrorIllegalState);
}

/* Whether the origin stream is ordered after all work of the other streams. */
static bool is_joined(const struct capture *c)
{
    const struct race_clock *origin = &c->race.agent[c->origin->agent];
    for (unsigned a = 0; a < RACE_AGENTS; a++)
        if (origin->of[a] < c->race.agent[a].of[a])
            return false;
    return true;
}

static cudaError_t judge(const struct CUstream_st *s)
{
    const struct capture *c = s->capture;
    if (c == NULL)
        return cudaErrorIllegalState;
    if (c->origin != s)
        return cudaErrorStreamCaptureUnmatched;
    if (c->mode != cudaStreamCaptureModeRelaxed && !pthread_equal(c->thread, pthread_self()))
        return cudaErrorStreamCaptureWrongThread;
    if (c->is_spoiled)
        return cudaErrorStreamCaptureInvalidated;
    return is_joined(c) ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
}

/* With the mutex held. returns its graph */
static struct CUgraph_st *end(struct capture *c)
{
    struct CUgraph_st *g = c->graph;
    struct capture **at = &captures;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    cudart_streams_leave(c);
    race_fini(&c->race);
    free(c);
    return g;
}

DOUBLE_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *ret)
{
    struct CUgraph_st *g = NULL;
    *ret = NULL;
    pthread_mutex_lock(&cudart_mutex);
    const struct CUstream_st *s = cudart_stream(stream);
    const cudaError_t result = s != NULL ? judge(s) : cudaErrorInvalidResourceHandle;
    if (s != NULL && s->capture != NULL && s->capture->origin == s &&
        result != cudaErrorStreamCaptureWrongThread)
        g = end(s->capture);
    pthread_mutex_unlock(&cudart_mutex);
    if (result == cudaSuccess)
        *ret = g;
    else
        release(g);
    return cudart_return(result);
}

DOUBLE_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                                enum cudaStreamCaptureStatus *ret)
{
    cudaError_t result = cudaSuccess;
    *ret = cudaStreamCaptureStatusNone;
    pthread_mutex_lock(&cudart_mutex);
    const struct CUstream_st *s = cudart_stream(stream);
    if (s != NULL)
        result = s->failed; /* of what ran there before, as of most calls */
    for (const struct capture *c = captures; cudart_is_legacy(stream) && c != NULL; c = c->next)
        if (c->origin->is_blocking)
            result = cudaErrorStreamCaptureImplicit;
    if (s != NULL && s->capture != NULL)
        *ret = s->capture->is_spoiled ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
    pthread_mutex_unlock(&cudart_mutex);
    return cudart_return(result);
}

DOUBLE_EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                                   enum cudaStreamCaptureStatus *ret,
                                                   unsigned long long *ret_id,
                                                   cudaGraph_t *ret_graph,
                                                   const cudaGraphNode_t **nodes,
                                                   const cudaGraphEdgeData **edges, size_t *n)
{
    const cudaError_t result = cudaStreamIsCapturing(stream, ret);
    if (nodes != NULL || edges != NULL || n != NULL)
        double_report("cudaStreamGetCaptureInfo: this double has no nodes of graphs");
    if (result != cudaSuccess || *ret != cudaStreamCaptureStatusActive)
        return result;
    pthread_mutex_lock(&cudart_mutex);
    const struct CUstream_st *s = cudart_stream(stream);
    *ret_id = s->capture->number;
    *ret_graph = s->capture->graph;
    pthread_mutex_unlock(&cudart_mutex);
    return result;
}

struct CUuserObject_st { /* with one reference, which a graph takes over */
    void *arg;
    cudaHostFn_t destroy;
};

DOUBLE_EXPORT cudaError_t cudaUserObjectCreate(cudaUserObject_t *ret, void *arg,
                                               cudaHostFn_t destroy, unsigned n, unsigned flags)
{
    if (n != 1 || flags != cudaUserObjectNoDestructorSync)
        double_report("cudaUserObjectCreate is given %u references, and flags %#x", n, flags);
    *ret = calloc(1, sizeof **ret);
    if (*ret == NULL)
        return cudart_return(cudaErrorMemoryAllocation);
    **ret = (struct CUuserObject_st){arg, destroy};
    return cudaSuccess;
}

static void let_go_of_object(void *arg)
{
    struct CUuserObject_st *object = arg;
    object->destroy(object->arg);
    free(object);
}

DOUBLE_EXPORT cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned n)
{
    if (n != 1)
        double_report("cudaUserObjectRelease gives back %u references of one", n);
    let_go_of_object(object);
    return cudaSuccess;
}

DOUBLE_EXPORT cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                                    unsigned n, unsigned flags)
{
    struct graph_holder *h = calloc(1, sizeof *h);
    if (n != 1 || flags != cudaGraphUserObjectMove)
        double_report("cudaGraphRetainUserObject retains %u references, with flags %#x", n, flags);
    if (h == NULL)
        return cudart_return(cudaErrorMemoryAllocation);
    pthread_mutex_lock(&cudart_mutex);
    *h = (struct graph_holder){graph->holders, let_go_of_object, object};
    graph->holders = h;
    pthread_mutex_unlock(&cudart_mutex);
    return cudaSuccess;
}

/* --- launching -------------------------------------------------------------------------------- */

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
    if (double_is_capturing(stream)) {
        double_report("a graph is launched into another one: this double has no such nodes");
        return cudart_return(cudaErrorNotSupported);
    }
    for (const struct graph_op *op = exec->graph->first; op != NULL && result == cudaSuccess;
         op = op->next)
        result = double_queue_launched(stream, op->name, op->work, op->launched, op->arg, op->bytes,
                                       op->range, op->n_ranges);
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
