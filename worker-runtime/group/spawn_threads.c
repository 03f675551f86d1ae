/* spawn_threads.c - ddp_spawn_threads(): ranks as threads, on one mapping of what processes would
 * share: a control segment, and a user segment for each. */
#include "common/error.h"
#include "common/scope.h"
#include "first_failure.h"
#include "group_join.h"
#include "segments/control.h"
#include "worker-runtime/arithmetic/reduce.h"
#include "worker-runtime/core/backend.h"
#include "worker-runtime/core/cpus.h"
#include "worker-runtime/core/user_segment.h"
#include "worker-runtime/shm/backend_cpu.h"
#include "worker-runtime/shm/cpu_tuning.h"
#include "worker-runtime/shm/transport_shm.h"

#include <ddp/env.h>
#include <ddp/spawn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct thread {
    struct threads *all;
    int rank;
    pthread_t id;
    struct ddp_group *world; /* owned by the thread */
    struct co_error err;     /* of joining */
    int status;
    uint32_t order; /* in which it ended */
    char text[CO_ERROR_TEXT_BYTES];
};

struct threads {
    int (*fn)(struct ddp_group *world, void *arg);
    void *arg;
    int n;
    struct thread *thread; /* owned; n */
    struct control *control;
    int control_fd;
    struct user_segment **segment; /* owned; n, and each */
    uint8_t **user;                /* owned; n */
    const struct reduce_kernels *kernels;
    struct cpu_tunings tunings;
    struct ddp_group options; /* options of all of them, from the environment */
    bool spin;
    pthread_mutex_t lock;
    pthread_cond_t opened;
    enum { SHUT, OPEN, CANCELLED } gate;
    atomic_int n_failed; /* to join */
    pthread_barrier_t everybody;
    _Atomic uint32_t n_ended;
};

/* --- the gate: all threads are made, or none continues ---------------------------------------- */

static bool gate_wait(struct threads *a)
{
    pthread_mutex_lock(&a->lock);
    while (a->gate == SHUT)
        pthread_cond_wait(&a->opened, &a->lock);
    const bool goes_on = a->gate == OPEN;
    pthread_mutex_unlock(&a->lock);
    return goes_on;
}

static void gate_open(struct threads *a, bool goes_on)
{
    pthread_mutex_lock(&a->lock);
    a->gate = goes_on ? OPEN : CANCELLED;
    pthread_cond_broadcast(&a->opened);
    pthread_mutex_unlock(&a->lock);
}

/* --- a thread --------------------------------------------------------------------------------- */

static void leave_control(void *arg)
{
    struct thread *t = arg;
    control_leave(t->all->control, (unsigned)t->rank);
}

static int open_backend(struct thread *t, struct backend **ret)
{
    struct threads *a = t->all;
    struct transport_shm *shm;
    struct transport_shm_opts transport = {
        .control = a->control, .spin = a->spin, .timeout_ms = a->options.timeout_ms};
    int code = control_join(a->control, (unsigned)t->rank, (uint32_t)getpid());
    if (code != 0)
        return co_fail(&t->err, code, "the control segment: %s", strerror(-code));
    code = transport_shm_create_world(&transport, (unsigned)t->rank, &shm, &t->err);
    struct backend_cpu_opts cpu = {.shm = shm,
                                   .own = a->segment[t->rank],
                                   .user = a->user,
                                   .kernels = a->kernels,
                                   .tunings = &a->tunings,
                                   .may_cma = true,
                                   .on_destroy = leave_control,
                                   .arg = t};
    if (code == 0 && (code = backend_cpu_create(&cpu, ret, &t->err)) != 0)
        transport_shm_destroy(shm);
    if (code != 0)
        leave_control(t);
    return code;
}

static int join_group(struct thread *t)
{
    struct threads *a = t->all;
    co_autofree struct world *w = group_create_world();
    if (w == NULL)
        return co_fail(&t->err, -ENOMEM, "out of memory");
    w->group = (struct ddp_group){.world = w,
                                  .rank = t->rank,
                                  .world_size = a->n,
                                  .local_rank = t->rank,
                                  .local_world_size = a->n,
                                  .n_nodes = 1,
                                  .timeout_ms = a->options.timeout_ms,
                                  .progress_thread = a->options.progress_thread,
                                  .is_apart = true};
    const int code = a->n > 1 ? open_backend(t, &w->group.backend) : 0;
    if (code == 0)
        t->world = &co_take(&w)->group;
    return code;
}

static void run_function(struct thread *t)
{
    struct threads *a = t->all;
    if (t->status == 0 && atomic_load(&a->n_failed) == 0) {
        group_lend(t->world);
        t->status = group_check_result("ddp_spawn_threads", t->world, a->fn(t->world, a->arg));
    }
    snprintf(t->text, sizeof t->text, "%s", t->status != 0 ? ddp_last_error() : "");
    t->order = atomic_fetch_add(&a->n_ended, 1) + 1;
}

static void close_world(void *arg)
{
    struct thread *t = arg;
    group_close(t->world);
}

