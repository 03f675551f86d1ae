/* test_threads.c - ranks as threads of one process, on one mapping of the segments, so that the
 * thread sanitizer sees every access that is not ordered by the protocol. The suite "tsan" runs it
 * under it. */
#include "common/error.h"
#include "segments/control.h"
#include "tests/unit/worker-runtime/exchange.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/core/backend.h"
#include "worker-runtime/core/user_segment.h"
#include "worker-runtime/shm/backend_cpu.h"
#include "worker-runtime/shm/cpu_tuning.h"
#include "worker-runtime/shm/transport_shm.h"

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
    bool spin, may_cma;
    int seed;
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
    struct cpu_tunings tunings = {.n_rows = 1, .row = {{.n_ranks = CPU_TUNING_MOST_RANKS}}};
    struct cpu_tuning *tuning = &tunings.row[0].tuning;
    *tuning = *cpu_tuning_for(&cpu_tunings_default, CPU_TUNING_MOST_RANKS);
    tuning->cma_bytes = tuning->cma_sum_bytes = 100000; /* so that this test also uses CMA */
    struct transport_shm_opts opts = {
        .control = node->control, .spin = node->spin, .timeout_ms = node->timeout_ms};
    r->result = control_join(node->control, r->rank, (uint32_t)getpid());
    if (r->result == 0)
        r->result = transport_shm_create_world(&opts, r->rank, &shm, &r->err);
    struct backend_cpu_opts cpu = {.shm = shm,
                                   .own = node->segment[r->rank],
                                   .user = node->user,
                                   .kernels = node->kernels,
                                   .tunings = &tunings,
                                   .may_cma = node->may_cma,
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

static int run_barrier(struct rank *r)
{
    return backend_run(r->backend, &(struct collective){.kind = CALL_BARRIER}, &r->err);
}

static int expect_exchange(struct rank *r, const struct exchange *x, const void *out)
{
    uint8_t *expected = exchange_expected(x);
    bool same = memcmp(out, expected, exchange_out_count(x) * ddp_dtype_size(x->dtype)) == 0;
    free(expected);
    if (same)
        return 0;
    return co_fail(&r->err, -EIO, "rank %u: kind %d, counts %d, type %d, %zu elements, root %d",
                   r->rank, x->kind, x->has_counts, x->dtype, x->count, x->root);
}

struct buffers {
    uint8_t *in, *out;
};

static int exchange_once(struct rank *r, struct exchange *x, struct buffers b, bool in_place)
{
    const size_t size = ddp_dtype_size(x->dtype);
    size_t in_at = 0, out_at = 0;
    x->n = (int)r->node->n;
    x->rank = (int)r->rank;
    exchange_init(x);
    if (in_place)
        exchange_in_place(x, &in_at, &out_at);
    uint8_t *in = in_place ? b.out + in_at * size : b.in, *out = b.out + out_at * size;
    exchange_fill(x, in);
    struct collective what = exchange_collective(x, in, out);
    int code = backend_run(r->backend, &what, &r->err);
    if (code == 0)
        code = expect_exchange(r, x, out);
    memset(in, 0, exchange_in_count(x, x->rank) * size); /* ours again, once the call returned */
    return code;
}

enum { MIXTURE = 160, MOST_BYTES = 300000 };

/* One of many: kinds, forms, lengths, memory, in place or not. */
static int mixture_once(struct rank *r, uint32_t i, struct buffers shared, struct buffers plain)
{
    static const size_t bytes[] = {8, 24, 88, 96, 900, 4000, 20000, 132000, MOST_BYTES};
    const uint32_t dice = value_mix(i * 7919u + (uint32_t)r->node->seed);
    struct exchange x = {.kind = CALL_ALL_REDUCE + dice % (CALL_ALL_TO_ALL - CALL_ALL_REDUCE + 1),
                         .dtype = (enum ddp_dtype)((dice >> 4) % REDUCE_N_DTYPES),
                         .op = (enum ddp_op)((dice >> 8) % (DDP_PROD + 1)),
                         .root = (int)((dice >> 12) % r->node->n),
                         .salt = i};
    const bool in_place = (dice >> 16) % 2 == 1;
    x.has_counts = (dice >> 17) % 3 == 0 && exchange_has_form(x.kind, true) &&
                   !(in_place && x.kind == CALL_ALL_TO_ALL);
    x.count = bytes[(dice >> 20) % (sizeof bytes / sizeof *bytes)] / ddp_dtype_size(x.dtype);
    if (exchange_deals(&x) || exchange_collects(&x))
        x.count /= r->node->n;
    const uint32_t memory = (dice >> 24) % 4; /* all shared, all plain, or some of each */
    bool in_shared = memory == 0 || (memory == 2 && r->rank == 0) || memory == 3;
    bool out_shared = memory == 0 || (memory == 2 && r->rank == 0);
    return exchange_once(
        r, &x,
        (struct buffers){in_shared ? shared.in : plain.in, out_shared ? shared.out : plain.out},
        in_place);
}

static int run_mixture(struct rank *r)
{
    enum { BYTES = 3 * MOST_BYTES };
    void *in = NULL, *out = NULL;
    struct buffers plain = {malloc(BYTES), malloc(BYTES)};
    const struct backend_ops *ops = r->backend->ops;
    int code = ops->alloc(r->backend, BYTES, &in, &r->err);
    if (code == 0)
        code = ops->alloc(r->backend, BYTES, &out, &r->err);
    for (uint32_t i = 0; i < MIXTURE && code == 0; i++) {
        code = mixture_once(r, i, (struct buffers){in, out}, plain);
        if (code == 0 && i % 10 == 0)
            code = run_barrier(r);
    }
    free(plain.in);
    free(plain.out);
    return code;
}

START_TEST(every_access_to_shared_memory_is_ordered)
{
    struct node node;
    struct rank ranks[N_MAX];
    bool known;
    node_init(&node, 2 + (unsigned)_i / 2);
    node.spin = _i % 2 == 0;
    node.seed = _i;
    node.may_cma = _i >= 2;
    if (_i == 5) /* the fast kernels once; the sanitizer sees more of the scalar ones */
        node.kernels = reduce_choose(NULL, &known);
    node_run(&node, ranks, run_mixture);
    for (unsigned i = 0; i < node.n; i++)
        ck_assert_msg(ranks[i].result == 0, "rank %u: %s", i, ranks[i].err.text);
    node_fini(&node);
}
END_TEST

/* Messages round the ring, short and long, of both kinds of memory. */
static int run_messages(struct rank *r)
{
    enum { LONG = 50000 };
    const struct backend_ops *ops = r->backend->ops;
    const int n = (int)r->node->n, me = (int)r->rank, from = (me + n - 1) % n;
    void *shared = NULL;
    int code = ops->alloc(r->backend, LONG * 4, &shared, &r->err);
    float *plain = malloc(LONG * 4), *got = malloc(LONG * 4), *expected = malloc(LONG * 4);
    bool same = true;
    for (uint32_t i = 0; i < 60 && code == 0 && same; i++) {
        const size_t count = i % 3 == 0 ? LONG : i * 40; /* around what rides along */
        struct co_error errs[2] = {0};
        struct message out = {.is_send = true, .peer = (me + 1) % n, .tag = 1, .count = count};
        struct message in = {.peer = from, .tag = 1, .count = count, .data = got};
        out.data = i % 2 == 0 ? shared : plain;
        out.err = &errs[0];
        in.err = &errs[1];
        values_fill(out.data, DDP_FLOAT32, i, me, count);
        values_fill(expected, DDP_FLOAT32, i, from, count);
        code = ops->message_begin(r->backend, &out, &r->err);
        if (code == 0)
            code = ops->message_begin(r->backend, &in, &r->err);
        if (code != 0)
            break;
        ops->p2p_shm_advance(r->backend, &in);
        ops->p2p_shm_advance(r->backend, &out);
        code = in.code != 0 ? in.code : out.code;
        same = memcmp(got, expected, count * 4) == 0;
        memset(out.data, 0, count * 4); /* ours again */
        if (code == 0 && i % 7 == 0)
            code = run_barrier(r);
    }
    free(plain);
    free(got);
    free(expected);
    EXPECT(r, same);
    return code;
}

START_TEST(every_access_to_messages_is_ordered)
{
    struct node node;
    struct rank ranks[N_MAX];
    node_init(&node, 2 + (unsigned)_i);
    node.may_cma = _i == 1;
    node_run(&node, ranks, run_messages);
    for (unsigned i = 0; i < node.n; i++)
        ck_assert_msg(ranks[i].result == 0, "rank %u: %s", i, ranks[i].err.text);
    node_fini(&node);
}
END_TEST

/* --- failures: no rank touches a rank's memory once its call has returned --------------------- */

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
    while (code == 0) {
        atomic_fetch_add(&r->node->progress, 1);
        struct collective sum = {.kind = CALL_ALL_REDUCE, .count = COUNT, .in = a, .out = b};
        code = backend_run(r->backend, &sum, &r->err);
        for (size_t k = 0; k < COUNT; k += 1000) /* ours again: a late access would be a race */
            a[k] = b[k] = 1;
    }
    return code;
}

