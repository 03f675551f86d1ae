#include "tests/unit/worker-runtime/exchange.h"
#include "tests/unit/worker-runtime/ranks.h"

#include <sched.h>

enum { IN_FLIGHT = 24, BYTES = 400000 };

/* The asynchronous form of exchange_call(). */
static int start(const struct exchange *x, struct ddp_group *g, const void *in, void *out,
                 struct ddp_request **r)
{
    const bool v = x->has_counts;
    switch (x->kind) {
    case CALL_ALL_REDUCE:
        return ddp_iall_reduce(g, in, out, x->count, x->dtype, x->op, NULL, r);
    case CALL_REDUCE:
        return ddp_ireduce(g, in, out, x->count, x->dtype, x->op, x->root, NULL, r);
    case CALL_BROADCAST:
        return ddp_ibroadcast(g, in, out, x->count, x->dtype, x->root, NULL, r);
    case CALL_ALL_GATHER:
        return v ? ddp_iall_gather_v(g, in, out, x->counts, x->dtype, NULL, r)
                 : ddp_iall_gather(g, in, out, x->count, x->dtype, NULL, r);
    case CALL_REDUCE_SCATTER:
        return v ? ddp_ireduce_scatter_v(g, in, out, x->counts, x->dtype, x->op, NULL, r)
                 : ddp_ireduce_scatter(g, in, out, x->count, x->dtype, x->op, NULL, r);
    case CALL_GATHER:
        return v ? ddp_igather_v(g, in, out, x->counts, x->dtype, x->root, NULL, r)
                 : ddp_igather(g, in, out, x->count, x->dtype, x->root, NULL, r);
    case CALL_SCATTER:
        return v ? ddp_iscatter_v(g, in, out, x->counts, x->dtype, x->root, NULL, r)
                 : ddp_iscatter(g, in, out, x->count, x->dtype, x->root, NULL, r);
    default:
        return v ? ddp_iall_to_all_v(g, in, x->in_counts, out, x->counts, x->dtype, NULL, r)
                 : ddp_iall_to_all(g, in, out, x->count, x->dtype, NULL, r);
    }
}

struct flight { /* a call on its way */
    struct exchange x;
    struct ddp_request *request;
    uint8_t *in, *out;
};

static void begin(struct flight *f, struct ddp_group *g, uint32_t i)
{
    static const size_t bytes[] = {8, 96, 1000, 20000, 140000, BYTES};
    const uint32_t dice = value_mix(i);
    const int n = ddp_world_size(g);
    f->x = (struct exchange){.kind = CALL_ALL_REDUCE + i % (CALL_ALL_TO_ALL - CALL_ALL_REDUCE + 1),
                             .n = n,
                             .rank = ddp_rank(g),
                             .root = (int)(dice % (unsigned)n),
                             .salt = i};
    f->x.has_counts = (dice >> 4) % 2 == 1 && exchange_has_form(f->x.kind, true);
    f->x.count = bytes[(dice >> 8) % (sizeof bytes / sizeof *bytes)] / 4 / (size_t)n;
    exchange_init(&f->x);
    exchange_fill(&f->x, f->in);
    struct exchange lent = f->x; /* the counts are copied: ours may go */
    RANK_CHECK(f->x.rank, start(&lent, g, f->in, f->out, &f->request) == DDP_OK, "begin");
    memset(&lent, 0xff, sizeof lent);
}

static void end(struct flight *f)
{
    RANK_CHECK(f->x.rank, ddp_wait(f->request) == DDP_OK, "wait");
    uint8_t *expected = exchange_expected(&f->x);
    RANK_CHECK(f->x.rank, memcmp(f->out, expected, exchange_out_count(&f->x) * 4) == 0,
               "%s, %zu elements, counts %d", call_kind_name(f->x.kind), f->x.count,
               f->x.has_counts);
    free(expected);
}

