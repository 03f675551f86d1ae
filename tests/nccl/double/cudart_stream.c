/* cudart_stream.c - streams and events: a thread for each stream, which does what is queued. */
#include "cudart.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
    struct job *next;
    void (*work)(void *arg);
    struct CUevent_st *event; /* recorded after it, or NULL */
    _Alignas(max_align_t) unsigned char arg[];
};

pthread_mutex_t cudart_mutex = PTHREAD_MUTEX_INITIALIZER;
struct race cudart_race;

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* something was queued, or is done */
static struct CUstream_st *streams[RACE_AGENTS];          /* by agent; 0 is the host */
static struct CUstream_st *defaults[2];                   /* legacy, per thread */

/* --- its thread ------------------------------------------------------------------------------- */

static void *run(void *arg)
{
    struct CUstream_st *s = arg;
    pthread_mutex_lock(&cudart_mutex);
    while (s->first != NULL || !s->must_stop) {
        struct job *j = s->first;
        if (j == NULL) {
            pthread_cond_wait(&changed, &cudart_mutex);
            continue;
        }
        s->first = j->next;
        if (s->first == NULL)
            s->last = &s->first;
        s->is_busy = true;
        pthread_mutex_unlock(&cudart_mutex);
        if (j->work != NULL)
            j->work(j->arg);
        pthread_mutex_lock(&cudart_mutex);
        if (j->event != NULL)
            j->event->n_done++;
        free(j);
        s->is_busy = false;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&cudart_mutex);
    return NULL;
}

/* With the mutex held. */
static struct CUstream_st *new_stream(void)
{
    unsigned agent = 1;
    while (agent < RACE_AGENTS && streams[agent] != NULL)
        agent++;
    struct CUstream_st *s = agent < RACE_AGENTS ? calloc(1, sizeof *s) : NULL;
    if (s == NULL)
        return NULL;
    s->agent = agent;
    cudaGetDevice(&s->device);
    s->last = &s->first;
    if (pthread_create(&s->thread, NULL, run, s) != 0) {
        free(s);
        return NULL;
    }
    return streams[agent] = s;
}

/* Each device has its own default streams: here only that of the process's is used. */
static void check_device(const struct CUstream_st *s)
{
    int device;
    cudaGetDevice(&device);
    if (s != NULL && s->device != device)
        double_report("a default stream of device %d is meant, and the thread's is device %d",
                      s->device, device);
}

bool cudart_is_legacy(cudaStream_t name)
{
    return name == NULL || name == cudaStreamLegacy;
}

struct CUstream_st *cudart_stream(cudaStream_t name)
{
    const bool is_own = name == cudaStreamPerThread;
    if (cudart_is_legacy(name) || is_own) {
        if (defaults[is_own] == NULL)
            defaults[is_own] = new_stream();
        check_device(defaults[is_own]);
        return defaults[is_own];
    }
    for (unsigned a = 1; a < RACE_AGENTS; a++)
        if (streams[a] == name)
            return name;
    double_report("%p is no stream", (void *)name);
    return NULL;
}

void cudart_streams_leave(const struct capture *c)
{
    for (unsigned a = 1; a < RACE_AGENTS; a++)
        if (streams[a] != NULL && streams[a]->capture == c)
            streams[a]->capture = NULL;
}

static bool is_default(const struct CUstream_st *s)
{
    return s == defaults[0] || s == defaults[1];
}

int double_device_of(cudaStream_t name)
{
    pthread_mutex_lock(&cudart_mutex);
    const struct CUstream_st *s = cudart_stream(name);
    const int device = s == NULL || is_default(s) ? -1 : s->device;
    pthread_mutex_unlock(&cudart_mutex);
    return device;
}

static bool is_idle(const struct CUstream_st *s)
{
    return s->first == NULL && !s->is_busy;
}

/* The host has waited for the stream. */
static void see_stream(const struct CUstream_st *s)
{
    race_see(&cudart_race, RACE_HOST, &cudart_race.agent[s->agent]);
}

void cudart_wait_all(void)
{
    for (unsigned a = 1; a < RACE_AGENTS; a++) {
        while (streams[a] != NULL && !is_idle(streams[a]))
            pthread_cond_wait(&changed, &cudart_mutex);
        if (streams[a] != NULL)
            see_stream(streams[a]);
    }
}

/* --- queueing --------------------------------------------------------------------------------- */

static void append(struct CUstream_st *s, struct job *j)
{
    *s->last = j;
    s->last = &j->next;
    pthread_cond_broadcast(&changed);
}

/* With the mutex held. */
static struct CUstream_st *find_for_work(cudaStream_t name, const char *what, cudaError_t *ret)
{
    struct CUstream_st *s = cudart_stream(name);
    *ret = s == NULL ? cudaErrorInvalidResourceHandle : s->failed;
    if (s != NULL && s->n_holds > 0)
        double_report("%s is put on a stream before NCCL's call there is more than in progress",
                      what);
    if (cudart_is_legacy(name) && cudart_capture_spoil_blocking("the legacy stream is used"))
        *ret = cudaErrorStreamCaptureImplicit;
    return s;
}

