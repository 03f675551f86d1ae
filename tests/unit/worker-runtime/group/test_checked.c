/* test_checked.c - all_reduce that reports whether its result is finite: in each shape, of each
 * type. */
#include "tests/unit/worker-runtime/nodes.h"

#include <math.h>

struct shape { /* what leads to it, with three ranks */
    const char *name;
    size_t bytes;
    bool is_shared;
    const char *tuning; /* DDP_TUNING */
};

static const struct shape shapes[] = {
    {"note", 96, false, ""},
    {"one-shot", 3000, false, ""},
    {"direct", 1100000, true, ""},
    {"staged", 300000, false, "ranks 3: cma_sum=never"},
    {"cma", 300000, false, "ranks 3: cma_sum=64K"},
};
static const enum ddp_dtype floats[] = {DDP_FLOAT32, DDP_FLOAT64, DDP_FLOAT16, DDP_BFLOAT16};

enum { N = 3, N_SHAPES = sizeof shapes / sizeof *shapes, N_FLOATS = 4 };

static void put(uint8_t *at, enum ddp_dtype dtype, double x)
{
    const uint16_t f16 = half_to_f16((float)x), bf16 = half_to_bf16((float)x);
    const float f32 = (float)x;
    memcpy(at,
           dtype == DDP_FLOAT64   ? (const void *)&x
           : dtype == DDP_FLOAT32 ? (const void *)&f32
           : dtype == DDP_FLOAT16 ? (const void *)&f16
                                  : (const void *)&bf16,
           ddp_dtype_size(dtype));
}

/* The largest number of a type: twice that is too much. */
static double largest(enum ddp_dtype dtype)
{
    return dtype == DDP_FLOAT64   ? 0x1.fffffffffffffp1023
           : dtype == DDP_FLOAT32 ? 0x1.fffffep127
           : dtype == DDP_FLOAT16 ? 65504
                                  : 0x1.fep127;
}

struct scene {
    struct ddp_group *g;
    int rank;
    enum ddp_dtype dtype;
    size_t count;
    uint8_t *in, *out;
};

static void fill(const struct scene *s, double x)
{
    for (size_t i = 0; i < s->count; i++)
        put(s->in + i * ddp_dtype_size(s->dtype), s->dtype, x);
}

static void expect(const struct scene *s, int expected, const char *what)
{
    int found = 7;
    int rc = ddp_all_reduce_checked(s->g, s->in, s->out, s->count, s->dtype, DDP_SUM, NULL, &found);
    RANK_CHECK(s->rank, rc == DDP_OK, "%s", what);
    RANK_CHECK(s->rank, found == expected, "%s of type %s, %zu elements: %d", what,
               call_dtype_name(s->dtype), s->count, found);
}

/* One element of one rank, at the beginning, somewhere, and at the end. */
static void plant(const struct scene *s, double x, const char *what)
{
    const size_t places[] = {0, s->count / 2, s->count - 1};
    for (int owner = 0; owner < ddp_world_size(s->g); owner++) {
        fill(s, 1);
        if (s->rank == owner)
            put(s->in + places[owner % 3] * ddp_dtype_size(s->dtype), s->dtype, x);
        expect(s, 1, what);
    }
}

static void try_all(const struct scene *s)
{
    fill(s, 1);
    expect(s, 0, "finite numbers");
    plant(s, INFINITY, "an infinity");
    plant(s, NAN, "a NaN");
    fill(s, 0);
    put(s->in + (s->count - 1) * ddp_dtype_size(s->dtype), s->dtype, largest(s->dtype));
    expect(s, 1, "a sum that is too large");
    fill(s, s->rank == 1 ? largest(s->dtype) : 0);
    expect(s, 0, "the largest number");
}

static int run_shape(int rank, void *arg)
{
    const struct shape *shape = arg;
    setenv("DDP_TUNING", shape->tuning, 1);
    struct scene s = {.g = rank_init(rank, 60000), .rank = rank};
    void *p;
    RANK_CHECK(rank, ddp_alloc(s.g, 2 * shape->bytes, &p) == DDP_OK, "ddp_alloc");
    uint8_t *plain = calloc(2, shape->bytes);
    s.in = shape->is_shared ? p : plain;
    for (int d = 0; d < N_FLOATS; d++) {
        s.dtype = floats[d];
        s.count = shape->bytes / ddp_dtype_size(s.dtype);
        s.out = d % 2 == 0 ? s.in : s.in + shape->bytes; /* in place, and not */
        try_all(&s);
    }
    ddp_finalize(s.g);
    return 0;
}

START_TEST(nonfinite_values_are_found_by_all_ranks_in_each_shape)
{
    struct ranks r;
    ranks_start(&r, N, run_shape, (void *)&shapes[_i]);
    ranks_expect_success(&r);
}
END_TEST

/* --- between nodes, and alone ----------------------------------------------------------------- */

static int run_small_and_large(int rank, void *arg)
{
    static const size_t counts[] = {1, 50, 40000};
    struct scene s = {.g = rank_init(rank, 60000), .rank = rank};
    (void)arg;
    s.in = s.out = calloc(40000, 8);
    for (int i = 0; i < 3; i++)
        for (int d = 0; d < N_FLOATS; d++) {
            s.dtype = floats[d];
            s.count = counts[i];
            fill(&s, 1);
            expect(&s, 0, "finite numbers");
            plant(&s, INFINITY, "an infinity");
            plant(&s, NAN, "a NaN");
        }
    ddp_finalize(s.g);
    return 0;
}

