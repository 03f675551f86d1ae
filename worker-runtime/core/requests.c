/* requests.c - the queue of a group's collectives, and its messages.
 *
 * requests_run() makes a blocking collective after those in the queue. Without a progress thread
 * this thread makes it, run_here(); with one, it borrows the back end while the queue is empty,
 * borrow_backend(), or it appends the call and waits. requests_start() appends. Without a thread
 * the queue advances inside of the calls, advance_first(); with one, run_thread() makes its
 * collectives. Read requests_run(), advance_first() and run_thread() first.
 *
 * The back end belongs to one thread at a time: to run_thread() while it makes the first
 * collective of the queue, to a blocking caller while is_lent is set. */
#include "requests.h"

#include "call_marker.h"
#include "common/error.h"
#include "process.h"

#include <ddp/collective.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct ddp_request {
    struct ddp_group *g;                        /* NULL: it has ended before it was waited for */
    struct ddp_request *next;                   /* in the queue */
    struct ddp_request *next_open, **open_link; /* among those without a ddp_wait() so far */
    bool is_message, has_begun;
    bool is_abandoned; /* by the library: freed with its group */
    bool is_done;      /* of a collective; guarded by the mutex where there is a thread */
    int code;          /* how a collective ended */
    struct co_error err;
    struct collective what;
    struct message message;
    size_t counts[]; /* copies of what.counts and what.in_counts */
};

struct requests {
    struct ddp_group *g;
    struct ddp_request *first, **last; /* collectives to be made, the first perhaps begun */
    struct ddp_request *open;          /* that the program has not waited for yet */
    bool has_thread, stop;
    bool is_lent; /* the back end is a blocking call's, and not the thread's */
    pthread_t thread;
    pthread_mutex_t mutex; /* where there is a thread, guards all of it */
    pthread_cond_t changed;
};

/* --- making and ending ------------------------------------------------------------------------ */

static void *run_thread(void *arg);

static int get_queue(struct ddp_group *g)
{
    if (g->requests != NULL)
        return DDP_OK;
    struct requests *q = calloc(1, sizeof *q);
    if (q == NULL)
        return rt_fail(DDP_ENOMEM, "out of memory for asynchronous calls");
    q->g = g;
    q->last = &q->first;
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->changed, NULL);
    g->requests = q;
    if (!g->progress_thread || g->backend == NULL)
        return DDP_OK;
    int rc = pthread_create(&q->thread, NULL, run_thread, q);
    q->has_thread = rc == 0;
    return rc == 0 ? DDP_OK
                   : rt_fail(DDP_ESYSTEM, "cannot start the thread for asynchronous calls: %s",
                             strerror(rc));
}

static void lock(struct requests *q)
{
    if (q->has_thread)
        pthread_mutex_lock(&q->mutex);
}

static void unlock(struct requests *q)
{
    if (q->has_thread)
        pthread_mutex_unlock(&q->mutex);
}

static void remove_first(struct requests *q)
{
    q->first = q->first->next;
    if (q->first == NULL)
        q->last = &q->first;
}

/* --- requests that the program has ------------------------------------------------------------ */

/* Those whose group has ended: ddp_wait() may still come. In sight of leak checkers. */
static struct ddp_request *ended;
static pthread_mutex_t ended_lock = PTHREAD_MUTEX_INITIALIZER;

static void link_open(struct ddp_request **list, struct ddp_request *r)
{
    r->next_open = *list;
    r->open_link = list;
    if (r->next_open != NULL)
        r->next_open->open_link = &r->next_open;
    *list = r;
}

static void unlink_open(struct ddp_request *r)
{
    *r->open_link = r->next_open;
    if (r->next_open != NULL)
        r->next_open->open_link = r->open_link;
}

static void end_open(struct requests *q)
{
    pthread_mutex_lock(&ended_lock);
    while (q->open != NULL) {
        struct ddp_request *r = q->open;
        unlink_open(r);
        r->g = NULL;
        if (r->is_abandoned)
            free(r);
        else
            link_open(&ended, r);
    }
    pthread_mutex_unlock(&ended_lock);
}