cudaError_t double_queue_launched(cudaStream_t name, const char *what, void (*work)(void *arg),
                                  void (*launched)(void *arg), const void *arg, size_t bytes,
                                  const struct double_range *range, size_t n_ranges)
{
    cudaError_t result;
    struct job *j = calloc(1, sizeof *j + bytes);
    if (j == NULL)
        return cudart_return(cudaErrorMemoryAllocation);
    pthread_mutex_lock(&cudart_mutex);
    struct CUstream_st *s = find_for_work(name, what, &result);
    if (result == cudaSuccess && s->capture != NULL) {
        result = cudart_capture_add(s, what, work, launched, arg, bytes, range, n_ranges);
        free(j);
    } else if (result == cudaSuccess) {
        race_begin(&cudart_race, s->agent, RACE_HOST);
        cudart_touch(s->agent, what, range, n_ranges);
        j->work = work;
        memcpy(j->arg, arg, bytes);
        if (launched != NULL)
            launched(j->arg);
        append(s, j);
    } else {
        free(j);
    }
    pthread_mutex_unlock(&cudart_mutex);
    return cudart_return(result);
}

cudaError_t double_queue(cudaStream_t name, const char *what, void (*work)(void *arg),
                         const void *arg, size_t bytes, const struct double_range *range,
                         size_t n_ranges)
{
    return double_queue_launched(name, what, work, NULL, arg, bytes, range, n_ranges);
}

void double_hold(cudaStream_t name, int change)
{
    pthread_mutex_lock(&cudart_mutex);
    struct CUstream_st *s = cudart_stream(name);
    if (s != NULL)
        s->n_holds += change;
    pthread_mutex_unlock(&cudart_mutex);
}

static atomic_bool has_failed;

bool double_has_failed(void)
{
    return atomic_load(&has_failed);
}

void double_fail_stream(cudaStream_t name)
{
    atomic_store(&has_failed, true);
    pthread_mutex_lock(&cudart_mutex);
    struct CUstream_st *s = cudart_stream(name);
    if (s != NULL)
        s->failed = cudaErrorLaunchFailure;
    pthread_mutex_unlock(&cudart_mutex);
}

/* --- the calls -------------------------------------------------------------------------------- */

DOUBLE_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned flags)
{
    if (cudart_is_unsafe("cudaStreamCreate is called"))
        return cudart_return(cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&cudart_mutex);
    *ret = getenv("NCCL_DOUBLE_NO_STREAMS") == NULL ? new_stream() : NULL;
    if (*ret != NULL)
        (*ret)->is_blocking = (flags & cudaStreamNonBlocking) == 0;
    pthread_mutex_unlock(&cudart_mutex);
    return cudart_return(*ret != NULL ? cudaSuccess : cudaErrorMemoryAllocation);
}

DOUBLE_EXPORT cudaError_t cudaStreamCreate(cudaStream_t *ret)
{
    return cudaStreamCreateWithFlags(ret, cudaStreamDefault);
}

DOUBLE_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t name)
{
    pthread_mutex_lock(&cudart_mutex);
    struct CUstream_st *s = cudart_stream(name);
    if (s == NULL) {
        pthread_mutex_unlock(&cudart_mutex);
        return cudart_return(cudaErrorInvalidResourceHandle);
    }
    if (s->capture != NULL)
        cudart_capture_spoil(s->capture, "a stream is destroyed");
    s->must_stop = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&cudart_mutex);
    pthread_join(s->thread, NULL);
    pthread_mutex_lock(&cudart_mutex);
    streams[s->agent] = NULL; /* its clock stays: times of one number never go back */
    pthread_mutex_unlock(&cudart_mutex);
    free(s);
    return cudart_return(cudaSuccess);
}

/* With the mutex held: of one that captures there is nothing to know. */
static cudaError_t ask(struct CUstream_st *s, bool waits)
{
    if (s->capture != NULL) {
        cudart_capture_spoil(s->capture, "its stream is asked or waited for");
        return cudaErrorStreamCaptureUnsupported;
    }
    while (waits && s->failed == cudaSuccess && !is_idle(s))
        pthread_cond_wait(&changed, &cudart_mutex);
    if (s->failed != cudaSuccess)
        return s->failed;
    if (!is_idle(s))
        return cudaErrorNotReady;
    see_stream(s);
    return cudaSuccess;
}