static void poll_until_done(int rank, struct ddp_request *r)
{
    int done = 0;
    while (!done) {
        RANK_CHECK(rank, ddp_test(r, &done) == DDP_OK, "test");
        sched_yield();
    }
}

static int run_many(int rank, void *arg)
{
    struct flight flight[IN_FLIGHT] = {0};
    setenv("DDP_PROGRESS_THREAD", *(bool *)arg ? "1" : "0", 1);
    struct ddp_group *g = rank_init(rank, 60000);
    for (int k = 0; k < IN_FLIGHT; k++) {
        void *p;
        RANK_CHECK(rank, ddp_alloc(g, 2 * BYTES, &p) == DDP_OK, "ddp_alloc");
        flight[k].in = k % 2 == 0 ? p : malloc(2 * BYTES);
        flight[k].out = malloc(2 * BYTES);
    }
    for (uint32_t round = 0; round < 12; round++) {
        for (uint32_t k = 0; k < IN_FLIGHT; k++)
            begin(&flight[k], g, round * IN_FLIGHT + k);
        if (round % 3 == 1) { /* a blocking call follows them */
            double one = 1, sum;
            RANK_CHECK(rank, ddp_all_reduce(g, &one, &sum, 1, DDP_FLOAT64, DDP_SUM, NULL) == DDP_OK,
                       "behind");
            RANK_CHECK(rank, sum == ddp_world_size(g), "%g", sum);
        }
        if (round % 3 == 2)
            poll_until_done(rank, flight[IN_FLIGHT / 2].request);
        for (uint32_t k = 0; k < IN_FLIGHT; k++) /* in another order than they were begun */
            end(&flight[(k * 7 + round) % IN_FLIGHT]);
    }
    struct ddp_request *r;
    RANK_CHECK(rank, ddp_ibarrier(g, &r) == DDP_OK && ddp_wait(r) == DDP_OK, "barrier");
    ddp_finalize(g);
    return 0;
}

START_TEST(calls_in_flight_run_in_order_and_complete_in_any_wait_order)
{
    bool thread = _i % 2 == 1;
    struct ranks r;
    ranks_start(&r, 2 + _i / 2, run_many, &thread);
    ranks_expect_success(&r);
}
END_TEST

/* ddp_test() returns although the others have not come. */
static int run_polling(int rank, void *arg)
{
    const int *pipes = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_request *r;
    float x = 1;
    char byte;
    int done = 1;
    if (rank == 1)
        RANK_CHECK(rank, read(pipes[0], &byte, 1) == 1, "gate");
    RANK_CHECK(rank, ddp_iall_reduce(g, &x, &x, 1, DDP_FLOAT32, DDP_SUM, NULL, &r) == DDP_OK, "i");
    if (rank == 0) {
        RANK_CHECK(rank, ddp_test(r, &done) == DDP_OK && !done, "rank 1 is not here");
        RANK_CHECK(rank, write(pipes[1], "x", 1) == 1, "gate");
    }
    poll_until_done(rank, r);
    RANK_CHECK(rank, ddp_wait(r) == DDP_OK && x == 2, "%g", (double)x);
    ddp_finalize(g);
    return 0;
}

START_TEST(a_test_does_not_wait_for_others)
{
    int pipes[2];
    struct ranks r;
    ck_assert_int_eq(pipe(pipes), 0);
    ranks_start(&r, 2, run_polling, pipes);
    ranks_expect_success(&r);
}
END_TEST

