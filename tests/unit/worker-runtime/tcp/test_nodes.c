/* test_nodes.c - collectives of ranks on several nodes: each kind and form, type, operation, kind
 * of memory, in place and not, against results worked out here. */
#include "tests/support/sanitized.h"
#include "tests/unit/worker-runtime/nodes.h"

#include "worker-runtime/tcp/backend_net.h"

#include <netinet/in.h>
#include <sys/mman.h>

/* On both sides of every switch of algorithm, inside and between nodes. */
static const size_t lengths[] = {0, 8, 96, 1000, 16392, 40000, 140000, 400008, 1500000};

static const struct nodes grids[] = {
    {.n = 2, .n_ranks = 2, .size = {1, 1}},       {.n = 2, .n_ranks = 4, .size = {2, 2}},
    {.n = 3, .n_ranks = 3, .size = {1, 1, 1}},    {.n = 2, .n_ranks = 3, .size = {2, 1}},
    {.n = 3, .n_ranks = 6, .size = {2, 1, 3}},    {.n = 4, .n_ranks = 8, .size = {2, 2, 2, 2}},
    {.n = 2, .n_ranks = 4, .size = {2, 2}, true}, {.n = 3, .n_ranks = 5, .size = {2, 2, 1}, true},
};

/* More nodes, also in numbers that nothing divides: sums of each type, whole and in parts. */
static const struct nodes wide_grids[] = {
    {.n = 4, .n_ranks = 4, .size = {1, 1, 1, 1}},
    {.n = 5, .n_ranks = 5, .size = {1, 1, 1, 1, 1}},
    {.n = 7, .n_ranks = 7, .size = {1, 1, 1, 1, 1, 1, 1}},
};

enum { AREA_BYTES = 4 << 20 };

/* Two areas for expected sums, in turns, which the ranks of a test share: each works out a part. */
static uint8_t *sums;

struct grid {
    struct ddp_group *g;
    const struct nodes *nodes;
    uint8_t *shared, *plain; /* two areas each */
    int rank;
    uint32_t salt;
    unsigned n_sums; /* so many were worked out */
};

static bool is_even(const struct nodes *n)
{
    for (int k = 1; k < n->n; k++)
        if (n->size[k] != n->size[0])
            return false;
    return true;
}

/* What the inputs of all ranks add up to. Before a rank writes into the same area again, all ranks
 * have passed the barrier of the sum in between, and no longer read this. */
static const uint8_t *share_sums(struct grid *t, const struct exchange *x)
{
    uint8_t *all = sums + t->n_sums++ % 2 * AREA_BYTES;
    const size_t size = ddp_dtype_size(x->dtype), count = exchange_in_count(x, x->rank);
    const size_t first = count * (size_t)x->rank / (size_t)x->n;
    const size_t end = count * (size_t)(x->rank + 1) / (size_t)x->n;
    uint8_t *part = nodes_reduced(t->nodes, x->dtype, x->op, x->salt, first, end - first);
    memcpy(all + first * size, part, (end - first) * size);
    free(part);
    RANK_CHECK(t->rank, ddp_barrier(t->g) == DDP_OK, "barrier");
    return all;
}

/* What the rank must get, or NULL. */
static uint8_t *expected_of(struct grid *t, const struct exchange *x)
{
    if (!call_is_reduction(x->kind))
        return exchange_expected(x);
    const size_t size = ddp_dtype_size(x->dtype), out_bytes = exchange_out_count(x) * size;
    uint8_t *expected = malloc(out_bytes + 1);
    memcpy(expected, share_sums(t, x) + exchange_first(x, x->rank, x->rank) * size, out_bytes);
    return expected;
}

