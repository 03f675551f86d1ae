/* test_nodes_failures.c - a rank is killed, or stopped, in the midst of each collective between
 * nodes; ranks that differ; ranks that leave, or never come. */
#include "tests/unit/worker-runtime/nodes.h"
#include "tests/unit/worker-runtime/timeouts.h"

static const struct nodes grids[] = {
    {.n = 2, .n_ranks = 2, .size = {1, 1}},
    {.n = 2, .n_ranks = 4, .size = {2, 2}},
    {.n = 3, .n_ranks = 6, .size = {2, 1, 3}},
};
static const size_t lengths[] = {64, 3000000}; /* one exchange; many segments */

enum {
    VICTIM = 1,
    N_GRIDS = sizeof grids / sizeof *grids,
    N_KINDS = CALL_ALL_TO_ALL - CALL_ALL_REDUCE + 2, /* and the barrier */
    N_CASES = N_KINDS * N_GRIDS * 2,
    /* of the cases: root waits for the rank that was stopped, and all others wait for root */
    LONG_SCATTER = N_KINDS * (N_GRIDS + 1) + CALL_SCATTER - CALL_ALL_REDUCE,
    STOP_TIMEOUT_MS = 3000, /* longer than a rank that lives waits for a processor */
};

static struct store_process store;

struct loop {
    enum call_kind kind;
    const struct nodes *nodes;
    size_t bytes;
    int expected;
    char whom[32];
    uint64_t timeout_ms;
    int report; /* a pipe: a byte per rank once it is in the midst of the loop */
};

static int run_until_broken(int rank, void *arg)
{
    const struct loop *loop = arg;
    struct ddp_group *g = rank_init(rank, loop->timeout_ms);
    struct exchange x = {
        .kind = loop->kind, .dtype = DDP_INT32, .n = loop->nodes->n_ranks, .rank = rank};
    x.count = loop->bytes / 4;
    if (exchange_deals(&x) || exchange_collects(&x))
        x.count /= (size_t)x.n;
    exchange_init(&x);
    uint8_t *in = calloc(1, loop->bytes + 64), *out = calloc(1, loop->bytes + 64);
    int rc = DDP_OK;
    for (unsigned i = 0; rc == DDP_OK; i++) {
        if (i == 5)
            RANK_CHECK(rank, write(loop->report, "x", 1) == 1, "report");
        rc = exchange_call(&x, g, in, out);
    }
    RANK_CHECK(rank, rc == loop->expected, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, strstr(ddp_last_error(), loop->whom) != NULL, "expected: %s", loop->whom);
    RANK_CHECK(rank, strstr(ddp_last_error(), call_kind_name(loop->kind)) != NULL, "in what");
    for (size_t k = 0; k < loop->bytes; k++) /* whatever came: all ranks give zeros */
        RANK_CHECK(rank, out[k] == 0, "byte %zu of the result is %#x", k, out[k]);
    RANK_CHECK(rank, ddp_barrier(g) == loop->expected, "a broken group works on");
    ddp_finalize(g);
    return 0;
}

/* Does that to ranks in the midst of case `i`, and checks the errors of the other ranks. */
static void strike(int i, int sig, struct loop loop, int first, int n_victims)
{
    const int kind = i % N_KINDS, end = first + n_victims;
    struct ranks r;
    pid_t victim[RANKS_MAX];
    int ends[2];
    char byte;
    loop.nodes = &grids[i / N_KINDS % N_GRIDS];
    loop.bytes = lengths[i / N_KINDS / N_GRIDS];
    loop.kind = kind == N_KINDS - 1 ? CALL_BARRIER : (enum call_kind)(CALL_ALL_REDUCE + kind);
    ck_assert_int_eq(pipe(ends), 0);
    loop.report = ends[1];
    nodes_start(&r, loop.nodes, run_until_broken, &loop);
    close(ends[1]);
    for (int k = 0; k < r.n; k++)
        ck_assert_msg(read(ends[0], &byte, 1) == 1, "%s, %zu bytes: a rank ended early",
                      call_kind_name(loop.kind), loop.bytes);
    for (int k = first; k < end; k++) {
        victim[k] = r.pid[k];
        kill(victim[k], sig);
        r.pid[k] = 0; /* waited for here: it does not end by itself when it is stopped */
    }
    ranks_wait(&r);
    for (int k = first; k < end; k++) {
        kill(victim[k], SIGKILL);
        ck_assert_int_eq(waitpid(victim[k], &r.status[k], 0), victim[k]);
        r.status[k] = 0;
    }
    for (int k = 0; k < r.n; k++)
        ck_assert_msg(r.status[k] == 0, "%s, %zu bytes, %d nodes: rank %d: %#x",
                      call_kind_name(loop.kind), loop.bytes, loop.nodes->n, k, r.status[k]);
    close(ends[0]);
}

