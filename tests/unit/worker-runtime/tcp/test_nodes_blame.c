/* test_nodes_blame.c - a rank dies, a second rank learns of it and leaves, and a third rank sees
 * only the end of its connection to the second. The third rank still reports the death: meanwhile
 * the ranks that could have informed it otherwise are outside of the library. */
#include "tests/unit/worker-runtime/nodes.h"

#include <sys/mman.h>

enum { BIG = 16 * 1024 * 1024 }; /* doubles: far more than sockets hold */

static struct store_process store;

struct gates {
    int ready[2];         /* a byte per rank that has come so far */
    int go[RANKS_MAX][2]; /* a byte lets the rank continue */
    bool is_finalized;    /* the leaver calls ddp_finalize(); else it just ends */
    bool is_inside;       /* the leaver learns of the death in the midst of a stream */
    bool is_short;        /* what comes on it then */
};

static void gates_init(struct gates *g, int n)
{
    *g = (struct gates){0};
    ck_assert_int_eq(pipe(g->ready), 0);
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(pipe(g->go[i]), 0);
}

static void gates_fini(struct gates *g, int n)
{
    for (int i = 0; i < 2; i++) {
        close(g->ready[i]);
        for (int k = 0; k < n; k++)
            close(g->go[k][i]);
    }
}

static void say_ready(int rank, const struct gates *g)
{
    RANK_CHECK(rank, write(g->ready[1], "x", 1) == 1, "gate");
}

static void wait_to_go(int rank, const struct gates *g)
{
    char byte;
    RANK_CHECK(rank, read(g->go[rank][0], &byte, 1) == 1, "gate");
}

static void wait_until_ready(const struct gates *g, int n)
{
    char byte;
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(read(g->ready[0], &byte, 1), 1);
}

static void let_go(const struct gates *g, int rank)
{
    ck_assert_int_eq(write(g->go[rank][1], "x", 1), 1);
}

static void expect_blame(int rank, int rc, const char *whom)
{
    RANK_CHECK(rank, rc == DDP_EPEER, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, strstr(ddp_last_error(), whom) != NULL, "expected: %s", whom);
    RANK_CHECK(rank, strstr(ddp_last_error(), "died") != NULL, "expected: died");
}

static void reap(struct ranks *r, int rank, int status)
{
    ck_assert_int_eq(waitpid(r->pid[rank], &r->status[rank], 0), r->pid[rank]);
    ck_assert_msg(r->status[rank] == status, "rank %d: %#x", rank, r->status[rank]);
    r->status[rank] = r->pid[rank] = 0;
}

static void kill_rank(struct ranks *r, int rank)
{
    ck_assert_int_eq(kill(r->pid[rank], SIGKILL), 0);
    reap(r, rank, SIGKILL);
}

/* --- messages --------------------------------------------------------------------------------- */

/* Rank 5 dies. 2 watches it; 0, of the same node, waits for a message from it and leaves; 4 waits
 * for one from 0. The watches of 4 and its node are those of 1 and 3. */
enum { LEAVER = 0, TELLER = 2, RECEIVER = 4, VICTIM = 5 };
static const struct nodes even = {.n = 2, .n_ranks = 6, .size = {3, 3}};

static void receive_from(int rank, struct ddp_group *g, const struct gates *gates, int from)
{
    struct ddp_request *request;
    int32_t x = 0;
    RANK_CHECK(rank, ddp_irecv(g, &x, 1, DDP_INT32, from, 7, NULL, &request) == DDP_OK, "receive");
    say_ready(rank, gates);
    expect_blame(rank, ddp_wait(request), "rank 5 on node 1");
}

static int run_message(int rank, void *arg)
{
    const struct gates *gates = arg;
    struct ddp_group *g = rank_init(rank, 20000);
    int32_t x = 1;
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "barrier");
    if (rank == LEAVER) /* so that the connection to the receiver is made */
        RANK_CHECK(rank, ddp_send(g, &x, 1, DDP_INT32, RECEIVER, 1, NULL) == DDP_OK, "send");
    if (rank == RECEIVER)
        RANK_CHECK(rank, ddp_recv(g, &x, 1, DDP_INT32, LEAVER, 1, NULL) == DDP_OK, "receive");
    if (rank == LEAVER || rank == TELLER)
        receive_from(rank, g, gates, VICTIM);
    else if (rank == RECEIVER)
        receive_from(rank, g, gates, LEAVER);
    else
        say_ready(rank, gates);
    if (rank == LEAVER && !gates->is_finalized)
        _exit(0);
    if (rank != LEAVER && rank != RECEIVER)
        wait_to_go(rank, gates);
    ddp_finalize(g);
    return 0;
}

START_TEST(a_receiver_from_a_rank_that_left_reports_what_broke_the_job)
{
    struct gates gates;
    struct ranks r;
    int status;
    gates_init(&gates, even.n_ranks);
    gates.is_finalized = _i == 0;
    nodes_start(&r, &even, run_message, &gates);
    wait_until_ready(&gates, even.n_ranks);
    ck_assert_int_eq(kill(r.pid[RECEIVER], SIGSTOP), 0); /* it looks when the other has gone */
    ck_assert_int_eq(waitpid(r.pid[RECEIVER], &status, WUNTRACED), r.pid[RECEIVER]);
    ck_assert(WIFSTOPPED(status));
    kill_rank(&r, VICTIM);
    reap(&r, LEAVER, 0);
    ck_assert_int_eq(kill(r.pid[RECEIVER], SIGCONT), 0);
    reap(&r, RECEIVER, 0);
    for (int i = 1; i <= 3; i++)
        let_go(&gates, i);
    ranks_expect_success(&r);
    gates_fini(&gates, even.n_ranks);
}
END_TEST