static int fail_ended(const char *name)
{
    return rt_fail(DDP_EINVAL,
                   "%s: the group of the request was destroyed: wait for requests before you call "
                   "ddp_finalize() or ddp_group_destroy()",
                   name);
}

static void free_request(struct ddp_request *r)
{
    pthread_mutex_t *mutex = r->g == NULL                 ? &ended_lock
                             : r->g->requests->has_thread ? &r->g->requests->mutex
                                                          : NULL;
    if (mutex != NULL)
        pthread_mutex_lock(mutex);
    unlink_open(r);
    if (mutex != NULL)
        pthread_mutex_unlock(mutex);
    free(r);
}

void requests_abandon(struct ddp_request *r)
{
    if (r != NULL)
        r->is_abandoned = true;
}

void requests_destroy(struct requests *q)
{
    if (q == NULL)
        return;
    if (q->has_thread && process_is_forked()) { /* a child has no such thread */
        end_open(q);
        return;
    }
    if (q->has_thread) {
        pthread_mutex_lock(&q->mutex);
        q->stop = true;
        pthread_cond_broadcast(&q->changed);
        pthread_mutex_unlock(&q->mutex);
        pthread_join(q->thread, NULL);
    }
    end_open(q);
    pthread_mutex_destroy(&q->mutex);
    pthread_cond_destroy(&q->changed);
    free(q);
}

/* Whether the result is finite, where the back end does not find out while it adds up: all ranks
 * have the same result, so each gets the same answer. */
static void look_through(const struct backend *b, const struct collective *what, int code)
{
    if (code == 0 && what->found_inf != NULL && (b == NULL || !b->ops->finds_inf))
        *what->found_inf = !reduce_is_finite(what->dtype, what->out, what->count);
}

/* A collective from its beginning to its end, by this thread. */
static int make_call(struct ddp_group *g, const struct collective *what, struct co_error *err)
{
    call_marker_enter(g, what, RANK_STATUS_WAITS);
    const int code = backend_run(g->backend, what, err);
    call_marker_leave(g, true);
    look_through(g->backend, what, code);
    return code;
}

/* --- without a thread ------------------------------------------------------------------------- */

/* Continue the first collective of the queue, which is begun here if it has not begun. It leaves
 * the queue when it is done, successful or not: the back end returns a failure again, so that those
 * after it fail in turn, each with the reason.
 *
 * returns   whether it is done */
static bool advance_first(struct requests *q, bool may_wait)
{
    struct ddp_request *r = q->first;
    struct backend *b = q->g->backend;
    int code = 0;
    if (!r->has_begun) {
        call_marker_enter(q->g, &r->what, may_wait ? RANK_STATUS_WAITS : RANK_STATUS_BEGUN);
        code = b->ops->begin(b, &r->what, &r->err);
        r->has_begun = true;
    } else if (may_wait) {
        call_marker_wait(q->g);
    }
    if (code == 0)
        code = b->ops->advance(b, may_wait, &r->err);
    if (code == 0)
        return false;
    r->code = code < 0 ? code : 0;
    call_marker_leave(q->g, may_wait);
    look_through(b, &r->what, r->code);
    remove_first(q);
    r->is_done = true;
    return true;
}

static void advance_all(struct requests *q)
{
    while (q->first != NULL && advance_first(q, false)) {
    }
}

/* --- with a thread ---------------------------------------------------------------------------- */

static void *run_thread(void *arg)
{
    struct requests *q = arg;
    pthread_mutex_lock(&q->mutex);
    for (;;) {
        while (q->is_lent || (q->first == NULL && !q->stop))
            pthread_cond_wait(&q->changed, &q->mutex);
        struct ddp_request *r = q->first;
        if (r == NULL)
            break;
        pthread_mutex_unlock(&q->mutex);
        const int code = make_call(q->g, &r->what, &r->err);
        pthread_mutex_lock(&q->mutex);
        r->code = code;
        remove_first(q);
        r->is_done = true;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->mutex);
    return NULL;
}

