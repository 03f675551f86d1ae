/* helper_call.c - a call that may never return, made by a thread of its own while the caller waits
 * for it as long as it likes.
 *
 * Calls that end communicators are known to hang if a device or a peer is in a bad state. A thread
 * that does not come back is abandoned: the process continues, and reports that it has to be
 * replaced. */
#include "device.h"

#include "common/clock.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct helper_call { /* shared by two: the thread, and the waiting caller. The second to leave frees
                        it */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int device;
    int (*work)(const void *arg);
    int result;
    bool is_done, is_alone;
    _Alignas(max_align_t) uint8_t arg[];
};

static void helper_free(struct helper_call *h)
{
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->mutex);
    free(h);
}

/* Leave, with the mutex held. */
static void helper_leave(struct helper_call *h)
{
    const bool is_last = h->is_alone;
    h->is_alone = true;
    pthread_mutex_unlock(&h->mutex);
    if (is_last)
        helper_free(h);
}

static void *helper_run(void *arg)
{
    struct helper_call *h = arg;
    cudaSetDevice(h->device); /* a thread's own; if it fails, the work also fails */
    const int result = h->work(h->arg);
    pthread_mutex_lock(&h->mutex);
    h->result = result;
    h->is_done = true;
    pthread_cond_signal(&h->changed);
    helper_leave(h);
    return NULL;
}

struct helper_call *helper_call_start(int device, int (*work)(const void *arg), const void *arg,
                                      size_t bytes)
{
    pthread_t thread;
    sigset_t all, before;
    struct helper_call *h = calloc(1, sizeof *h + bytes);
    if (h == NULL)
        return NULL;
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->changed, NULL);
    h->device = device;
    h->work = work;
    memcpy(h->arg, arg, bytes);
    sigfillset(&all); /* signals are for the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&thread, NULL, helper_run, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        helper_free(h);
        return NULL;
    }
    pthread_detach(thread);
    return h;
}

int helper_call_wait(struct helper_call *h, uint64_t timeout_ms, int *ret_result)
{
    const uint64_t end_ms = co_deadline_ms(timeout_ms);
    const struct timespec end = {.tv_sec = (time_t)(end_ms / 1000),
                                 .tv_nsec = (long)(end_ms % 1000 * 1000000)};
    int rc = 0;
    pthread_mutex_lock(&h->mutex);
    while (!h->is_done && rc == 0)
        rc = pthread_cond_clockwait(&h->changed, &h->mutex, CLOCK_MONOTONIC, &end);
    const bool is_done = h->is_done;
    if (is_done)
        *ret_result = h->result;
    pthread_mutex_unlock(&h->mutex);
    return is_done ? 0 : -ETIMEDOUT;
}

void helper_call_leave(struct helper_call *h)
{
    if (h == NULL)
        return;
    pthread_mutex_lock(&h->mutex);
    helper_leave(h);
}

int helper_call_run(int device, int (*work)(const void *arg), const void *arg, size_t bytes,
                    uint64_t timeout_ms, int *ret_result)
{
    struct helper_call *h = helper_call_start(device, work, arg, bytes);
    const int code = h != NULL ? helper_call_wait(h, timeout_ms, ret_result) : -ENOMEM;
    helper_call_leave(h);
    return code;
}