/* --- streams ---------------------------------------------------------------------------------- */

/* Rank 2 dies, which 0 watches, in a collective of 0 and 3. 3 watches 1 alone. */
static const struct nodes square = {.n = 2, .n_ranks = 4, .size = {2, 2}};

static void break_off(int rank, struct ddp_group *pair, double *x, const struct gates *gates)
{
    struct ddp_request *request;
    int done = 0;
    RANK_CHECK(rank,
               ddp_iall_reduce(pair, x, x, BIG, DDP_FLOAT64, DDP_SUM, NULL, &request) == DDP_OK,
               "begin");
    RANK_CHECK(rank, ddp_test(request, &done) == DDP_OK && !done, "in the midst of it");
    say_ready(rank, gates);
    expect_blame(rank, ddp_wait(request), "rank 2 on node 1");
}

/* Learn of the death between two collectives of the pair. */
static void learn(int rank, struct ddp_group *g, const struct gates *gates)
{
    double x;
    say_ready(rank, gates);
    expect_blame(rank, ddp_recv(g, &x, 1, DDP_FLOAT64, 2, 7, NULL), "rank 2 on node 1");
}

/* A vector, and the group of 0 and 3. */
static double *prepare(int rank, struct ddp_group *g, struct ddp_group **ret_pair)
{
    double *x =
        mmap(NULL, BIG * sizeof *x, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    RANK_CHECK(rank, x != MAP_FAILED, "memory");
    RANK_CHECK(rank, ddp_group_split(g, rank == 0 || rank == 3, 0, ret_pair) == DDP_OK, "split");
    RANK_CHECK(rank, ddp_barrier(*ret_pair) == DDP_OK, "barrier");
    return x;
}

static int run_stream(int rank, void *arg)
{
    const struct gates *gates = arg;
    struct ddp_group *g = rank_init(rank, 20000), *pair = NULL;
    double *x = prepare(rank, g, &pair);
    const size_t count = gates->is_short ? 1 : BIG;
    if (rank == 0 && gates->is_inside)
        break_off(rank, pair, x, gates);
    else if (rank == 0)
        learn(rank, g, gates);
    else
        say_ready(rank, gates);
    if (rank != 0)
        wait_to_go(rank, gates);
    if (rank == 3)
        expect_blame(rank, ddp_all_reduce(pair, x, x, count, DDP_FLOAT64, DDP_SUM, NULL),
                     "rank 2 on node 1");
    ddp_finalize(g);
    return 0;
}

/* In the midst of pieces, or between collectives; then a short one, or a long one, comes. */
static const struct {
    bool is_inside, is_short;
} streams[] = {{.is_inside = true}, {0}, {.is_short = true}};

START_TEST(a_broken_stream_is_attributed_to_what_broke_the_job)
{
    struct gates gates;
    struct ranks r;
    gates_init(&gates, square.n_ranks);
    gates.is_inside = streams[_i].is_inside;
    gates.is_short = streams[_i].is_short;
    nodes_start(&r, &square, run_stream, &gates);
    wait_until_ready(&gates, square.n_ranks);
    kill_rank(&r, 2);
    reap(&r, 0, 0);
    let_go(&gates, 3);
    reap(&r, 3, 0);
    let_go(&gates, 1);
    ranks_expect_success(&r);
    gates_fini(&gates, square.n_ranks);
}
END_TEST

/* Rank 3 has all that it needs of rank 0, and sends to it. */
static int run_sender(int rank, void *arg)
{
    const struct gates *gates = arg;
    struct ddp_group *g = rank_init(rank, 20000), *pair = NULL;
    struct ddp_request *request = NULL;
    double *x = prepare(rank, g, &pair);
    int done = 0;
    if (rank == 3)
        wait_to_go(rank, gates); /* until rank 0 has reported its call */
    if (rank == 0 || rank == 3) {
        RANK_CHECK(rank, ddp_ibroadcast(pair, x, x, BIG, DDP_FLOAT64, 1, NULL, &request) == DDP_OK,
                   "begin");
        RANK_CHECK(rank, ddp_test(request, &done) == DDP_OK && !done, "in the midst of it");
    }
    say_ready(rank, gates);
    wait_to_go(rank, gates);
    if (request != NULL)
        expect_blame(rank, ddp_wait(request), "rank 2 on node 1");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_sender_to_a_rank_that_left_reports_what_broke_the_job)
{
    struct gates gates;
    struct ranks r;
    gates_init(&gates, square.n_ranks);
    nodes_start(&r, &square, run_sender, &gates);
    wait_until_ready(&gates, square.n_ranks - 1);
    let_go(&gates, 3);
    wait_until_ready(&gates, 1);
    kill_rank(&r, 2);
    let_go(&gates, 0);
    reap(&r, 0, 0);
    let_go(&gates, 3);
    reap(&r, 3, 0);
    let_go(&gates, 1);
    ranks_expect_success(&r);
    gates_fini(&gates, square.n_ranks);
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

TEST_SUITE(nodes_blame)
{
    Suite *suite = suite_create("nodes_blame");
    TCase *tcase = tcase_create("all");
    tcase_add_unchecked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_receiver_from_a_rank_that_left_reports_what_broke_the_job, 0, 2);
    tcase_add_loop_test(tcase, a_broken_stream_is_attributed_to_what_broke_the_job, 0,
                        sizeof streams / sizeof *streams);
    tcase_add_test(tcase, a_sender_to_a_rank_that_left_reports_what_broke_the_job);
    suite_add_tcase(suite, tcase);
    return suite;
}