static void strike_one(int i, int sig, struct loop loop)
{
    int node, local;
    nodes_place(&grids[i / N_KINDS % N_GRIDS], VICTIM, &node, &local);
    snprintf(loop.whom, sizeof loop.whom, "rank 1 on node %d", node);
    strike(i, sig, loop, VICTIM, 1);
}

START_TEST(a_rank_killed_in_a_collective_is_named_on_all_nodes)
{
    strike_one(_i, SIGKILL, (struct loop){.expected = DDP_EPEER, .timeout_ms = 60000});
}
END_TEST

START_TEST(a_node_killed_in_a_collective_is_named_on_the_others)
{
    const int last_grid = N_KINDS * (2 * N_GRIDS - 1); /* ranks 3 to 5 are node 2 */
    strike(last_grid + _i, SIGKILL,
           (struct loop){.expected = DDP_EPEER, .timeout_ms = 60000, .whom = " on node 2 "}, 3, 3);
}
END_TEST

START_TEST(a_rank_stopped_in_a_collective_is_named_on_all_nodes)
{
    strike_one(_i, SIGSTOP, (struct loop){.expected = DDP_ETIMEOUT, .timeout_ms = STOP_TIMEOUT_MS});
}
END_TEST

/* --- calls that differ ------------------------------------------------------------------------ */

static int run_difference(int rank, void *arg)
{
    const int *pipes = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    const bool differs = rank == ddp_world_size(g) - 1;
    int64_t x[4] = {rank + 1};
    char byte = 0;
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "barrier");
    for (int i = 0; differs && i < rank;
         i++) /* until all have returned: the break of the job would also end their call */
        RANK_CHECK(rank, read(pipes[0], &byte, 1) == 1, "gate");
    if (!differs)
        RANK_CHECK(rank, write(pipes[1], &byte, 1) == 1, "gate");
    int rc = differs ? ddp_broadcast(g, x, x, 4, DDP_INT64, 0, NULL)
                     : ddp_all_reduce(g, x, x, 4, DDP_INT64, DDP_SUM, NULL);
    RANK_CHECK(rank, rc == DDP_EMISMATCH, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, strstr(ddp_last_error(), "ddp_broadcast(int64, 4, root 0)") != NULL,
               "one side");
    RANK_CHECK(rank, strstr(ddp_last_error(), "ddp_all_reduce(int64, sum, 4)") != NULL,
               "the other");
    RANK_CHECK(rank, strstr(ddp_last_error(), "call #2") != NULL, "which call");
    RANK_CHECK(rank, strstr(ddp_last_error(), " on node ") != NULL, "where");
    RANK_CHECK(rank, !differs || x[0] == rank + 1, "%lld came of another call", (long long)x[0]);
    ddp_finalize(g);
    return 0;
}

START_TEST(a_mismatch_between_nodes_names_both_sides)
{
    int pipes[2];
    struct ranks r;
    ck_assert_int_eq(pipe(pipes), 0);
    nodes_start(&r, &grids[_i], run_difference, pipes);
    ranks_expect_success(&r);
}
END_TEST

static int run_wrong_counts(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    uint8_t in[16], out[16];
    size_t give[] = {2, 2}, want[] = {2, 2};
    if (rank == 1)
        want[0] = 3; /* and rank 0 has 2 */
    int rc = ddp_all_to_all_v(g, in, give, out, want, DDP_UINT8, NULL);
    RANK_CHECK(rank, rc == DDP_EMISMATCH, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, strstr(ddp_last_error(), "pass do not match") != NULL, "text");
    ddp_finalize(g);
    return 0;
}