/* --- both ------------------------------------------------------------------------------------- */

static void enqueue(struct requests *q, struct ddp_request *r)
{
    lock(q);
    *q->last = r;
    q->last = &r->next;
    unlock(q);
    if (q->has_thread)
        pthread_cond_broadcast(&q->changed);
    else
        advance_all(q);
}

/* Wait until the thread has made a collective of the queue, or make the first one here. With the
 * mutex held. */
static void wait_for_change(struct requests *q)
{
    if (q->has_thread)
        pthread_cond_wait(&q->changed, &q->mutex);
    else
        advance_first(q, true);
}

static void wait_for_collective(struct requests *q, const struct ddp_request *r)
{
    lock(q);
    while (!r->is_done)
        wait_for_change(q);
    unlock(q);
}

void requests_finish(struct requests *q)
{
    if (q == NULL)
        return;
    lock(q);
    while (q->first != NULL)
        wait_for_change(q);
    unlock(q);
}

/* The other side of a message may be in a collective that needs this rank: those in the queue also
 * continue. */
static void wait_for_message(struct ddp_group *g, struct ddp_request *r)
{
    struct backend *b = g->backend;
    struct requests *q = g->requests;
    if (atomic_load(&r->message.done))
        return;
    call_marker_wait_unplaced(g, 1);
    while (!q->has_thread && q->first != NULL && !atomic_load(&r->message.done)) {
        b->ops->p2p_shm_advance(b, NULL);
        advance_all(q);
        sched_yield();
    }
    b->ops->p2p_shm_advance(b, &r->message);
    call_marker_wait_unplaced(g, -1);
}

/* --- requests --------------------------------------------------------------------------------- */

static int new_request(struct ddp_group *g, size_t n_counts, struct ddp_request **ret)
{
    int rc = get_queue(g);
    if (rc != DDP_OK)
        return rc;
    struct ddp_request *r = calloc(1, sizeof *r + n_counts * sizeof r->counts[0]);
    if (r == NULL)
        return rt_fail(DDP_ENOMEM, "out of memory");
    r->g = g;
    lock(g->requests);
    link_open(&g->requests->open, r);
    unlock(g->requests);
    *ret = r;
    return DDP_OK;
}

/* With nothing in the queue a blocking call needs no thread: waking one up, and being woken by it,
 * costs more than a short call. returns whether the back end is the caller's until it gives it */
static bool borrow_backend(struct requests *q)
{
    pthread_mutex_lock(&q->mutex);
    const bool is_free = q->first == NULL && !q->is_lent;
    q->is_lent = q->is_lent || is_free;
    pthread_mutex_unlock(&q->mutex);
    return is_free;
}

static void give_backend(struct requests *q)
{
    pthread_mutex_lock(&q->mutex);
    q->is_lent = false;
    if (q->first != NULL || q->stop)
        pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->mutex);
}

static int run_here(struct ddp_group *g, const struct collective *what)
{
    struct co_error err; /* clearing all of it would show in the shortest calls */
    err.code = 0;
    err.text[0] = '\0';
    const int code = make_call(g, what, &err);
    return code == 0 ? DDP_OK : rt_return(code, &err);
}

/* In a group of 1 every reduction of one value is that value, and every block is this rank's. */
static int run_alone(const struct ddp_group *g, const struct collective *what)
{
    struct co_error err = {0};
    const size_t *counts = what->in_counts != NULL ? what->in_counts : what->counts;
    const size_t bytes = (counts != NULL ? counts[0] : what->count) * reduce_size(what->dtype);
    int code = group_check_alone(g, &err);
    if (code == 0 && what->in != what->out && bytes > 0)
        memmove(what->out, what->in, bytes);
    look_through(NULL, what, code);
    return rt_return(code, &err);
}

