/* test_threads.c - ranks as threads of one process, on one mapping of the segments, so that the
 * thread sanitizer sees every access that is not ordered by the protocol. The suite "tsan" runs it
 * under it. */
#include "common/error.h"
#include "ranks.h"
#include "segments/control.h"
#include "values.h"
#include "worker-runtime/backend.h"
#include "worker-runtime/backend_cpu.h"
#include "worker-runtime/transport_shm.h"
#include "worker-runtime/user_segment.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

enum { N_MAX = 4, SEGMENT_BYTES = 16 << 20 };

struct node {
    unsigned n;
    int fd;
    struct control *control;
    struct user_segment *segment[N_MAX];
    uint8_t *user[N_MAX];
    const struct reduce_kernels *kernels;
    uint64_t timeout_ms;
    bool spin;
    atomic_uint progress; /* calls begun by all ranks together */
    pthread_barrier_t everybody;
};

struct rank {
    struct node *node;
    unsigned rank;
    pthread_t thread;
    struct backend *backend;
    int (*body)(struct rank *r);
    int result;
    struct co_error err;
};

static void leave(void *arg)
{
    struct rank *r = arg;
    control_leave(r->node->control, r->rank);
}

/* Errors go back as results: the check library's assertions belong to the main thread. */
static void *run_rank(void *arg)
{
    struct rank *r = arg;
    struct node *node = r->node;
    struct transport_shm *shm = NULL;
    struct transport_shm_opts opts = {.control = node->control,
                                      .local_rank = r->rank,
                                      .spin = node->spin,
                                      .timeout_ms = node->timeout_ms};
    r->result = control_join(node->control, r->rank, (uint32_t)getpid());
    if (r->result == 0)
        r->result = transport_shm_create(&opts, &shm, &r->err);
    struct backend_cpu_opts cpu = {.shm = shm,
                                   .own = node->segment[r->rank],
                                   .user = node->user,
                                   .kernels = node->kernels,
                                   .on_destroy = leave,
                                   .arg = r};
    if (r->result == 0)
        r->result = backend_cpu_create(&cpu, &r->backend, &r->err);
    pthread_barrier_wait(&node->everybody); /* all have joined, as after ddp_init() */
    if (r->result != 0)
        return NULL;
    r->result = r->body(r);
    if (r->backend != NULL)
        r->backend->ops->destroy(r->backend);
    return NULL;
}

static void node_init(struct node *node, unsigned n)
{
    bool known;
    *node = (struct node){.n = n, .timeout_ms = 60000, .kernels = reduce_choose("scalar", &known)};
    ck_assert_int_eq(control_create(n, 0, &node->fd, &node->control, NULL), 0);
    ck_assert_int_eq(pthread_barrier_init(&node->everybody, NULL, n), 0);
    for (unsigned i = 0; i < n; i++) {
        ck_assert_int_eq(user_segment_create(SEGMENT_BYTES, &node->segment[i], NULL), 0);
        node->user[i] = user_segment_base(node->segment[i]);
    }
}

static void node_start(struct node *node, struct rank *ranks, int (*body)(struct rank *r))
{
    for (unsigned i = 0; i < node->n; i++) {
        ranks[i] = (struct rank){.node = node, .rank = i, .body = body};
        ck_assert_int_eq(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]), 0);
    }
}

static void node_join_threads(struct node *node, struct rank *ranks)
{
    for (unsigned i = 0; i < node->n; i++)
        ck_assert_int_eq(pthread_join(ranks[i].thread, NULL), 0);
}

static void node_run(struct node *node, struct rank *ranks, int (*body)(struct rank *r))
{
    node_start(node, ranks, body);
    node_join_threads(node, ranks);
}

static void node_fini(struct node *node)
{
    for (unsigned i = 0; i < node->n; i++)
        user_segment_destroy(node->segment[i]);
    control_unmap(node->control);
    close(node->fd);
    pthread_barrier_destroy(&node->everybody);
}

/* --- all is well ------------------------------------------------------------------------------ */

