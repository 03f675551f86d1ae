/* test_checkpoint_request.c - a node waits to join: real ranks, and the test at the other end of
 * their sockets, where ddprun would be. */
#include "tests/unit/worker-runtime/ranks.h"

#include <poll.h>
#include <sys/socket.h>

enum { N = 2 };

static int ours[N], theirs[N];

static void set_up(void)
{
    for (int i = 0; i < N; i++) {
        int pair[2];
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        ours[i] = pair[0];
        theirs[i] = pair[1];
    }
}

static void tear_down(void)
{
    for (int i = 0; i < N; i++) {
        close(ours[i]);
        close(theirs[i]);
    }
}

static struct ddp_group *join(int rank)
{
    char text[16];
    snprintf(text, sizeof text, "%d", theirs[rank]);
    setenv("DDP_CHECKPOINT_FD", text, 1);
    return rank_init(rank, 60000);
}

static int ask(int rank, struct ddp_group *g)
{
    int pending = 7;
    RANK_CHECK(rank, ddp_checkpoint_requested(g, &pending) == 0, "pending");
    return pending;
}

/* Only rank 1 received the request: both ranks learn of it, and after both have saved, it is
 * over. */
static int run_told(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = join(rank);
    RANK_CHECK(rank, ask(rank, g) == 0, "nobody waits yet");
    RANK_CHECK(rank, ddp_checkpoint_done(g) == 0, "of no use, and harmless");
    RANK_CHECK(rank, ddp_barrier(g) == 0, "barrier");
    if (rank == 0)
        RANK_CHECK(rank, send(ours[1], "\n", 1, 0) == 1, "the question");
    RANK_CHECK(rank, ddp_barrier(g) == 0, "barrier");
    RANK_CHECK(rank, ask(rank, g) == 1, "somebody waits");
    RANK_CHECK(rank, ask(rank, g) == 1, "still");
    RANK_CHECK(rank, ddp_checkpoint_done(g) == 0, "ready");
    RANK_CHECK(rank, ask(rank, g) == 0, "it was answered");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_request_to_one_rank_reaches_all_ranks)
{
    struct ranks r;
    char bytes[8];
    ranks_start(&r, N, run_told, NULL);
    ranks_expect_success(&r);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(recv(ours[i], bytes, sizeof bytes, MSG_DONTWAIT), 2);
}
END_TEST

/* A step of training informs all ranks: after it, a rank answers without another call. */
static int run_steps(int rank, void *arg)
{
    float param = 0;
    struct ddp_tensor t = {.name = "w", .param = &param, .count = 1};
    struct ddp_model *m;
    (void)arg;
    struct ddp_group *g = join(rank);
    RANK_CHECK(rank, ddp_model_create(g, &t, 1, NULL, &m) == 0, "model");
    RANK_CHECK(rank, ddp_model_sync(m) == 0 && ask(rank, g) == 0, "nobody waits yet");
    if (rank == 0)
        RANK_CHECK(rank, send(ours[1], "\n", 1, 0) == 1, "the question");
    RANK_CHECK(rank, ddp_barrier(g) == 0, "barrier");
    RANK_CHECK(rank, ddp_model_sync(m) == 0, "a step");
    if (rank == 0) { /* in no collective: it already knows */
        RANK_CHECK(rank, ask(rank, g) == 1, "somebody waits");
        RANK_CHECK(rank, ddp_barrier(g) == 0, "barrier");
    } else {
        RANK_CHECK(rank, ddp_barrier(g) == 0, "barrier");
        RANK_CHECK(rank, ask(rank, g) == 1, "somebody waits");
    }
    RANK_CHECK(rank, ask(rank, g) == 1, "still, and asked for");
    RANK_CHECK(rank, ddp_model_sync(m) == 0 && ddp_checkpoint_done(g) == 0, "ready");
    RANK_CHECK(rank, ask(rank, g) == 0, "it was answered");
    RANK_CHECK(rank, ddp_model_sync(m) == 0 && ask(rank, g) == 0, "nobody waits any more");
    ddp_finalize(g);
    return 0;
}

START_TEST(the_end_of_a_step_informs_all_ranks_of_a_request)
{
    struct ranks r;
    ranks_start(&r, N, run_steps, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* For a long time, no process reads the answers: the rank must not wait for that. */
static int run_talking(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = join(rank);
    for (int i = 0; i < 10000; i++)
        RANK_CHECK(rank, ddp_checkpoint_done(g) == 0, "answer %d", i);
    ddp_finalize(g);
    return 0;
}

START_TEST(a_launcher_that_does_not_read_blocks_no_rank)
{
    struct ranks r;
    ranks_start(&r, 1, run_talking, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_without(int rank, void *arg)
{
    (void)arg;
    int pending = 7;
    struct ddp_group *g = rank_init(rank, 60000);
    RANK_CHECK(rank, ask(rank, g) == 0, "nobody can join");
    RANK_CHECK(rank, ddp_checkpoint_done(g) == 0, "nobody wants to know");
    RANK_CHECK(rank, ddp_checkpoint_requested(NULL, &pending) == DDP_EINVAL && pending == 7,
               "no group");
    RANK_CHECK(rank, ddp_checkpoint_requested(g, NULL) == DDP_EINVAL, "no place");
    RANK_CHECK(rank, ddp_checkpoint_done(NULL) == DDP_EINVAL, "no group");
    setenv("DDP_CHECKPOINT_FD", "four", 1);
    RANK_CHECK(rank, ddp_checkpoint_requested(g, &pending) == DDP_EENV, "no number");
    RANK_CHECK(rank, strstr(ddp_last_error(), "invalid value 'four' for DDP_CHECKPOINT_FD") != NULL,
               "its text");
    RANK_CHECK(rank, ddp_checkpoint_done(g) == DDP_EENV, "no number");
    ddp_finalize(g);
    return 0;
}

START_TEST(in_a_fixed_job_no_rank_is_asked)
{
    struct ranks r;
    ranks_start(&r, 1 + _i, run_without, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_alone(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = join(rank);
    RANK_CHECK(rank, ddp_checkpoint_done(g) == DDP_ESYSTEM, "there is nobody");
    RANK_CHECK(rank, strstr(ddp_last_error(), "DDP_CHECKPOINT_FD") != NULL, "its text");
    close(theirs[0]);
    RANK_CHECK(rank, ask(rank, g) == 0, "a descriptor that was closed says nothing");
    RANK_CHECK(rank, ddp_checkpoint_done(g) == DDP_ESYSTEM, "nor is it listened to");
    ddp_finalize(g);
    return 0;
}

START_TEST(an_answer_to_a_closed_socket_is_an_error)
{
    struct ranks r;
    ranks_init(&r, 1);
    close(ours[0]); /* before there is a copy of it */
    ranks_start_one(&r, 0, run_alone, NULL);
    ranks_expect_success(&r);
    ours[0] = dup(theirs[0]); /* for tear_down() */
}
END_TEST

TEST_SUITE(checkpoint_request)
{
    Suite *suite = suite_create("checkpoint_request");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 150);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_request_to_one_rank_reaches_all_ranks);
    tcase_add_test(tcase, the_end_of_a_step_informs_all_ranks_of_a_request);
    tcase_add_test(tcase, a_launcher_that_does_not_read_blocks_no_rank);
    tcase_add_loop_test(tcase, in_a_fixed_job_no_rank_is_asked, 0, 2);
    tcase_add_test(tcase, an_answer_to_a_closed_socket_is_an_error);
    suite_add_tcase(suite, tcase);
    return suite;
}