static int run_failing(int rank, void *arg)
{
    struct ddp_init_opts opts = {
        .start_timeout_ms = 60000, .timeout_ms = 60000, .progress_thread = *(bool *)arg ? 1 : -1};
    struct ddp_group *g;
    struct ddp_request *r[3];
    float x[3] = {0};
    RANK_CHECK(rank, ddp_init(&opts, &g) == DDP_OK, "init");
    for (int i = 0; i < 3; i++)
        RANK_CHECK(rank,
                   ddp_iall_reduce(g, &x[i], &x[i], rank == 1 && i == 1 ? 0 : 1, DDP_FLOAT32,
                                   DDP_SUM, NULL, &r[i]) == DDP_OK,
                   "begin");
    RANK_CHECK(rank, ddp_wait(r[0]) == DDP_OK, "the first is alike");
    for (int i = 2; i > 0; i--) {
        int rc = ddp_wait(r[i]);
        RANK_CHECK(rank, rc == DDP_EMISMATCH, "%d: got %s", i, ddp_strerror(rc));
        RANK_CHECK(rank, strstr(ddp_last_error(), "as call #2 where") != NULL, "text");
    }
    RANK_CHECK(rank, ddp_iall_reduce(g, x, x, 1, DDP_FLOAT32, DDP_SUM, NULL, NULL) == DDP_EINVAL,
               "ret_request");
    RANK_CHECK(rank, ddp_ibarrier(g, &r[0]) == DDP_OK, "begin");
    RANK_CHECK(rank, ddp_wait(r[0]) == DDP_EMISMATCH, "a broken group works on");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_wait_returns_the_error)
{
    bool thread = _i == 1;
    struct ranks r;
    ranks_start(&r, 3, run_failing, &thread);
    ranks_expect_success(&r);
}
END_TEST

