#include "tests/unit/worker-runtime/exchange.h"
#include "tests/unit/worker-runtime/ranks.h"

enum { SHORT = 1000, LONG = 300000 }; /* floats: those that ride along, and those that do not */

static float *buffer(int rank, struct ddp_group *g, size_t count, bool shared)
{
    void *p = NULL;
    if (shared)
        RANK_CHECK(rank, ddp_alloc(g, count * 4, &p) == DDP_OK, "ddp_alloc");
    else
        p = malloc(count * 4);
    return p;
}

static void fill(float *x, size_t count, int from, uint32_t salt)
{
    values_fill(x, DDP_FLOAT32, salt, from, count);
}

static void expect(int rank, const float *x, size_t count, int from, uint32_t salt)
{
    float *expected = malloc(count * 4 + 1);
    fill(expected, count, from, salt);
    RANK_CHECK(rank, memcmp(x, expected, count * 4) == 0, "%zu from %d, salt %u", count, from,
               salt);
    free(expected);
}

/* --- what arrives ----------------------------------------------------------------------------- */

struct remote_shell {
    bool shared;
    const char *cma;
};

static int run_lengths(int rank, void *arg)
{
    static const size_t counts[] = {0, 1, 1023, 1024, 1025, 16384, 16385, 33000, LONG};
    const struct remote_shell *way = arg;
    setenv("DDP_CMA", way->cma, 1);
    struct ddp_group *g = rank_init(rank, 60000);
    const int n = ddp_world_size(g), to = (rank + 1) % n, from = (rank + n - 1) % n;
    float *in = buffer(rank, g, LONG, way->shared), *out = buffer(rank, g, LONG, way->shared);
    for (uint32_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct ddp_request *sent;
        fill(in, counts[i], rank, i);
        RANK_CHECK(rank, ddp_isend(g, in, counts[i], DDP_FLOAT32, to, 5, NULL, &sent) == 0,
                   "isend");
        RANK_CHECK(rank, ddp_recv(g, out, counts[i], DDP_FLOAT32, from, 5, NULL) == 0, "recv");
        expect(rank, out, counts[i], from, i);
        RANK_CHECK(rank, ddp_wait(sent) == DDP_OK, "wait");
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(messages_of_all_lengths_arrive)
{
    static const struct remote_shell ways[] = {{true, "1"}, {false, "1"}, {false, "0"}};
    struct ranks r;
    ranks_start(&r, 2 + _i, run_lengths, (void *)&ways[_i]);
    ranks_expect_success(&r);
}
END_TEST

static int run_tags(int rank, void *arg)
{
    enum { ROUNDS = 60, TAGS = 3 };
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    float *x[TAGS];
    for (int k = 0; k < TAGS; k++)
        x[k] = buffer(rank, g, LONG, k == 1);
    for (int i = 0; i < ROUNDS; i++) {
        struct ddp_request *r[TAGS];
        for (int j = 0; j < TAGS; j++) {
            const int k = rank == 0 ? j : TAGS - 1 - j; /* received the other way round */
            const size_t count = (i + k) % 4 == 0 ? LONG : (size_t)(i + k);
            fill(x[k], count, 0, (uint32_t)(i * TAGS + k));
            if (rank == 1)
                memset(x[k], 0, count * 4);
            int rc = rank == 0 ? ddp_isend(g, x[k], count, DDP_FLOAT32, 1, k, NULL, &r[k])
                               : ddp_irecv(g, x[k], count, DDP_FLOAT32, 0, k, NULL, &r[k]);
            RANK_CHECK(rank, rc == DDP_OK, "begin");
        }
        for (int k = 0; k < TAGS; k++) {
            RANK_CHECK(rank, ddp_wait(r[k]) == DDP_OK, "wait");
            expect(rank, x[k], (i + k) % 4 == 0 ? LONG : (size_t)(i + k), 0,
                   (uint32_t)(i * TAGS + k));
        }
    }
    ddp_finalize(g);
    return 0;
}

/* Many receives of one tag are open while the messages come, and more messages are on their way
 * than the ring holds: a receive that looks later must not get what comes earlier. */
static int run_many_open(int rank, void *arg)
{
    enum { MANY = 100, ROUNDS = 200 };
    struct ddp_request *request[MANY];
    int32_t number[MANY];
    struct ddp_group *g = rank_init(rank, 60000);
    (void)arg;
    for (int32_t round = 0; round < ROUNDS; round++) {
        for (int32_t i = 0; i < MANY; i++) {
            number[i] = round * MANY + i;
            int rc = rank == 0 ? ddp_isend(g, &number[i], 1, DDP_INT32, 1, 3, NULL, &request[i])
                               : ddp_irecv(g, &number[i], 1, DDP_INT32, 0, 3, NULL, &request[i]);
            RANK_CHECK(rank, rc == DDP_OK, "begin");
        }
        for (int32_t i = 0; i < MANY; i++) {
            RANK_CHECK(rank, ddp_wait(request[i]) == DDP_OK, "wait");
            RANK_CHECK(rank, number[i] == round * MANY + i, "round %d: %d came as number %d", round,
                       number[i] - round * MANY, i);
        }
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(receives_of_one_tag_are_matched_in_order)
{
    struct ranks r;
    ranks_start(&r, 2, run_many_open, NULL);
    ranks_expect_success(&r);
}
END_TEST

START_TEST(receivers_choose_by_tag)
{
    struct ranks r;
    ranks_start(&r, 2, run_tags, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_unmatched(int rank, void *arg)
{
    enum { N = 64 };
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_request *late;
    int32_t x = N;
    int done;
    if (rank == 0) {
        for (int32_t i = 0; i < N; i++)
            RANK_CHECK(rank, ddp_send(g, &i, 1, DDP_INT32, 1, 100 + i, NULL) == DDP_OK, "send");
        RANK_CHECK(rank, ddp_isend(g, &x, 1, DDP_INT32, 1, 99, NULL, &late) == DDP_OK, "isend");
        RANK_CHECK(rank, ddp_test(late, &done) == DDP_OK && !done, "the 65th has no room");
    }
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "barrier");
    for (int32_t i = N; rank == 1 && i-- > 0;) { /* the last first */
        RANK_CHECK(rank, ddp_recv(g, &x, 1, DDP_INT32, 0, 100 + i, NULL) == DDP_OK, "recv");
        RANK_CHECK(rank, x == i, "%d", x);
    }
    if (rank == 1)
        RANK_CHECK(rank, ddp_recv(g, &x, 1, DDP_INT32, 0, 99, NULL) == DDP_OK && x == N, "late");
    else
        RANK_CHECK(rank, ddp_wait(late) == DDP_OK, "late");
    ddp_finalize(g);
    return 0;
}

START_TEST(unmatched_messages_are_bounded)
{
    struct ranks r;
    ranks_start(&r, 2, run_unmatched, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* A transfer that a rank has begun continues while the rank waits in another call. */
static int run_progress(int rank, void *arg)
{
    (void)arg;
    setenv("DDP_CMA", "0", 1); /* so that a message needs both sides */
    struct ddp_group *g = rank_init(rank, 60000);
    float *x = buffer(rank, g, LONG, false), *y = buffer(rank, g, LONG, false);
    struct ddp_request *message, *sum;
    fill(x, LONG, rank, 1);
    if (rank == 0) {
        RANK_CHECK(rank, ddp_isend(g, x, LONG, DDP_FLOAT32, 1, 0, NULL, &message) == 0, "isend");
        RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "a message goes on in a collective");
        RANK_CHECK(rank, ddp_wait(message) == DDP_OK, "wait");
    } else {
        RANK_CHECK(rank, ddp_recv(g, y, LONG, DDP_FLOAT32, 0, 0, NULL) == 0, "recv");
        expect(rank, y, LONG, 0, 1);
        RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "barrier");
    }
    RANK_CHECK(rank, ddp_iall_reduce(g, x, y, LONG, DDP_FLOAT32, DDP_MAX, NULL, &sum) == DDP_OK,
               "begin");
    if (rank == 0) {
        RANK_CHECK(rank, ddp_recv(g, x, 10, DDP_FLOAT32, 1, 0, NULL) == DDP_OK,
                   "a collective goes on in a message");
        RANK_CHECK(rank, ddp_wait(sum) == DDP_OK, "wait");
    } else {
        RANK_CHECK(rank, ddp_wait(sum) == DDP_OK, "wait");
        RANK_CHECK(rank, ddp_send(g, x, 10, DDP_FLOAT32, 0, 0, NULL) == DDP_OK, "send");
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(messages_and_collectives_progress_during_each_other)
{
    struct ranks r;
    ranks_start(&r, 2, run_progress, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_in_groups(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000), *sub;
    for (int i = 0; i < 20; i++) { /* used again and again, with what was sent in them */
        RANK_CHECK(rank, ddp_group_split(g, rank % 2, -rank, &sub) == DDP_OK, "split");
        const int me = ddp_rank(sub), other = 1 - me;
        int32_t x = rank * 100 + i, y = -1, z = -1;
        RANK_CHECK(rank, ddp_send(sub, &x, 1, DDP_INT32, other, 3, NULL) == DDP_OK, "send");
        RANK_CHECK(rank, ddp_send(g, &x, 1, DDP_INT32, rank ^ 1, 3, NULL) == DDP_OK, "send");
        RANK_CHECK(rank, ddp_recv(g, &z, 1, DDP_INT32, rank ^ 1, 3, NULL) == DDP_OK, "recv");
        RANK_CHECK(rank, ddp_recv(sub, &y, 1, DDP_INT32, other, 3, NULL) == DDP_OK, "recv");
        RANK_CHECK(rank, y == (rank ^ 2) * 100 + i && z == (rank ^ 1) * 100 + i, "%d %d", y, z);
        RANK_CHECK(rank, ddp_send(sub, &x, 1, DDP_INT32, other, 4, NULL) == DDP_OK,
                   "never received");
        ddp_group_destroy(sub);
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(groups_keep_their_messages_apart)
{
    struct ranks r;
    ranks_start(&r, 4, run_in_groups, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* --- what goes wrong -------------------------------------------------------------------------- */

static int run_mismatch(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    float x[100] = {0};
    int rc = rank == 0   ? ddp_send(g, x, 100, DDP_FLOAT32, 1, 7, NULL)
             : rank == 1 ? ddp_recv(g, x, 5, DDP_INT32, 0, 7, NULL)
                         : ddp_barrier(g);
    if (rank == 0)
        RANK_CHECK(rank, rc == DDP_OK && ddp_barrier(g) == DDP_EMISMATCH, "it was short");
    else
        RANK_CHECK(rank, rc == DDP_EMISMATCH, "got %s", ddp_strerror(rc));
    const char *text = rank == 1
                           ? "rank 0 sent 100 x float32 with tag 7, but rank 1 expects 5 x int32"
                           : "a message to rank 1 differs from what it expects";
    RANK_CHECK(rank, strstr(ddp_last_error(), text) != NULL, "expected: %s", text);
    ddp_finalize(g);
    return 0;
}

START_TEST(both_ranks_report_a_message_of_another_count)
{
    struct ranks r;
    ranks_start(&r, 3, run_mismatch, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_arguments(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_request *r;
    float x = 0;
    struct {
        int rc;
        const char *text;
    } bad[] = {
        {ddp_send(NULL, &x, 1, DDP_FLOAT32, 0, 0, NULL), "the group is NULL"},
        {ddp_send(g, &x, 1, (enum ddp_dtype) - 1, 0, 0, NULL), "not a type"},
        {ddp_send(g, &x, 1, DDP_FLOAT32, rank, 0, NULL), "not one of the other"},
        {ddp_recv(g, &x, 1, DDP_FLOAT32, 2, 0, NULL), "not one of the other"},
        {ddp_recv(g, &x, 1, DDP_FLOAT32, -1, 0, NULL), "not one of the other"},
        {ddp_recv(g, &x, 1, DDP_FLOAT32, 1 - rank, -1, NULL), "tag is -1"},
        {ddp_recv(g, &x, SIZE_MAX / 4, DDP_FLOAT32, 1 - rank, 0, NULL), "more than memory"},
        {ddp_isend(g, NULL, 1, DDP_FLOAT32, 1 - rank, 0, NULL, &r), "buffer is NULL"},
        {ddp_irecv(g, &x, 1, DDP_FLOAT32, 1 - rank, 0, NULL, NULL), "ret_request is NULL"},
        {ddp_test(NULL, &(int){0}), "are needed"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        RANK_CHECK(rank, bad[i].rc == DDP_EINVAL, "case %zu", i);
    RANK_CHECK(rank, ddp_wait(NULL) == DDP_OK, "nothing to wait for");
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "nothing of this broke the group");
    ddp_finalize(g);
    return 0;
}

START_TEST(bad_arguments_break_nothing)
{
    struct ranks r;
    ranks_start(&r, 2, run_arguments, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_leaver(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    float x[SHORT];
    fill(x, SHORT, rank, 4);
    if (rank == 0) {
        RANK_CHECK(rank, ddp_send(g, x, SHORT, DDP_FLOAT32, 1, 0, NULL) == DDP_OK, "send");
    } else {
        RANK_CHECK(rank, ddp_recv(g, x, SHORT, DDP_FLOAT32, 0, 0, NULL) == DDP_OK, "recv");
        expect(rank, x, SHORT, 0, 4);
        int rc = ddp_recv(g, x, SHORT, DDP_FLOAT32, 0, 0, NULL);
        RANK_CHECK(rank, rc == DDP_EPEER, "got %s", ddp_strerror(rc));
        RANK_CHECK(rank,
                   strstr(ddp_last_error(), "ddp_recv of 1000 x float32 from rank 0, tag 0: "
                                            "rank 0 left the job") != NULL,
                   "text");
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(messages_sent_before_a_leave_arrive)
{
    struct ranks r;
    ranks_start(&r, 2, run_leaver, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_nobody(int rank, void *arg)
{
    struct ddp_group *g = rank_init(rank, 200);
    float *x = buffer(rank, g, LONG, false);
    char byte;
    int rc;
    if (rank == 1) {
        RANK_CHECK(rank, read(*(int *)arg, &byte, 1) == 0, "until the other has ended");
        rc = ddp_barrier(g);
        RANK_CHECK(rank, rc == DDP_ETIMEOUT, "got %s", ddp_strerror(rc));
        ddp_finalize(g);
        return 0;
    }
    rc = ddp_send(g, x, LONG, DDP_FLOAT32, 1, 0, NULL); /* long: it waits */
    RANK_CHECK(rank, rc == DDP_ETIMEOUT, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, strstr(ddp_last_error(), "ddp_send of 300000 x float32 to rank 1") != NULL,
               "what");
    RANK_CHECK(rank, strstr(ddp_last_error(), "waiting for rank 1 (pid") != NULL, "whom");
    RANK_CHECK(rank, strstr(ddp_last_error(), "no call yet)") != NULL, "where");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_message_that_is_not_received_names_the_other_side)
{
    int ends[2];
    struct ranks r;
    ck_assert_int_eq(pipe(ends), 0);
    ranks_init(&r, 2);
    ranks_start_one(&r, 0, run_nobody, &ends[0]);
    close(ends[1]); /* rank 0's alone: rank 1 waits until it is gone */
    ranks_start_one(&r, 1, run_nobody, &ends[0]);
    ranks_expect_success(&r);
    close(ends[0]);
}
END_TEST

struct victim {
    bool sends;
    int report;
};

static int run_until_broken(int rank, void *arg)
{
    const struct victim *v = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    float *x = buffer(rank, g, LONG, true);
    int rc = DDP_OK;
    for (int i = 0; rc == DDP_OK; i++) {
        if (i == 20)
            RANK_CHECK(rank, write(v->report, "x", 1) == 1, "report");
        rc = (rank == 1) == v->sends ? ddp_send(g, x, LONG, DDP_FLOAT32, 1 - rank, 0, NULL)
                                     : ddp_recv(g, x, LONG, DDP_FLOAT32, 1 - rank, 0, NULL);
    }
    RANK_CHECK(rank, rc == DDP_EPEER, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, strstr(ddp_last_error(), "rank 1 died") != NULL, "who");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_rank_that_is_killed_in_a_message_is_named)
{
    struct victim v = {.sends = _i == 1};
    struct ranks r;
    int ends[2];
    char bytes[2];
    ck_assert_int_eq(pipe(ends), 0);
    v.report = ends[1];
    ranks_start(&r, 2, run_until_broken, &v);
    close(ends[1]);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(read(ends[0], &bytes[i], 1), 1);
    kill(r.pid[1], SIGKILL);
    ranks_wait(&r);
    ck_assert(WIFSIGNALED(r.status[1]));
    ck_assert_int_eq(r.status[0], 0);
    close(ends[0]);
}
END_TEST

TEST_SUITE(p2p)
{
    Suite *suite = suite_create("messages");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 200);
    tcase_add_loop_test(tcase, messages_of_all_lengths_arrive, 0, 3);
    tcase_add_test(tcase, receives_of_one_tag_are_matched_in_order);
    tcase_add_test(tcase, receivers_choose_by_tag);
    tcase_add_test(tcase, unmatched_messages_are_bounded);
    tcase_add_test(tcase, messages_and_collectives_progress_during_each_other);
    tcase_add_test(tcase, groups_keep_their_messages_apart);
    tcase_add_test(tcase, both_ranks_report_a_message_of_another_count);
    tcase_add_test(tcase, bad_arguments_break_nothing);
    tcase_add_test(tcase, messages_sent_before_a_leave_arrive);
    tcase_add_test(tcase, a_message_that_is_not_received_names_the_other_side);
    tcase_add_loop_test(tcase, a_rank_that_is_killed_in_a_message_is_named, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