#define EXPECT(r, condition)                                                                       \
    if (!(condition))                                                                              \
    return co_fail(&(r)->err, -EIO, "line %d: %s", __LINE__, #condition)

static int reduce_once(struct rank *r, float *in, float *out, size_t count, uint32_t i)
{
    const struct backend_ops *ops = r->backend->ops;
    unsigned n = r->node->n, root = i % n;
    float *expected = values_reduced(DDP_FLOAT32, DDP_SUM, i, (int)n, count);
    values_fill(in, DDP_FLOAT32, i, (int)r->rank, count);
    int code = ops->all_reduce(r->backend, in, out, count, DDP_FLOAT32, DDP_SUM, NULL, &r->err);
    bool same = code != 0 || memcmp(out, expected, count * 4) == 0;
    if (code == 0)
        code =
            ops->reduce(r->backend, in, out, count, DDP_FLOAT32, DDP_SUM, (int)root, NULL, &r->err);
    same = same && (code != 0 || r->rank != root || memcmp(out, expected, count * 4) == 0);
    memset(in, 0, count * 4); /* the memory is ours again as soon as a call returns */
    free(expected);
    EXPECT(r, same);
    return code;
}

static int copy_once(struct rank *r, float *in, float *out, size_t count, uint32_t i)
{
    const struct backend_ops *ops = r->backend->ops;
    unsigned n = r->node->n, root = i % n;
    for (size_t k = 0; k < count; k++)
        in[k] = (float)(r->rank * 1000 + i % 1000);
    int code = ops->all_gather(r->backend, in, out, count, DDP_FLOAT32, NULL, &r->err);
    if (code != 0)
        return code;
    for (unsigned other = 0; other < n; other++)
        EXPECT(r, out[other * count] == (float)(other * 1000 + i % 1000));
    code = ops->broadcast(r->backend, in, out, count, DDP_FLOAT32, (int)root, NULL, &r->err);
    if (code != 0)
        return code;
    EXPECT(r, out[count - 1] == (float)(root * 1000 + i % 1000));
    memset(in, 0, count * 4);
    return 0;
}

static int run_mixture(struct rank *r)
{
    static const size_t counts[] = {1, 24, 25, 900, 2000, 5000, 33000, 70000};
    enum { MOST = 70000 };
    void *in = NULL, *out = NULL;
    float *plain_in = malloc(MOST * 4), *plain_out = malloc(MOST * 4 * N_MAX);
    const struct backend_ops *ops = r->backend->ops;
    int code = ops->alloc(r->backend, MOST * 4, &in, &r->err);
    if (code == 0)
        code = ops->alloc(r->backend, MOST * 4 * N_MAX, &out, &r->err);
    for (uint32_t i = 0; i < 96 && code == 0; i++) {
        size_t count = counts[value_mix(i) % (sizeof counts / sizeof *counts)];
        bool shared = i % 3 != 0, mixed = i % 3 == 2 && r->rank == 0;
        float *a = shared && !mixed ? in : plain_in, *b = shared ? out : plain_out;
        code = i % 2 == 0 ? reduce_once(r, a, b, count, i) : copy_once(r, a, b, count, i);
        if (code == 0 && i % 10 == 0)
            code = ops->barrier(r->backend, &r->err);
    }
    free(plain_in);
    free(plain_out);
    return code;
}

START_TEST(every_access_to_shared_memory_is_ordered)
{
    struct node node;
    struct rank ranks[N_MAX];
    bool known;
    node_init(&node, 2 + (unsigned)_i / 2);
    node.spin = _i % 2 == 0;
    if (_i == 5) /* the fast kernels once; the sanitizer sees more of the scalar ones */
        node.kernels = reduce_choose(NULL, &known);
    node_run(&node, ranks, run_mixture);
    for (unsigned i = 0; i < node.n; i++)
        ck_assert_msg(ranks[i].result == 0, "rank %u: %s", i, ranks[i].err.text);
    node_fini(&node);
}
END_TEST

/* --- failures: nobody touches a rank's memory once its call has returned ---------------------- */

static int run_until_it_breaks(struct rank *r)
{
    enum { COUNT = 600000 };
    const struct backend_ops *ops = r->backend->ops;
    void *in = NULL, *out = NULL;
    float *a, *b;
    int code = ops->alloc(r->backend, COUNT * 4, &in, &r->err);
    if (code == 0)
        code = ops->alloc(r->backend, COUNT * 4, &out, &r->err);
    a = in;
    b = out;
    for (int i = 0; code == 0; i++) {
        atomic_fetch_add(&r->node->progress, 1);
        code = ops->all_reduce(r->backend, a, b, COUNT, DDP_FLOAT32, DDP_SUM, NULL, &r->err);
        for (size_t k = 0; k < COUNT; k += 1000) /* ours again: a late access would be a race */
            a[k] = b[k] = 1;
    }
    return code;
}

START_TEST(a_call_that_failed_has_given_the_memory_back)
{
    struct node node;
    struct rank ranks[N_MAX];
    node_init(&node, 3);
    node.spin = true;
    node_start(&node, ranks, run_until_it_breaks);
    while (atomic_load(&node.progress) < 12 + (unsigned)_i) /* in the midst of it, here or there */
        sched_yield();
    control_abort_set(node.control, (struct control_abort){.cause = CONTROL_JOB_STOPPING});
    node_join_threads(&node, ranks);
    for (unsigned i = 0; i < node.n; i++) {
        ck_assert_int_eq(ranks[i].result, -ECONNRESET);
        ck_assert_ptr_nonnull(strstr(ranks[i].err.text, "ddprun is stopping the job"));
    }
    node_fini(&node);
}
END_TEST

static int run_mismatch(struct rank *r)
{
    const struct backend_ops *ops = r->backend->ops;
    double x[8] = {0};
    if (r->rank == 1)
        return ops->broadcast(r->backend, x, x, 8, DDP_FLOAT64, 0, NULL, &r->err);
    return ops->all_reduce(r->backend, x, x, 8, DDP_FLOAT64, DDP_SUM, NULL, &r->err);
}

START_TEST(a_mismatch_is_found_by_all)
{
    struct node node;
    struct rank ranks[N_MAX];
    node_init(&node, 3);
    node_run(&node, ranks, run_mismatch);
    for (unsigned i = 0; i < node.n; i++) {
        ck_assert_int_eq(ranks[i].result, -EPROTO);
        ck_assert_ptr_nonnull(
            strstr(ranks[i].err.text, "rank 1 called broadcast(float64, 8, root 0)"));
    }
    node_fini(&node);
}
END_TEST

static int run_leaving(struct rank *r)
{
    if (r->rank == 2)
        return 0;
    return r->backend->ops->barrier(r->backend, &r->err);
}

START_TEST(a_rank_that_left_is_named)
{
    struct node node;
    struct rank ranks[N_MAX];
    node_init(&node, 3);
    node_run(&node, ranks, run_leaving);
    ck_assert_int_eq(ranks[2].result, 0);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(ranks[i].result, -ECONNRESET);
        ck_assert_ptr_nonnull(strstr(ranks[i].err.text, "rank 2 left"));
    }
    node_fini(&node);
}
END_TEST