static void *run_thread(void *arg)
{
    struct thread *t = arg;
    struct threads *a = t->all;
    if (!gate_wait(a))
        return NULL;
    rt_set_apart(true);
    t->status = rt_return(join_group(t), &t->err);
    atomic_fetch_add(&a->n_failed, t->status != 0);
    pthread_barrier_wait(&a->everybody);  /* all have joined, as after ddp_init() */
    pthread_cleanup_push(close_world, t); /* also after pthread_exit(): the peers get the failure */
    run_function(t);
    pthread_cleanup_pop(1);
    return NULL;
}

/* --- all of them ------------------------------------------------------------------------------ */

static int read_environment(struct threads *a, struct co_error *err)
{
    static const struct ddp_init_opts defaults;
    struct cpus_mask mask;
    bool known;
    a->kernels = reduce_choose(getenv(DDP_ENV_SIMD), &known);
    cpus_get_mask(&mask);
    a->spin = (unsigned)a->n <= cpus_count(&mask) && (unsigned)a->n <= cpus_quota();
    int code = group_read_options(&defaults, &a->options, err);
    return code == 0 ? cpu_tuning_read(getenv(DDP_ENV_TUNING), &a->tunings, err) : code;
}

static int make_segments(struct threads *a, struct co_error *err)
{
    uint64_t bytes;
    int code = control_create((unsigned)a->n, 0, &a->control_fd, &a->control, err);
    if (code == 0)
        code = user_segment_size(getenv(DDP_ENV_SEGMENT_BYTES), (unsigned)a->n, &bytes, err);
    for (int r = 0; code == 0 && r < a->n; r++) {
        code = user_segment_create(bytes, &a->segment[r], err);
        if (code == 0)
            a->user[r] = user_segment_base(a->segment[r]);
    }
    return code;
}

static int prepare_threads(struct threads *a, struct co_error *err)
{
    a->control_fd = -1;
    a->thread = calloc((size_t)a->n, sizeof *a->thread);
    a->segment = calloc((size_t)a->n, sizeof *a->segment);
    a->user = calloc((size_t)a->n, sizeof *a->user);
    if (a->thread == NULL || a->segment == NULL || a->user == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int code = read_environment(a, err);
    return code == 0 && a->n > 1 ? make_segments(a, err) : code;
}

static void free_threads(struct threads *a)
{
    for (int r = 0; a->segment != NULL && r < a->n; r++)
        user_segment_destroy(a->segment[r]);
    control_unmap(a->control);
    if (a->control_fd >= 0)
        close(a->control_fd);
    free(a->thread);
    free(a->segment);
    free(a->user);
}

/* --- all of them, at work --------------------------------------------------------------------- */

static int run_all(struct threads *a, struct co_error *err)
{
    int n_started = 0, code = 0;
    while (code == 0 && n_started < a->n) {
        struct thread *t = &a->thread[n_started];
        t->all = a;
        t->rank = n_started;
        code = -pthread_create(&t->id, NULL, run_thread, t);
        n_started += code == 0;
    }
    if (code != 0)
        co_fail(err, code == -EAGAIN ? -ENOMEM : code, "cannot create thread %d of %d: %s",
                n_started, a->n, strerror(-code));
    gate_open(a, code == 0);
    for (int r = 0; r < n_started; r++)
        pthread_join(a->thread[r].id, NULL);
    return code;
}

static int judge_ends(const struct threads *a)
{
    struct rank_end ends[CONTROL_MAX_LOCAL];
    for (int r = 0; r < a->n; r++)
        ends[r] = (struct rank_end){.order = a->thread[r].order,
                                    .status = a->thread[r].status,
                                    .exit_status = a->thread[r].order == 0 ? 256 : 0};
    const int first = first_failure_find(ends, a->n);
    if (first < 0)
        return 0;
    const struct thread *t = &a->thread[first];
    const bool was_apart = rt_set_apart(true);
    const int rc = t->order == 0 ? rt_fail(DDP_EPEER,
                                           "ddp_spawn_threads: rank %d of %d called pthread_exit() "
                                           "before its function returned",
                                           first, a->n)
                                 : rt_fail(t->status, "rank %d of %d: %s", first, a->n, t->text);
    rt_set_apart(was_apart);
    return rc;
}

int ddp_spawn_threads(int (*fn)(struct ddp_group *world, void *arg), int n, void *arg)
{
    struct co_error err = {0};
    if (fn == NULL)
        return rt_fail_null("ddp_spawn_threads", "function");
    if (n < 1 || n > CONTROL_MAX_LOCAL)
        return rt_fail(DDP_EINVAL, "ddp_spawn_threads: invalid value %d for n: expected 1 to %d", n,
                       CONTROL_MAX_LOCAL);
    struct threads a = {.fn = fn,
                        .arg = arg,
                        .n = n,
                        .lock = PTHREAD_MUTEX_INITIALIZER,
                        .opened = PTHREAD_COND_INITIALIZER};
    int code = -pthread_barrier_init(&a.everybody, NULL, (unsigned)n);
    if (code != 0)
        return rt_fail(DDP_ENOMEM, "ddp_spawn_threads: a barrier: %s", strerror(-code));
    code = prepare_threads(&a, &err);
    if (code == 0)
        code = run_all(&a, &err);
    int rc = code != 0 ? rt_return(code, &err) : judge_ends(&a);
    free_threads(&a);
    pthread_barrier_destroy(&a.everybody);
    return rc;
}