static void try_exchange(struct grid *t, struct exchange *x, bool shared, bool in_place)
{
    if (x->op == DDP_AVG && !is_even(t->nodes) && call_is_reduction(x->kind))
        x->dtype = DDP_INT32; /* the weights are tested apart */
    const size_t size = ddp_dtype_size(x->dtype);
    size_t in_at = 0, out_at = 0;
    x->n = t->nodes->n_ranks;
    x->rank = t->rank;
    x->salt = ++t->salt;
    x->root = (int)(x->salt % (unsigned)x->n);
    exchange_init(x);
    if (in_place)
        exchange_in_place(x, &in_at, &out_at);
    uint8_t *area = shared ? t->shared : t->plain;
    uint8_t *out = area + AREA_BYTES + out_at * size;
    uint8_t *in = in_place ? area + AREA_BYTES + in_at * size : area;
    const size_t in_bytes = exchange_in_count(x, x->rank) * size;
    const size_t out_bytes = exchange_out_count(x) * size;
    RANK_CHECK(t->rank, in_bytes <= AREA_BYTES && out_bytes <= AREA_BYTES, "room");
    exchange_fill(x, in);
    uint8_t *before = malloc(in_bytes + 1);
    memcpy(before, in, in_bytes);
    int rc = exchange_call(x, t->g, in, out);
    RANK_CHECK(t->rank, rc == DDP_OK, "%s", call_kind_name(x->kind));
    uint8_t *expected = expected_of(t, x);
    RANK_CHECK(t->rank, memcmp(out, expected, out_bytes) == 0,
               "%s%s of type %s, op %d, count %zu, root %d, shared %d, in place %d",
               call_kind_name(x->kind), x->has_counts ? "_v" : "", call_dtype_name(x->dtype), x->op,
               x->count, x->root, shared, in_place);
    RANK_CHECK(t->rank, in_place || memcmp(in, before, in_bytes) == 0, "the input changed");
    free(expected);
    free(before);
}

static void try_kinds(struct grid *t, size_t bytes)
{
    for (int kind = CALL_ALL_REDUCE; kind <= CALL_ALL_TO_ALL; kind++) {
        for (int variant = 0; variant < 8; variant++) {
            struct exchange x = {.kind = (enum call_kind)kind,
                                 .has_counts = variant / 2 % 2 == 1,
                                 .dtype = (enum ddp_dtype)(t->salt % REDUCE_N_DTYPES),
                                 .op = (enum ddp_op)(t->salt / 3 % (DDP_PROD + 1))};
            const bool in_place = variant % 2 == 1;
            x.count = bytes / ddp_dtype_size(x.dtype);
            if (exchange_deals(&x) || exchange_collects(&x))
                x.count /= (size_t)t->nodes->n_ranks;
            if (exchange_has_form(x.kind, x.has_counts) &&
                !(in_place && x.has_counts && x.kind == CALL_ALL_TO_ALL))
                try_exchange(t, &x, variant / 4 == 1, in_place);
            else
                t->salt++;
        }
    }
}

static void try_sums(struct grid *t)
{
    static const size_t counts[] = {1, 33, 30001};
    for (int dtype = 0; dtype < REDUCE_N_DTYPES; dtype++)
        for (int op = 0; op < REDUCE_N_OPS; op++)
            for (int i = 0; i < 3; i++) {
                struct exchange x = {.kind = CALL_ALL_REDUCE,
                                     .dtype = (enum ddp_dtype)dtype,
                                     .op = (enum ddp_op)op,
                                     .count = counts[i]};
                if (reduce_is_defined(x.dtype, x.op))
                    try_exchange(t, &x, i % 2 == 1, i % 2 == 0);
            }
}

static void open_grid(struct grid *t, int rank, const struct nodes *nodes)
{
    void *p;
    *t = (struct grid){.g = rank_init(rank, 60000), .nodes = nodes, .rank = rank};
    RANK_CHECK(rank, ddp_alloc(t->g, 2 * AREA_BYTES, &p) == DDP_OK, "memory");
    t->shared = p;
    t->plain = aligned_alloc(64, 2 * AREA_BYTES);
}

static void check_places(const struct grid *t)
{
    int node, local;
    nodes_place(t->nodes, t->rank, &node, &local);
    RANK_CHECK(t->rank, ddp_rank(t->g) == t->rank && ddp_world_size(t->g) == t->nodes->n_ranks,
               "rank");
    RANK_CHECK(t->rank, ddp_n_nodes(t->g) == t->nodes->n && ddp_node_rank(t->g) == node, "node");
    RANK_CHECK(t->rank,
               ddp_local_rank(t->g) == local && ddp_local_world_size(t->g) == t->nodes->size[node],
               "local rank");
}