START_TEST(a_failed_call_returns_the_memory)
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
    double x[8] = {0};
    struct collective what = {
        .kind = r->rank == 1 ? CALL_BROADCAST : CALL_ALL_REDUCE,
        .dtype = DDP_FLOAT64,
        .count = 8,
        .in = x,
        .out = x,
    };
    return backend_run(r->backend, &what, &r->err);
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
            strstr(ranks[i].err.text, "rank 1 called ddp_broadcast(float64, 8, root 0)"));
    }
    node_fini(&node);
}
END_TEST

static int run_leaving(struct rank *r)
{
    if (r->rank == 2)
        return 0;
    return run_barrier(r);
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

/* Rank 1 reports that it touches others' memory and then stops, like a rank that a signal stopped:
 * rank 0 must not return memory that rank 1 may still write to. */
static int run_stuck(struct rank *r)
{
    struct node *node = r->node;
    if (r->rank == 1) {
        struct transport_shm *shm;
        struct transport_shm_opts opts = {.control = node->control, .timeout_ms = 60000};
        union transport_shm_note *note;
        struct call call = {.kind = CALL_BARRIER};
        int code = transport_shm_create_world(&opts, 1, &shm, &r->err);
        if (code == 0)
            code = transport_shm_open(shm, &call, 0, &note, &r->err);
        EXPECT(r, code == 0 && transport_shm_touch_begin(shm, true));
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
    code = run_barrier(r);
    uint8_t *peer;
    EXPECT(r, user_segment_map_peer(user_segment_fd(node->segment[0]), SEGMENT_BYTES, &peer,
                                    &r->err) == 0);
    memset(peer, 9, 4096); /* what the stuck rank would do next */
    EXPECT(r, *(uint8_t *)p == 7);
    user_segment_unmap_peer(peer, SEGMENT_BYTES);
    pthread_barrier_wait(&node->everybody);
    return code;
}

START_TEST(memory_is_withdrawn_from_a_stuck_rank)
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

TEST_SUITE(threads)
{
    Suite *suite = suite_create("threads");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 200);
    tcase_add_loop_test(tcase, every_access_to_shared_memory_is_ordered, 0, 6);
    tcase_add_loop_test(tcase, every_access_to_messages_is_ordered, 0, 3);
    tcase_add_loop_test(tcase, a_failed_call_returns_the_memory, 0, 10);
    tcase_add_test(tcase, a_mismatch_is_found_by_all);
    tcase_add_test(tcase, a_rank_that_left_is_named);
    tcase_add_test(tcase, memory_is_withdrawn_from_a_stuck_rank);
    suite_add_tcase(suite, tcase);
    return suite;
}