/* Rank 1 says that it touches others' memory and then stands still, as one that was stopped by a
 * signal does: rank 0 must not return memory that rank 1 may still write to. */
static int run_stuck(struct rank *r)
{
    struct node *node = r->node;
    if (r->rank == 1) {
        struct transport_shm *shm;
        struct transport_shm_opts opts = {
            .control = node->control, .local_rank = 1, .timeout_ms = 60000};
        union transport_shm_note *note;
        struct call call = {.kind = CALL_BARRIER};
        int code = transport_shm_create(&opts, &shm, &r->err);
        if (code == 0)
            code = transport_shm_open(shm, &call, &note, &r->err);
        EXPECT(r, code == 0 && transport_shm_touch_begin(shm));
        pthread_barrier_wait(&node->everybody);
        pthread_barrier_wait(&node->everybody); /* rank 0's call has returned */
        transport_shm_touch_end(shm);
        transport_shm_destroy(shm);
        return 0;
    }
    void *p;
    int code = r->backend->ops->alloc(r->backend, 1000, &p, &r->err);
    EXPECT(r, code == 0);
    memset(p, 7, 1000);
    pthread_barrier_wait(&node->everybody);
    code = r->backend->ops->barrier(r->backend, &r->err);
    uint8_t *peer;
    EXPECT(r, user_segment_map_peer(user_segment_fd(node->segment[0]), SEGMENT_BYTES, &peer,
                                    &r->err) == 0);
    memset(peer, 9, 4096); /* what the stuck rank would do next */
    EXPECT(r, *(uint8_t *)p == 7);
    user_segment_unmap_peer(peer, SEGMENT_BYTES);
    pthread_barrier_wait(&node->everybody);
    return code;
}

START_TEST(memory_is_withdrawn_from_a_rank_that_is_stuck_in_it)
{
    struct node node;
    struct rank ranks[N_MAX];
    node_init(&node, 2);
    node.timeout_ms = 100;
    node_run(&node, ranks, run_stuck);
    ck_assert_msg(ranks[0].result == -ETIMEDOUT, "%d %s", ranks[0].result, ranks[0].err.text);
    ck_assert_msg(ranks[1].result == 0, "%s", ranks[1].err.text);
    node_fini(&node);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("threads");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 200);
    tcase_add_loop_test(tcase, every_access_to_shared_memory_is_ordered, 0, 6);
    tcase_add_loop_test(tcase, a_call_that_failed_has_given_the_memory_back, 0, 10);
    tcase_add_test(tcase, a_mismatch_is_found_by_all);
    tcase_add_test(tcase, a_rank_that_left_is_named);
    tcase_add_test(tcase, memory_is_withdrawn_from_a_rank_that_is_stuck_in_it);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