static int run_alone(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 0);
    struct ddp_request *r;
    const size_t counts[] = {2};
    double in[2] = {1, 2}, out[2] = {0};
    int done = 0;
    RANK_CHECK(rank, ddp_iall_gather_v(g, in, out, counts, DDP_FLOAT64, NULL, &r) == DDP_OK, "i");
    RANK_CHECK(rank, ddp_test(r, &done) == DDP_OK && done, "done at once");
    RANK_CHECK(rank, ddp_wait(r) == DDP_OK && out[1] == 2, "%g", out[1]);
    RANK_CHECK(rank, ddp_send(g, in, 1, DDP_FLOAT64, 0, 0, NULL) == DDP_EINVAL, "to itself");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_request_of_a_single_rank_is_done_at_once)
{
    struct ranks r;
    ranks_start(&r, 1, run_alone, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_environment(int rank, void *arg)
{
    struct ddp_group *g;
    setenv("DDP_PROGRESS_THREAD", "yes", 1);
    RANK_CHECK(rank, ddp_init(NULL, &g) == DDP_EENV, "thread");
    RANK_CHECK(rank, strstr(ddp_last_error(), "'yes' for DDP_PROGRESS_THREAD") != NULL, "text");
    unsetenv("DDP_PROGRESS_THREAD");
    setenv("DDP_TIMEOUT", "soon", 1);
    RANK_CHECK(rank, ddp_init(NULL, &g) == DDP_EENV, "time");
    RANK_CHECK(rank, strstr(ddp_last_error(), "'soon' for DDP_TIMEOUT") != NULL, "text");
    setenv("DDP_TIMEOUT", "0", 1);
    RANK_CHECK(rank, ddp_init(NULL, &g) == DDP_EENV, "0");
    setenv("DDP_TIMEOUT", "500ms", 1);
    RANK_CHECK(rank, ddp_init(NULL, &g) == DDP_OK, "init");
    if (rank == 0) {
        RANK_CHECK(rank, ddp_barrier(g) == DDP_ETIMEOUT, "rank 1 does not come");
        RANK_CHECK(rank, strstr(ddp_last_error(), "timed out after 0.5 s waiting for rank") != NULL,
                   "text");
        RANK_CHECK(rank, write(((int *)arg)[1], "x", 1) == 1, "gate");
    } else {
        char byte;
        RANK_CHECK(rank, read(((int *)arg)[0], &byte, 1) == 1, "gate");
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(the_environment_sets_timeout_and_thread)
{
    int pipes[2];
    struct ranks r;
    ck_assert_int_eq(pipe(pipes), 0);
    ranks_start(&r, 2, run_environment, pipes);
    ranks_expect_success(&r);
}
END_TEST

/* A request of the world or of a part of it, which ends before the request is waited for. */
struct unwaited {
    int n;
    bool thread, sub, is_message;
};

static int run_unwaited(int rank, void *arg)
{
    const struct unwaited *u = arg;
    struct ddp_request *r[3];
    struct ddp_group *g, *used;
    int done = 7, x = 1, y = 0;
    setenv("DDP_PROGRESS_THREAD", u->thread ? "1" : "0", 1);
    g = used = rank_init(rank, 60000);
    RANK_CHECK(rank, !u->sub || ddp_group_split(g, 0, rank, &used) == 0, "split");
    for (int i = 0; i < 3; i++) {
        int rc = !u->is_message ? ddp_iall_reduce(used, &x, &y, 1, DDP_INT32, DDP_SUM, NULL, &r[i])
                 : rank == 0    ? ddp_isend(used, &x, 1, DDP_INT32, 1, 0, NULL, &r[i])
                                : ddp_irecv(used, &y, 1, DDP_INT32, 0, 0, NULL, &r[i]);
        RANK_CHECK(rank, rc == 0, "start");
    }
    RANK_CHECK(rank, ddp_wait(r[0]) == 0 && ddp_barrier(used) == 0, "the first");
    if (u->sub)
        ddp_group_destroy(used);
    else
        ddp_finalize(g);
    RANK_CHECK(rank, ddp_test(r[2], &done) == DDP_EINVAL && done == 7, "test");
    RANK_CHECK(rank, ddp_wait(r[2]) == DDP_EINVAL, "the last");
    RANK_CHECK(rank, ddp_wait(r[1]) == DDP_EINVAL, "the second");
    RANK_CHECK(rank, strstr(ddp_last_error(), "ddp_wait: the group of the request was destroyed"),
               "text");
    if (u->sub)
        ddp_finalize(g);
    return 0;
}

/* A request that the other rank never matches. */
static int run_unmet(int rank, void *arg)
{
    struct ddp_request *r = NULL;
    setenv("DDP_PROGRESS_THREAD", *(bool *)arg ? "1" : "0", 1);
    struct ddp_group *g = rank_init(rank, 60000);
    RANK_CHECK(rank, rank == 1 || ddp_ibarrier(g, &r) == 0, "start");
    ddp_finalize(g);
    RANK_CHECK(rank, ddp_wait(r) == (rank == 0 ? DDP_EINVAL : 0), "wait");
    return 0;
}

START_TEST(a_request_in_flight_whose_group_has_ended_fails)
{
    bool thread = _i == 1;
    struct ranks r;
    ranks_start(&r, 2, run_unmet, &thread);
    ranks_expect_success(&r);
}
END_TEST

START_TEST(a_request_whose_group_has_ended_fails)
{
    struct unwaited u = {.n = 1 + _i / 8, .thread = _i & 1, .sub = _i & 2, .is_message = _i & 4};
    struct ranks r;
    if (u.n == 1 && u.is_message) /* a single rank has no peer to send to */
        return;
    ranks_start(&r, u.n, run_unwaited, &u);
    ranks_expect_success(&r);
}
END_TEST

TEST_SUITE(requests)
{
    Suite *suite = suite_create("requests");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 200);
    tcase_add_loop_test(tcase, calls_in_flight_run_in_order_and_complete_in_any_wait_order, 0, 6);
    tcase_add_test(tcase, a_test_does_not_wait_for_others);
    tcase_add_loop_test(tcase, a_wait_returns_the_error, 0, 2);
    tcase_add_test(tcase, a_request_of_a_single_rank_is_done_at_once);
    tcase_add_test(tcase, the_environment_sets_timeout_and_thread);
    tcase_add_loop_test(tcase, a_request_in_flight_whose_group_has_ended_fails, 0, 2);
    tcase_add_loop_test(tcase, a_request_whose_group_has_ended_fails, 0, 16);
    suite_add_tcase(suite, tcase);
    return suite;
}