START_TEST(nonfinite_values_are_found_on_all_nodes)
{
    const struct nodes nodes = {.n = 2, .n_ranks = 3, .size = {2, 1}};
    struct store_process store;
    struct ranks r;
    store_start(&store);
    nodes_start(&r, &nodes, run_small_and_large, NULL);
    ranks_expect_success(&r);
    store_stop(&store);
}
END_TEST

START_TEST(a_world_of_one_checks_its_input)
{
    struct ranks r;
    ranks_start(&r, 1, run_small_and_large, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* --- the call itself -------------------------------------------------------------------------- */

/* A queue of calls, of which every second one has something to find. */
static int run_queue(int rank, void *arg)
{
    enum { CALLS = 20, COUNT = 6000 };
    static float x[CALLS][COUNT];
    struct ddp_request *requests[CALLS];
    int found[CALLS];
    if (*(bool *)arg)
        setenv("DDP_PROGRESS_THREAD", "1", 1);
    struct ddp_group *g = rank_init(rank, 60000);
    for (int i = 0; i < CALLS; i++) {
        const size_t count = i % 3 == 0 ? 10 : i % 3 == 1 ? 1000 : COUNT;
        if (i % 2 == 1 && rank == i % N)
            x[i][count - 1] = NAN;
        found[i] = 7;
        RANK_CHECK(rank,
                   ddp_iall_reduce_checked(g, x[i], x[i], count, DDP_FLOAT32, DDP_AVG, NULL,
                                           &found[i], &requests[i]) == DDP_OK,
                   "%d", i);
    }
    for (int i = 0; i < CALLS; i++) {
        RANK_CHECK(rank, ddp_wait(requests[i]) == DDP_OK, "%d", i);
        RANK_CHECK(rank, found[i] == i % 2, "call %d: %d", i, found[i]);
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(each_asynchronous_call_returns_its_own_answer)
{
    bool has_thread = _i == 1;
    struct ranks r;
    ranks_start(&r, N, run_queue, &has_thread);
    ranks_expect_success(&r);
}
END_TEST

static int run_arguments(int rank, void *arg)
{
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_request *request;
    int32_t whole[] = {INT32_MAX, -1};
    int found = 7;
    (void)arg;
    RANK_CHECK(rank,
               ddp_all_reduce_checked(g, whole, whole, 2, DDP_INT32, DDP_SUM, NULL, NULL) ==
                   DDP_EINVAL,
               "nowhere to say so");
    RANK_CHECK(rank,
               ddp_iall_reduce_checked(g, whole, whole, 2, DDP_INT32, DDP_SUM, NULL, NULL,
                                       &request) == DDP_EINVAL,
               "nowhere to say so");
    RANK_CHECK(rank,
               ddp_all_reduce_checked(g, whole, whole, 2, DDP_INT32, DDP_SUM, NULL, &found) ==
                       DDP_OK &&
                   found == 0,
               "integers are finite");
    RANK_CHECK(rank,
               ddp_all_reduce_checked(g, NULL, NULL, 0, DDP_FLOAT32, DDP_SUM, NULL, &found) ==
                       DDP_OK &&
                   found == 0,
               "nothing is finite");
    ddp_finalize(g);
    return 0;
}

START_TEST(integers_and_empty_inputs_are_finite)
{
    struct ranks r;
    ranks_start(&r, N, run_arguments, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_odd(int rank, void *arg)
{
    struct ddp_group *g = rank_init(rank, 60000);
    float x = 1;
    int found, rc;
    (void)arg;
    rc = rank == 1 ? ddp_all_reduce_checked(g, &x, &x, 1, DDP_FLOAT32, DDP_SUM, NULL, &found)
                   : ddp_all_reduce(g, &x, &x, 1, DDP_FLOAT32, DDP_SUM, NULL);
    RANK_CHECK(rank, rc == DDP_EMISMATCH, "got %s", ddp_strerror(rc));
    RANK_CHECK(
        rank,
        strstr(ddp_last_error(),
               "rank 1 called ddp_all_reduce_checked(float32, sum, 1) as call #1 where rank 0 "
               "called ddp_all_reduce(float32, sum, 1)") != NULL,
        "both sides");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_mismatch_of_checked_and_plain_calls_names_both_sides)
{
    struct ranks r;
    ranks_start(&r, 2, run_odd, NULL);
    ranks_expect_success(&r);
}
END_TEST

TEST_SUITE(checked)
{
    Suite *suite = suite_create("checked");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 200);
    tcase_add_loop_test(tcase, nonfinite_values_are_found_by_all_ranks_in_each_shape, 0, N_SHAPES);
    tcase_add_test(tcase, nonfinite_values_are_found_on_all_nodes);
    tcase_add_test(tcase, a_world_of_one_checks_its_input);
    tcase_add_loop_test(tcase, each_asynchronous_call_returns_its_own_answer, 0, 2);
    tcase_add_test(tcase, integers_and_empty_inputs_are_finite);
    tcase_add_test(tcase, a_mismatch_of_checked_and_plain_calls_names_both_sides);
    suite_add_tcase(suite, tcase);
    return suite;
}