int requests_run(struct ddp_group *g, const struct collective *what)
{
    struct collective changed; /* a copy costs time: only after ddp_set_timeout() */
    if (g->backend == NULL)
        return run_alone(g, what);
    if (g->call_timeout_ms != 0 && what->timeout_ms == 0) {
        changed = *what;
        changed.timeout_ms = g->call_timeout_ms;
        what = &changed;
    }
    if (!g->progress_thread) {
        requests_finish(g->requests);
        return run_here(g, what);
    }
    int rc = get_queue(g);
    if (rc != DDP_OK)
        return rc;
    if (!borrow_backend(g->requests)) {
        struct ddp_request r = {.g = g, .what = *what};
        enqueue(g->requests, &r);
        wait_for_collective(g->requests, &r);
        return rt_return(r.code, &r.err);
    }
    rc = run_here(g, what);
    give_backend(g->requests);
    return rc;
}

int requests_start(struct ddp_group *g, const struct collective *what,
                   struct ddp_request **ret_request)
{
    const size_t n = what->counts != NULL ? (size_t)g->world_size : 0;
    struct ddp_request *r = NULL;
    int rc = new_request(g, 2 * n, &r);
    if (rc != DDP_OK)
        return rc;
    if (g->backend == NULL) {
        rc = run_alone(g, what);
        r->is_done = true;
        *ret_request = rc == DDP_OK ? r : NULL;
        if (rc != DDP_OK)
            free_request(r);
        return rc;
    }
    r->what = *what;
    if (what->timeout_ms == 0)
        r->what.timeout_ms = g->call_timeout_ms;
    if (what->counts != NULL)
        r->what.counts = memcpy(r->counts, what->counts, n * sizeof *r->counts);
    if (what->in_counts != NULL)
        r->what.in_counts = memcpy(r->counts + n, what->in_counts, n * sizeof *r->counts);
    *ret_request = r; /* before it can be done */
    enqueue(g->requests, r);
    return DDP_OK;
}

int requests_start_done(struct ddp_group *g, struct ddp_request **ret_request)
{
    int rc = new_request(g, 0, ret_request);
    if (rc == DDP_OK)
        (*ret_request)->is_done = true;
    return rc;
}

int requests_start_message(struct ddp_group *g, const struct message *m,
                           struct ddp_request **ret_request)
{
    struct ddp_request *r = NULL;
    int rc = new_request(g, 0, &r);
    if (rc != DDP_OK)
        return rc;
    r->is_message = true;
    r->message = *m;
    r->message.timeout_ms = g->call_timeout_ms;
    r->message.err = &r->err;
    int code = g->backend->ops->message_begin(g->backend, &r->message, &r->err);
    if (code != 0) {
        rc = rt_return(code, &r->err);
        free_request(r);
        return rc;
    }
    *ret_request = r;
    return DDP_OK;
}

int ddp_wait(struct ddp_request *request)
{
    if (request == NULL)
        return DDP_OK;
    struct ddp_request *r = request;
    if (r->g == NULL) {
        free_request(r);
        return fail_ended("ddp_wait");
    }
    int rc = group_check("ddp_wait", r->g);
    if (rc != DDP_OK)
        return rc;
    if (r->is_message)
        wait_for_message(r->g, r);
    else if (r->g->backend != NULL)
        wait_for_collective(r->g->requests, r);
    rc = rt_return(r->is_message ? r->message.code : r->code, &r->err);
    free_request(r);
    return rc;
}

int ddp_test(struct ddp_request *request, int *ret_done)
{
    if (request == NULL || ret_done == NULL)
        return rt_fail(DDP_EINVAL, "ddp_test: request or ret_done is NULL");
    struct ddp_group *g = request->g;
    if (g == NULL)
        return fail_ended("ddp_test");
    int rc = group_check("ddp_test", g);
    if (rc != DDP_OK)
        return rc;
    if (g->backend == NULL) {
        *ret_done = 1;
        return DDP_OK;
    }
    if (!g->requests->has_thread)
        advance_all(g->requests);
    lock(g->requests);
    const bool is_done = request->is_done;
    unlock(g->requests);
    g->backend->ops->p2p_shm_advance(g->backend, NULL);
    *ret_done = request->is_message ? atomic_load(&request->message.done) : is_done;
    return DDP_OK;
}