static int run_grid(int rank, void *arg)
{
    struct grid t;
    open_grid(&t, rank, arg);
    check_places(&t);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        try_kinds(&t, lengths[l]);
        RANK_CHECK(rank, ddp_barrier(t.g) == DDP_OK, "barrier");
    }
    try_sums(&t);
    ddp_finalize(t.g);
    return 0;
}

START_TEST(every_collective_gives_the_reference_bits_on_every_node)
{
    struct ranks r;
    nodes_start(&r, &grids[_i], run_grid, (void *)&grids[_i]);
    ranks_expect_success(&r);
}
END_TEST

static int run_wide_grid(int rank, void *arg)
{
    struct grid t;
    open_grid(&t, rank, arg);
    check_places(&t);
    try_sums(&t);
    try_kinds(&t, 16392); /* of these the sums go whole, all between two nodes */
    ddp_finalize(t.g);
    return 0;
}

START_TEST(sums_of_many_nodes_have_the_reference_bits)
{
    struct ranks r;
    nodes_start(&r, &wide_grids[_i], run_wide_grid, (void *)&wide_grids[_i]);
    ranks_expect_success(&r);
}
END_TEST

/* --- long vectors, many segments -------------------------------------------------------------- */

static int run_long(int rank, void *arg)
{
    enum { COUNT = 5 * 1000 * 1000 + 7 };
    const struct nodes *nodes = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    float *x = malloc(COUNT * sizeof *x);
    uint8_t *expected = nodes_reduced(nodes, DDP_FLOAT32, DDP_SUM, 9, 0, COUNT);
    for (int i = 0; i < 3; i++) {
        values_fill(x, DDP_FLOAT32, 9, rank, COUNT);
        RANK_CHECK(rank, ddp_all_reduce(g, x, x, COUNT, DDP_FLOAT32, DDP_SUM, NULL) == DDP_OK,
                   "all_reduce");
        RANK_CHECK(rank, memcmp(x, expected, COUNT * sizeof *x) == 0, "another sum");
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(a_long_sum_has_the_same_bits_each_time)
{
    struct ranks r;
    nodes_start(&r, &grids[_i], run_long, (void *)&grids[_i]);
    ranks_expect_success(&r);
}
END_TEST

/* So many nodes that a node passes on what it has received (worker-runtime/cost/cost.h). */
static const struct many {
    struct nodes nodes;
    enum cost_algo algo;
    size_t from_bytes, to_bytes;
} many[] = {
    {{.n = 14, .n_ranks = 16, .size = {1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1}},
     COST_DOUBLING,
     0,
     2400},
    {{.n = 16, .n_ranks = 16, .size = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
     COST_DOUBLING,
     0,
     2400},
    {{.n = 15, .n_ranks = 17, .size = {1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1}},
     COST_PASSING,
     40000,
     56000},
    {{.n = 16, .n_ranks = 32, .size = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}},
     COST_PASSING,
     40000,
     56000},
};

static int run_many(int rank, void *arg)
{
    enum { N = 4, MOST = 60000 / sizeof(double) };
    static const enum ddp_dtype types[] = {DDP_FLOAT32, DDP_BFLOAT16, DDP_INT8, DDP_FLOAT64};
    static const enum ddp_op ops[] = {DDP_SUM, DDP_MAX, DDP_PROD};
    const struct many *m = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    static double in[MOST], out[MOST];
    for (uint32_t i = 0; i < N; i++) {
        const enum ddp_dtype dtype = types[i % 4];
        const enum ddp_op op = dtype == DDP_INT8 && i % 3 == 0 ? DDP_AVG : ops[i % 3];
        const size_t size = ddp_dtype_size(dtype);
        const size_t count = i < N / 2 ? m->from_bytes / size + i : m->to_bytes / size - (N - i);
        void *at = i % 2 == 0 ? in : out;
        RANK_CHECK(rank,
                   net_tuning_algo(&NET_TUNING_DEFAULT, (unsigned)m->nodes.n, count * size) ==
                       m->algo,
                   "another algorithm for %zu elements", count);
        values_fill(in, dtype, i, rank, count);
        uint8_t *expected = nodes_reduced(&m->nodes, dtype, op, i, 0, count);
        RANK_CHECK(rank, ddp_all_reduce(g, in, at, count, dtype, op, NULL) == DDP_OK, "sum %u", i);
        RANK_CHECK(rank, memcmp(at, expected, count * size) == 0, "sum %u", i);
        free(expected);
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(sums_that_nodes_pass_on_have_the_reference_bits)
{
    struct ranks r;
    nodes_start(&r, &many[_i].nodes, run_many, (void *)&many[_i]);
    ranks_expect_success(&r);
}
END_TEST

/* --- lanes ------------------------------------------------------------------------------------ */

static int run_with_lanes(int rank, void *arg)
{
    struct grid t;
    if (rank == 1) /* the smaller number counts */
        setenv("DDP_SOCKET_LANES", "5", 1);
    open_grid(&t, rank, arg);
    for (int i = 0; i < 2; i++) { /* the first time the lanes are made */
        try_kinds(&t, 1500000);
        RANK_CHECK(rank, ddp_barrier(t.g) == DDP_OK, "barrier");
    }
    ddp_finalize(t.g);
    return run_long(rank, arg);
}

START_TEST(exchanges_over_lanes_give_the_reference_bits)
{
    struct ranks r;
    setenv("DDP_SOCKET_LANES", "3", 1);
    nodes_start(&r, &grids[_i], run_with_lanes, (void *)&grids[_i]);
    ranks_expect_success(&r);
    unsetenv("DDP_SOCKET_LANES");
}
END_TEST

/* Whatever they choose. For the third group rank 1 has a number, and no rank measures. */
static int run_measuring(int rank, void *arg)
{
    struct grid t;
    for (int i = 0; i < 3; i++) { /* the second group joins with the answer */
        if (rank == 1 && i == 2)
            setenv("DDP_SOCKET_LANES", "2", 1);
        open_grid(&t, rank, arg);
        try_kinds(&t, 1500000);
        free(t.plain);
        ddp_finalize(t.g);
    }
    return 0;
}

START_TEST(ranks_that_measure_lanes_get_the_reference_bits)
{
    struct ranks r;
    setenv("DDP_SOCKET_LANES", "auto", 1);
    nodes_start(&r, &grids[1 + _i], run_measuring, (void *)&grids[1 + _i]);
    ranks_expect_success(&r);
    unsetenv("DDP_SOCKET_LANES");
}
END_TEST

enum { FD_MOST = 256, LANE_COUNT = 6 * 1000 * 1000, LANES = 3, MOST_SUMS = 200 };

/* The connections that this process has. */
static void list_connections(bool is_one[FD_MOST])
{
    for (int fd = 0; fd < FD_MOST; fd++) {
        struct sockaddr_storage peer;
        socklen_t size = sizeof peer;
        is_one[fd] =
            getpeername(fd, (struct sockaddr *)&peer, &size) == 0 && peer.ss_family == AF_INET;
    }
}

static int begin_sum(const struct grid *t, float *x, struct ddp_request **ret)
{
    values_fill(x, DDP_FLOAT32, 9, t->rank, LANE_COUNT);
    return ddp_iall_reduce(t->g, x, x, LANE_COUNT, DDP_FLOAT32, DDP_SUM, NULL, ret);
}

/* Sums, until rank 1 has all lanes: a lane may take longer to open than a sum. */
static void open_lanes(const struct grid *t, float *x, const bool *before, bool *after)
{
    float is_missing = 1;
    for (int i = 0; i < MOST_SUMS && is_missing > 0; i++) {
        struct ddp_request *request;
        int n = 0;
        RANK_CHECK(t->rank, begin_sum(t, x, &request) == DDP_OK, "begin");
        RANK_CHECK(t->rank, ddp_wait(request) == DDP_OK, "wait");
        list_connections(after);
        for (int fd = 0; fd < FD_MOST; fd++)
            n += after[fd] && !before[fd];
        is_missing = t->rank == 1 && n < LANES;
        RANK_CHECK(t->rank,
                   ddp_all_reduce(t->g, &is_missing, &is_missing, 1, DDP_FLOAT32, DDP_SUM, NULL) ==
                       DDP_OK,
                   "all_reduce");
    }
}

/* Rank 1 breaks the lanes in the midst of sums: one after the other, until none is left. */
static int run_losing_lanes(int rank, void *arg)
{
    const struct nodes *nodes = arg;
    struct grid t = {.g = rank_init(rank, 60000), .nodes = nodes, .rank = rank};
    uint8_t *expected = nodes_reduced(nodes, DDP_FLOAT32, DDP_SUM, 9, 0, LANE_COUNT);
    float *x = malloc(LANE_COUNT * sizeof *x);
    bool before[FD_MOST], after[FD_MOST];
    int n_broken = 0;
    RANK_CHECK(rank, ddp_barrier(t.g) == DDP_OK, "barrier");
    list_connections(before);
    open_lanes(&t, x, before, after);
    for (int round = 0; round < 4; round++) {
        struct ddp_request *request;
        int done = 0;
        RANK_CHECK(rank, begin_sum(&t, x, &request) == DDP_OK, "begin");
        for (int i = 0; i < 40 && !done; i++)
            RANK_CHECK(rank, ddp_test(request, &done) == DDP_OK, "test");
        for (int fd = 0; rank == 1 && fd < FD_MOST; fd++)
            if (!before[fd] && after[fd]) {
                n_broken += shutdown(fd, SHUT_RDWR) == 0;
                after[fd] = false;
                break;
            }
        RANK_CHECK(rank, ddp_wait(request) == DDP_OK, "round %d", round);
        RANK_CHECK(rank, memcmp(x, expected, LANE_COUNT * sizeof *x) == 0, "round %d", round);
    }
    RANK_CHECK(rank, rank != 1 || n_broken == LANES, "%d lanes were broken", n_broken);
    ddp_finalize(t.g);
    return 0;
}

START_TEST(a_lane_that_breaks_costs_nothing_but_itself)
{
    struct ranks r;
    setenv("DDP_SOCKET_LANES", "3", 1);
    nodes_start(&r, &grids[_i], run_losing_lanes, (void *)&grids[_i]);
    ranks_expect_success(&r);
    unsetenv("DDP_SOCKET_LANES");
}
END_TEST

/* --- averages where nodes differ -------------------------------------------------------------- */

static int run_uneven_average(int rank, void *arg)
{
    enum { COUNT = 100000 };
    const struct nodes *nodes = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    double *x = malloc(COUNT * sizeof *x);
    for (size_t count = 1; count <= COUNT; count += COUNT - 1) {
        for (size_t i = 0; i < count; i++)
            x[i] = (double)rank + (double)i;
        RANK_CHECK(rank, ddp_all_reduce(g, x, x, count, DDP_FLOAT64, DDP_AVG, NULL) == DDP_OK,
                   "avg");
        const double mean = (nodes->n_ranks - 1) / 2.0;
        for (size_t i = 0; i < count; i++)
            RANK_CHECK(rank, x[i] > mean + (double)i - 1e-6 && x[i] < mean + (double)i + 1e-6,
                       "element %zu is %g", i, x[i]);
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(ranks_have_equal_weight_in_an_average_on_any_node)
{
    struct ranks r;
    nodes_start(&r, &grids[4], run_uneven_average, (void *)&grids[4]);
    ranks_expect_success(&r);
}
END_TEST

/* --- asynchronous calls ----------------------------------------------------------------------- */

static int run_async(int rank, void *arg)
{
    enum { N = 12, COUNT = 30000 };
    const bool thread = *(bool *)arg;
    struct ddp_group *g;
    struct ddp_init_opts opts = {.timeout_ms = 60000, .progress_thread = thread ? 1 : -1};
    RANK_CHECK(rank, ddp_init(&opts, &g) == DDP_OK, "init");
    static float data[N][COUNT];
    struct ddp_request *request[N];
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < COUNT; k++)
            data[i][k] = (float)(rank + i);
        RANK_CHECK(rank,
                   ddp_iall_reduce(g, data[i], data[i], i % 2 == 0 ? COUNT : 10, DDP_FLOAT32,
                                   DDP_SUM, NULL, &request[i]) == DDP_OK,
                   "begin");
    }
    for (int i = N; i-- > 0;) {
        int done = 0;
        while (!done)
            RANK_CHECK(rank, ddp_test(request[i], &done) == DDP_OK, "test");
        RANK_CHECK(rank, ddp_wait(request[i]) == DDP_OK, "wait");
        RANK_CHECK(rank, data[i][9] == (float)(6 + 4 * i), "%d: %g", i, (double)data[i][9]);
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(asynchronous_calls_are_made_in_their_order)
{
    bool thread = _i == 1;
    struct ranks r;
    nodes_start(&r, &grids[1], run_async, &thread);
    ranks_expect_success(&r);
}
END_TEST

/* --- by which way ----------------------------------------------------------------------------- */

/* A sum, and messages round the ring: each kind of connection. */
static int run_all_connections(int rank, void *arg)
{
    const struct nodes *nodes = arg;
    const int n = nodes->n_ranks;
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_request *request;
    int32_t x = 1, from = -1;
    RANK_CHECK(rank, ddp_all_reduce(g, &x, &x, 1, DDP_INT32, DDP_SUM, NULL) == DDP_OK, "sum");
    RANK_CHECK(rank, x == n, "%d", x);
    x = rank;
    RANK_CHECK(rank,
               ddp_irecv(g, &from, 1, DDP_INT32, (rank + n - 1) % n, 0, NULL, &request) == DDP_OK,
               "receive");
    RANK_CHECK(rank, ddp_send(g, &x, 1, DDP_INT32, (rank + 1) % n, 0, NULL) == DDP_OK, "send");
    RANK_CHECK(rank, ddp_wait(request) == DDP_OK && from == (rank + n - 1) % n, "%d", from);
    ddp_finalize(g);
    return 0;
}

START_TEST(nodes_reach_each_other_through_the_named_interface)
{
    struct ranks r;
    setenv("DDP_SOCKET_IFNAME", "lo", 1);
    nodes_start(&r, &grids[1], run_all_connections, (void *)&grids[1]);
    ranks_expect_success(&r);
    unsetenv("DDP_SOCKET_IFNAME");
}
END_TEST

static bool has_ipv6(void)
{
    struct sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&loopback, sizeof loopback) == 0;
    if (fd >= 0)
        close(fd);
    return has;
}

START_TEST(nodes_reach_each_other_over_ipv6)
{
    struct store_process there;
    struct ranks r;
    store_start_at(&there, "::1");
    nodes_start(&r, &grids[1], run_all_connections, (void *)&grids[1]);
    ranks_expect_success(&r);
    store_stop(&there);
}
END_TEST

static struct store_process store;

static void set_up(void)
{
    sums = mmap(NULL, 2 * AREA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(sums, MAP_FAILED);
    store_start(&store);
}

static void tear_down(void)
{
    store_stop(&store);
    munmap(sums, 2 * AREA_BYTES);
}

/* A sanitizer looks at what each call does, and needs fewer of the grids. */
enum {
    N_GRIDS = SANITIZED ? 5 : sizeof grids / sizeof *grids,
    N_LONG = SANITIZED ? 2 : 4,
};

TEST_SUITE(nodes)
{
    static const int n_wide = sizeof wide_grids / sizeof *wide_grids;
    Suite *suite = suite_create("nodes");
    TCase *tcase = tcase_create("all");
    tcase_add_unchecked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 200);
    tcase_add_loop_test(tcase, every_collective_gives_the_reference_bits_on_every_node, 0, N_GRIDS);
    tcase_add_loop_test(tcase, sums_of_many_nodes_have_the_reference_bits, 0, n_wide);
    tcase_add_loop_test(tcase, sums_that_nodes_pass_on_have_the_reference_bits, 0,
                        sizeof many / sizeof *many);
    tcase_add_loop_test(tcase, a_long_sum_has_the_same_bits_each_time, 0, N_LONG);
    tcase_add_loop_test(tcase, exchanges_over_lanes_give_the_reference_bits, 0, N_LONG);
    tcase_add_loop_test(tcase, ranks_that_measure_lanes_get_the_reference_bits, 0, 2);
    tcase_add_loop_test(tcase, a_lane_that_breaks_costs_nothing_but_itself, 0, 1);
    tcase_add_test(tcase, ranks_have_equal_weight_in_an_average_on_any_node);
    tcase_add_loop_test(tcase, asynchronous_calls_are_made_in_their_order, 0, 2);
    tcase_add_test(tcase, nodes_reach_each_other_through_the_named_interface);
    if (has_ipv6())
        tcase_add_test(tcase, nodes_reach_each_other_over_ipv6);
    else
        puts("nodes_reach_each_other_over_ipv6: skipped, this machine has no IPv6");
    suite_add_tcase(suite, tcase);
    return suite;
}