START_TEST(counts_that_two_nodes_do_not_agree_on_are_a_mismatch)
{
    struct ranks r;
    nodes_start(&r, &grids[0], run_wrong_counts, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* --- leaving ---------------------------------------------------------------------------------- */

static int run_leaving(int rank, void *arg)
{
    const int *pipes = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    char byte = 0;
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "barrier");
    if (rank == VICTIM) {
        for (int i = 1; i < ddp_world_size(g); i++) /* all are through */
            RANK_CHECK(rank, read(pipes[0], &byte, 1) == 1, "gate");
    } else {
        RANK_CHECK(rank, write(pipes[1], &byte, 1) == 1, "gate");
        RANK_CHECK(rank, ddp_barrier(g) == DDP_EPEER, "one has left");
        RANK_CHECK(rank, strstr(ddp_last_error(), "left the job while others needed it") != NULL,
                   "text");
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(an_early_leave_is_distinguished_from_a_death)
{
    int pipes[2];
    struct ranks r;
    ck_assert_int_eq(pipe(pipes), 0);
    nodes_start(&r, &grids[_i], run_leaving, pipes);
    ranks_expect_success(&r);
}
END_TEST

/* The receiver is on another node than the victim. Some cases have two ranks on that node, of which
 * only one watches the victim. */
struct parting {
    const struct nodes *nodes;
    int victim, receiver;
    int leave[2], wait[2]; /* pipes: a byte of each of the others lets the victim go; one lets the
                              receiver wait */
    bool is_late;          /* the victim has gone when the receiver begins to wait */
    bool is_killed;
    const char *said; /* the receiver's error */
};

static void wait_for_byte(int rank, int pipe)
{
    char byte;
    RANK_CHECK(rank, read(pipe, &byte, 1) == 1, "gate");
}

static void let_victim_go(int rank, const struct parting *p)
{
    RANK_CHECK(rank, write(p->leave[1], "x", 1) == 1, "gate");
}

static void receive_in_vain(int rank, struct ddp_group *g, const struct parting *p)
{
    struct ddp_request *request;
    int32_t x = 0;
    char name[32];
    snprintf(name, sizeof name, "rank %d on node 0", p->victim);
    if (p->is_late) {
        let_victim_go(rank, p);
        wait_for_byte(rank, p->wait[0]);
    }
    RANK_CHECK(rank, ddp_irecv(g, &x, 1, DDP_INT32, p->victim, 7, NULL, &request) == DDP_OK,
               "receive");
    if (!p->is_late)
        let_victim_go(rank, p);
    int rc = ddp_wait(request);
    RANK_CHECK(rank, rc == DDP_EPEER, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, strstr(ddp_last_error(), name) != NULL, "expected: %s", name);
    RANK_CHECK(rank, strstr(ddp_last_error(), p->said) != NULL, "expected: %s", p->said);
}

static int run_parting(int rank, void *arg)
{
    const struct parting *p = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "barrier");
    if (rank == p->receiver)
        receive_in_vain(rank, g, p);
    else if (rank != p->victim)
        let_victim_go(rank, p);
    for (int i = 1; rank == p->victim && i < ddp_world_size(g); i++)
        /* until all have returned: what follows would also end their call */
        wait_for_byte(rank, p->leave[0]);
    if (rank == p->victim && p->is_killed)
        raise(SIGKILL);
    ddp_finalize(g);
    return 0;
}

static const struct parting partings[] = {
    {&grids[0], 0, 1, .said = "left the job while others needed it"},
    {&grids[0], 0, 1, .is_late = true, .said = "left the job while others needed it"},
    {&grids[0], 0, 1, .is_killed = true, .said = "died"},
    {&grids[1], 0, 3, .said = "left the job while others needed it"},
    {&grids[1], 0, 3, .is_late = true, .said = "left the job while others needed it"},
    {&grids[1], 0, 3, .is_killed = true, .said = "died"},
    {&grids[1], 0, 3, .is_late = true, .is_killed = true, .said = "died"},
};

START_TEST(a_receive_from_an_exited_rank_ends_before_the_timeout)
{
    struct parting p = partings[_i];
    struct ranks r;
    ck_assert(pipe(p.leave) == 0 && pipe(p.wait) == 0);
    nodes_start(&r, p.nodes, run_parting, &p);
    if (p.is_late) { /* the receiver begins when it has gone */
        ck_assert_int_eq(waitpid(r.pid[p.victim], &r.status[p.victim], 0), r.pid[p.victim]);
        r.pid[p.victim] = 0;
        ck_assert_int_eq(write(p.wait[1], "x", 1), 1);
    }
    ranks_wait(&r);
    for (int k = 0; k < r.n; k++)
        ck_assert_msg(r.status[k] == (k == p.victim && p.is_killed ? SIGKILL : 0), "rank %d: %#x",
                      k, r.status[k]);
    for (int k = 0; k < 2; k++) {
        close(p.leave[k]);
        close(p.wait[k]);
    }
}
END_TEST

START_TEST(a_timeout_that_was_shortened_ends_each_kind_of_call)
{
    struct timeouts t = {.kind = (enum timeouts_kind)_i};
    struct ranks r;
    ck_assert_int_eq(pipe(t.gate), 0);
    nodes_start(&r, &grids[0], timeouts_run, &t);
    ranks_expect_success(&r);
    close(t.gate[0]);
    close(t.gate[1]);
}
END_TEST

static int run_many_jobs(int rank, void *arg)
{
    (void)arg;
    for (int i = 0; i < 5; i++) { /* one after the other, by one store */
        struct ddp_group *g = rank_init(rank, 60000);
        int32_t x = 1;
        RANK_CHECK(rank, ddp_all_reduce(g, &x, &x, 1, DDP_INT32, DDP_SUM, NULL) == DDP_OK, "sum");
        RANK_CHECK(rank, x == 4, "%d", x);
        ddp_finalize(g);
    }
    return 0;
}

START_TEST(ranks_that_leave_together_lose_nothing_and_can_join_again)
{
    struct ranks r;
    nodes_start(&r, &grids[1], run_many_jobs, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* --- joining ---------------------------------------------------------------------------------- */

static int run_lonely(int rank, void *arg)
{
    struct ddp_group *g;
    /* longer than a busy machine needs until those that are there have joined */
    struct ddp_init_opts opts = {.start_timeout_ms = 2000};
    int rc = ddp_init(&opts, &g);
    RANK_CHECK(rank, rc == DDP_ETIMEOUT, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, strstr(ddp_last_error(), arg) != NULL, "expected: %s", (char *)arg);
    return 0;
}

START_TEST(ranks_of_missing_nodes_are_named)
{
    static const struct nodes nodes = {.n = 2, .n_ranks = 6, .size = {2, 4}};
    struct ranks r;
    ranks_init(&r, nodes.n_ranks);
    for (int i = 0; i < 2; i++)
        nodes_start_one(&r, &nodes, i, run_lonely,
                        "timed out waiting for rank 2, 3, 4, 5 of 6 to join; check that all nodes "
                        "have started");
    ranks_expect_success(&r);
}
END_TEST

START_TEST(a_node_without_rank_0_reports_it)
{
    struct ranks r;
    ranks_init(&r, 2);
    nodes_start_one(&r, &grids[0], 1, run_lonely,
                    "timed out waiting for rank 0 of 2 to join; check that all nodes have started");
    ranks_expect_success(&r);
}
END_TEST

static int run_without_store(int rank, void *arg)
{
    setenv("MASTER_PORT", "1", 1); /* no process listens there */
    return run_lonely(rank, arg);
}

START_TEST(a_job_without_a_store_reports_where_it_must_run)
{
    struct ranks r;
    ranks_init(&r, 4);
    for (int i = 0; i < 2; i++) /* local rank 0 connects, and informs the other */
        nodes_start_one(&r, &grids[1], i, run_without_store,
                        "check that the job's store runs there (MASTER_ADDR, MASTER_PORT)");
    ranks_expect_success(&r);
}
END_TEST

static int run_refused(int rank, void *arg)
{
    const char *const *what = arg; /* variable, value, text */
    struct ddp_group *g;
    struct ddp_init_opts opts = {.start_timeout_ms = 2000};
    if (what[1] != NULL)
        setenv(what[0], what[1], 1);
    else
        unsetenv(what[0]);
    int rc = ddp_init(&opts, &g);
    RANK_CHECK(rank, rc == DDP_EENV, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, strstr(ddp_last_error(), what[2]) != NULL, "expected: %s", what[2]);
    return 0;
}

static const char *const refusals[][3] = {
    {"MASTER_ADDR", NULL, "MASTER_ADDR and MASTER_PORT are not set"},
    {"MASTER_ADDR", NULL, "or run ddp-rendezvous and set both variables on all ranks"},
    {"MASTER_PORT", "70000", "invalid value '70000' for MASTER_PORT: expected a number"},
    {"DDP_SOCKET_IFNAME", "nope0",
     "invalid value 'nope0' for DDP_SOCKET_IFNAME: no such network interface"},
    {"GROUP_WORLD_SIZE", "3", "the environment gives 3 nodes"},
};

START_TEST(the_reason_why_a_node_cannot_join_is_named)
{
    static const struct nodes nodes = {.n = 2, .n_ranks = 4, .size = {2, 2}};
    struct ranks r;
    if (strcmp(refusals[_i][0], "GROUP_WORLD_SIZE") == 0) { /* found when all ranks have joined */
        static const struct nodes three = {.n = 2, .n_ranks = 3, .size = {2, 1}};
        nodes_start(&r, &three, run_refused, (void *)refusals[_i]);
    } else {
        ranks_init(&r, nodes.n_ranks);
        for (int i = 0; i < 2; i++)
            nodes_start_one(&r, &nodes, i, run_refused, (void *)refusals[_i]);
    }
    ranks_expect_success(&r);
}
END_TEST

static void set_up(void)
{
    store_start(&store);
}

static void tear_down(void)
{
    store_stop(&store);
}

TEST_SUITE(nodes_failures)
{
    Suite *suite = suite_create("nodes_failures");
    TCase *tcase = tcase_create("all");
    tcase_add_unchecked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 200);
    tcase_add_loop_test(tcase, a_rank_killed_in_a_collective_is_named_on_all_nodes, 0, N_CASES);
    tcase_add_loop_test(tcase, a_node_killed_in_a_collective_is_named_on_the_others, 0, N_KINDS);
    /* each waits for its timeout: all of them by hand, one always */
    const bool all_stops = getenv("TEST_STOPS") != NULL;
    tcase_add_loop_test(tcase, a_rank_stopped_in_a_collective_is_named_on_all_nodes,
                        all_stops ? 0 : LONG_SCATTER, all_stops ? N_CASES : LONG_SCATTER + 1);
    tcase_add_loop_test(tcase, a_mismatch_between_nodes_names_both_sides, 0, N_GRIDS);
    tcase_add_test(tcase, counts_that_two_nodes_do_not_agree_on_are_a_mismatch);
    tcase_add_loop_test(tcase, an_early_leave_is_distinguished_from_a_death, 0, N_GRIDS);
    tcase_add_loop_test(tcase, a_receive_from_an_exited_rank_ends_before_the_timeout, 0,
                        sizeof partings / sizeof *partings);
    tcase_add_loop_test(tcase, a_timeout_that_was_shortened_ends_each_kind_of_call, 0,
                        TIMEOUTS_N_KINDS);
    tcase_add_test(tcase, ranks_that_leave_together_lose_nothing_and_can_join_again);
    tcase_add_test(tcase, ranks_of_missing_nodes_are_named);
    tcase_add_test(tcase, a_node_without_rank_0_reports_it);
    tcase_add_test(tcase, a_job_without_a_store_reports_where_it_must_run);
    tcase_add_loop_test(tcase, the_reason_why_a_node_cannot_join_is_named, 0,
                        sizeof refusals / sizeof *refusals);
    suite_add_tcase(suite, tcase);
    return suite;
}