static cudaError_t look(cudaStream_t name, bool waits)
{
    const bool is_unsafe = cudart_is_unsafe("a stream is asked or waited for");
    pthread_mutex_lock(&cudart_mutex);
    struct CUstream_st *s = cudart_stream(name);
    cudaError_t result =
        s != NULL ? cudaErrorStreamCaptureUnsupported : cudaErrorInvalidResourceHandle;
    if (s != NULL && !is_unsafe)
        result = ask(s, waits);
    pthread_mutex_unlock(&cudart_mutex);
    return cudart_return(result);
}

DOUBLE_EXPORT cudaError_t cudaStreamQuery(cudaStream_t name)
{
    return look(name, false);
}

DOUBLE_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t name)
{
    return look(name, true);
}

DOUBLE_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret, unsigned flags)
{
    (void)flags;
    *ret = calloc(1, sizeof **ret);
    if (*ret != NULL)
        cudaGetDevice(&(*ret)->device);
    return cudart_return(*ret != NULL ? cudaSuccess : cudaErrorMemoryAllocation);
}

static atomic_uint n_queries;

unsigned double_count_queries(void)
{
    return atomic_load(&n_queries);
}

DOUBLE_EXPORT cudaError_t cudaEventQuery(cudaEvent_t e)
{
    atomic_fetch_add(&n_queries, 1);
    if (cudart_is_unsafe("cudaEventQuery is called"))
        return cudart_return(cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&cudart_mutex);
    if (e->capture != 0) {
        double_report("an event of a capture is asked");
        pthread_mutex_unlock(&cudart_mutex);
        return cudart_return(cudaErrorCapturedEvent);
    }
    const bool is_done = e->n_done >= e->n_recorded;
    if (is_done) /* so has the host */
        race_see(&cudart_race, RACE_HOST, &e->seen);
    pthread_mutex_unlock(&cudart_mutex);
    return cudart_return(is_done ? cudaSuccess : cudaErrorNotReady);
}

/* With the mutex held. */
static void drop_event(struct CUevent_st *e)
{
    if (e->is_destroyed && e->n_waits == 0)
        free(e);
}

DOUBLE_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    pthread_mutex_lock(&cudart_mutex);
    while (e->n_done < e->n_recorded)
        pthread_cond_wait(&changed, &cudart_mutex);
    e->is_destroyed = true;
    drop_event(e);
    pthread_mutex_unlock(&cudart_mutex);
    return cudart_return(cudaSuccess);
}

DOUBLE_EXPORT cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t name)
{
    struct job *j = calloc(1, sizeof *j);
    pthread_mutex_lock(&cudart_mutex);
    cudaError_t result;
    struct CUstream_st *s = find_for_work(name, "cudaEventRecord", &result);
    if (s != NULL && !is_default(s) && s->device != e->device) {
        double_report("an event of device %d is recorded on a stream of device %d", e->device,
                      s->device);
        result = cudaErrorInvalidResourceHandle;
    }
    if (j == NULL || result != cudaSuccess || s->capture != NULL) {
        if (j != NULL && result == cudaSuccess)
            result = cudart_capture_record(s, e);
        pthread_mutex_unlock(&cudart_mutex);
        free(j);
        return cudart_return(j != NULL ? result : cudaErrorMemoryAllocation);
    }
    e->capture = 0;
    race_begin(&cudart_race, s->agent, RACE_HOST);
    e->seen = cudart_race.agent[s->agent];
    e->n_recorded++;
    j->event = e;
    append(s, j);
    pthread_mutex_unlock(&cudart_mutex);
    return cudart_return(cudaSuccess);
}

struct wait { /* of a stream for an event, as it was recorded last */
    cudaEvent_t event;
    unsigned long until;
};

static void wait_for_event(void *arg)
{
    const struct wait *w = arg;
    pthread_mutex_lock(&cudart_mutex);
    while (w->event->n_done < w->until)
        pthread_cond_wait(&changed, &cudart_mutex);
    w->event->n_waits--;
    drop_event(w->event);
    pthread_mutex_unlock(&cudart_mutex);
}

DOUBLE_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t name, cudaEvent_t e, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&cudart_mutex);
    const struct wait w = {e, e->n_recorded};
    struct CUstream_st *s = cudart_stream(name);
    if (s != NULL && (s->capture != NULL || e->capture != 0)) {
        const cudaError_t result = cudart_capture_wait(s, e, cudart_is_legacy(name));
        pthread_mutex_unlock(&cudart_mutex);
        return cudart_return(result);
    }
    if (s != NULL)
        race_see(&cudart_race, s->agent, &e->seen);
    e->n_waits++;
    pthread_mutex_unlock(&cudart_mutex);
    const cudaError_t result =
        double_queue(name, "cudaStreamWaitEvent", wait_for_event, &w, sizeof w, NULL, 0);
    pthread_mutex_lock(&cudart_mutex);
    if (result != cudaSuccess)
        e->n_waits--;
    pthread_mutex_unlock(&cudart_mutex);
    return result;
}
