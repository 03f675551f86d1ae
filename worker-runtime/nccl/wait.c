/* wait.c - all waits of the plug-in. Each checks three things in turn: what it waits for, NCCL's
 * state of the communicator, and whether the job is intact. */
#include "device.h"

#include "common/clock.h"

#include <errno.h>

enum {
    LOOKS_PER_CHECK = 8,         /* at what is waited for, to one at the job */
    LOOK_EVERY_NS = 1000 * 1000, /* by calls, which do not wait */
};

/* Another thread may break all groups meanwhile, and end their communicators.
 * returns   as nccl_map_ask(); -errno of g, which is broken, and *ret_known is true */
static int comm_ask(struct device_group *g, struct device_group *asks, const char *what,
                    bool *ret_known, struct co_error *err)
{
    pthread_mutex_lock(&g->device->mutex);
    *ret_known = g->is_broken;
    const int code = g->is_broken ? co_fail(err, g->why.code, "%s", g->why.text)
                                  : nccl_map_ask(asks->comm, what, err);
    pthread_mutex_unlock(&g->device->mutex);
    return code;
}

/* The same, and what is not known yet breaks the job. */
static int ask_or_break(struct device_group *g, struct device_group *asks, const char *what,
                        struct co_error *err)
{
    bool is_known;
    int code = comm_ask(g, asks, what, &is_known, err);
    if (code >= 0)
        return code;
    return device_break(g, is_known ? COMM_BROKEN : COMM_FAILED, code, err);
}

/* Look at the job every few looks, and at the clock. returns 0 continue to wait; else as
 * device_break() */
static int check_on(struct device_group *g, unsigned n, uint64_t deadline_ms, int late_code,
                    const char *what, struct co_error *err)
{
    if (n % LOOKS_PER_CHECK != 0)
        return 0;
    int code = g->job.look(g->job.arg, err);
    if (code != 0)
        return device_break(g, COMM_BROKEN, code, err);
    if (co_left_ms(deadline_ms) != 0)
        return 0;
    co_fail(err, late_code, "timed out waiting for %s", what);
    return device_break(g, COMM_LATE, late_code, err);
}

int wait_settled(struct device_group *g, struct device_group *asks, const char *what,
                 struct co_error *err)
{
    const uint64_t deadline_ms = co_deadline_ms(g->timeout_ms);
    struct nap nap = {0};
    for (;;) {
        int code = ask_or_break(g, asks, what, err);
        if (code != 0)
            return code < 0 ? code : 0;
        code = check_on(g, nap.n, deadline_ms, -ECONNRESET, what, err);
        if (code != 0)
            return code;
        nap_take(&nap);
    }
}

int wait_check(struct device_group *g, struct co_error *err)
{
    const uint64_t now_ns = co_now_ns();
    bool is_known;
    int code = comm_ask(g, g, "a communicator", &is_known, err);
    if (is_known)
        return code;
    if (code < 0)
        return device_break(g, COMM_FAILED, code, err);
    if (now_ns < g->next_look_ns)
        return 0;
    g->next_look_ns = now_ns + LOOK_EVERY_NS;
    code = g->job.look(g->job.arg, err);
    return code == 0 ? 0 : device_break(g, COMM_BROKEN, code, err);
}

cudaError_t wait_ask_stream(cudaStream_t stream)
{
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaErrorNotReady)
        cudaGetLastError();
    return state;
}

/* What is known of a stream. A default stream's name is that of the calling thread's current
 * device.
 *
 * returns   1 it is done; 0 not yet; -EINVAL the wait is in a capture: the program's mistake, and
 *           nothing is broken; -EIO, -ENODEV */
static int stream_ask(const struct device *d, cudaStream_t stream, struct co_error *err)
{
    cudaError_t state = cudaSetDevice(d->index);
    if (state == cudaSuccess)
        state = wait_ask_stream(stream);
    if (state == cudaSuccess || state == cudaErrorNotReady)
        return state == cudaSuccess;
    return nccl_map_cuda(nccl_map_is_of_capture(state)
                             ? "cannot wait while a graph is captured on this stream or another"
                             : "the work on a stream",
                         state, err);
}

int wait_stream(struct device_group *g, void *stream, uint64_t timeout_ms, struct co_error *err)
{
    const char what[] = "the work on a stream";
    const uint64_t deadline_ms = co_deadline_ms(timeout_ms != 0 ? timeout_ms : g->timeout_ms);
    struct nap nap = {0};
    for (;;) {
        const int state = stream_ask(g->device, stream, err);
        if (state < 0)
            return state == -EINVAL ? state : device_break(g, COMM_FAILED, state, err);
        int code = ask_or_break(g, g, what, err); /* kernels of a broken one also end */
        if (code < 0 || state > 0)
            return code < 0 ? code : 0;
        code = check_on(g, nap.n, deadline_ms, -ETIMEDOUT, what, err);
        if (code != 0)
            return code;
        nap_take(&nap);
    }
}

/* Nothing there can be ended. */
int wait_alone(const struct device *d, const struct device_job *job, void *stream,
               uint64_t timeout_ms, struct co_error *err)
{
    const uint64_t deadline_ms = co_deadline_ms(timeout_ms);
    struct nap nap = {0};
    for (;;) {
        const int state = stream_ask(d, stream, err);
        if (state > 0 || state == -EINVAL)
            return state > 0 ? 0 : state;
        if (state < 0) {
            job->tell(job->arg, -ECONNRESET, err->text);
            return -EOWNERDEAD;
        }
        const int code = nap.n % LOOKS_PER_CHECK == 0 ? job->look(job->arg, err) : 0;
        if (code != 0)
            return code;
        if (co_left_ms(deadline_ms) == 0) {
            co_fail(err, -ETIMEDOUT, "timed out waiting for the work on a stream");
            job->tell(job->arg, -ETIMEDOUT, err->text);
            return -ETIMEDOUT;
        }
        nap_take(&nap);
    }
}
