/* test_spawn.c - ranks out of one program: as processes, and as threads. */
#include "segments/node_socket.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/group/first_failure.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* --- both ------------------------------------------------------------------------------------- */

typedef int spawn_fn(int (*fn)(struct ddp_group *world, void *arg), int n, void *arg);

static spawn_fn *const spawns[] = {ddp_spawn, ddp_spawn_threads};
static const char *const names[] = {"processes", "threads"};

struct shared { /* between test and ranks */
    atomic_int n_ran, n_right;
    _Atomic pid_t pid[8];
};

static struct shared *shared_memory(void)
{
    struct shared *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(s, MAP_FAILED);
    return s;
}

/* Scatter, replicate, compute, gather; a model; a group of its own. */
static int use_all(struct ddp_group *g, void *arg)
{
    struct shared *s = arg;
    const int n = ddp_world_size(g), rank = ddp_rank(g);
    float batch[64], own[8], weight = rank == 0 ? 3 : 0, all[64];
    float param = (float)rank + 1;
    struct ddp_tensor t = {.name = "t", .param = &param, .count = 1, .dtype = DDP_FLOAT32};
    struct ddp_group *sub;
    struct ddp_model *m;
    void *segment;
    int rc;
    atomic_fetch_add(&s->n_ran, 1);
    for (int i = 0; i < 64; i++)
        batch[i] = (float)i;
    if ((rc = ddp_scatter(g, batch, own, 8, DDP_FLOAT32, 0, NULL)) != 0 ||
        (rc = ddp_broadcast(g, &weight, &weight, 1, DDP_FLOAT32, 0, NULL)) != 0)
        return rc;
    for (int i = 0; i < 8; i++)
        own[i] *= weight;
    if ((rc = ddp_gather(g, own, all, 8, DDP_FLOAT32, 0, NULL)) != 0 ||
        (rc = ddp_alloc(g, 4096, &segment)) != 0 ||
        (rc = ddp_all_reduce(g, own, segment, 8, DDP_FLOAT32, DDP_SUM, NULL)) != 0 ||
        (rc = ddp_model_create(g, &t, 1, NULL, &m)) != 0)
        return rc;
    ddp_free(g, segment);
    *(float *)t.grad = (float)rank;
    if ((rc = ddp_model_sync(m)) != 0 || (rc = ddp_group_split(g, rank % 2, 0, &sub)) != 0 ||
        (rc = ddp_barrier(sub)) != 0)
        return rc;
    bool right = param == 1 && *(float *)t.grad == (float)(n - 1) / 2;
    for (int i = 0; rank == 0 && i < 8 * n; i++)
        right &= all[i] == 3 * (float)i;
    atomic_fetch_add(&s->n_right, right);
    return 0;
}

START_TEST(ranks_of_either_kind_can_use_the_whole_library)
{
    static const int sizes[] = {1, 2, 4};
    struct shared *s = shared_memory();
    const int n = sizes[_i / 2];
    ck_assert_msg(spawns[_i % 2](use_all, n, s) == 0, "%d %s: %s", n, names[_i % 2],
                  ddp_last_error());
    ck_assert_int_eq(s->n_ran, n);
    ck_assert_int_eq(s->n_right, n);
}
END_TEST

static int fail_on_1(struct ddp_group *g, void *arg)
{
    (void)arg;
    if (ddp_rank(g) == 1)
        return ddp_broadcast(g, NULL, NULL, 1, (enum ddp_dtype)99, 0, NULL); /* refused here only */
    return ddp_barrier(g);
}

START_TEST(the_first_failure_is_returned_with_its_text)
{
    for (int round = 0; round < 5; round++) {
        ck_assert_int_eq(spawns[_i](fail_on_1, 3, NULL), DDP_EINVAL);
        ck_assert_ptr_nonnull(strstr(ddp_last_error(), "rank 1 of 3: "));
        ck_assert_ptr_nonnull(strstr(ddp_last_error(), "99"));
    }
}
END_TEST

static int return_seven(struct ddp_group *g, void *arg)
{
    (void)arg;
    return ddp_rank(g) == 0 ? 7 : 0;
}

static int fail_alone(struct ddp_group *g, void *arg)
{
    return ddp_rank(g) == 1 ? *(int *)arg : 0;
}

static int fail_in_a_call(struct ddp_group *g, void *arg)
{
    (void)arg;
    return ddp_rank(g) == 1 ? ddp_alloc(g, 1, NULL) : 0;
}

START_TEST(a_failure_does_not_have_the_text_of_an_earlier_one)
{
    int own = -42, invalid = DDP_EINVAL;
    char text[128];
    snprintf(text, sizeof text, "rank 1 of 3: %s: the function returned -42",
             _i == 0 ? "ddp_spawn" : "ddp_spawn_threads");
    ck_assert_int_eq(spawns[_i](fail_in_a_call, 3, NULL), DDP_EINVAL);
    ck_assert_str_eq(ddp_last_error(), "rank 1 of 3: ddp_alloc: ret_ptr is NULL");
    ck_assert_int_eq(spawns[_i](fail_alone, 3, &own), -42);
    ck_assert_str_eq(ddp_last_error(), text);
    ck_assert_int_eq(spawns[_i](fail_alone, 3, &invalid), DDP_EINVAL);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "the function returned -1 (DDP_EINVAL)"));
    ck_assert_ptr_null(strstr(ddp_last_error(), "-42"));
}
END_TEST

static int finalize_and_succeed(struct ddp_group *g, void *arg)
{
    (void)arg;
    ddp_finalize(g);
    return ddp_barrier(g);
}

START_TEST(a_function_that_finalizes_its_world_fails)
{
    ck_assert_int_eq(spawns[_i](finalize_and_succeed, 2, NULL), DDP_EINVAL);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "the function called ddp_finalize()"));
}
END_TEST

START_TEST(a_positive_result_is_an_error)
{
    ck_assert_int_eq(spawns[_i](return_seven, 2, NULL), DDP_EINVAL);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "returned 7"));
}
END_TEST

START_TEST(numbers_out_of_bounds_are_refused)
{
    ck_assert_int_eq(spawns[_i](use_all, 0, NULL), DDP_EINVAL);
    ck_assert_int_eq(spawns[_i](use_all, 1 << 20, NULL), DDP_EINVAL);
    ck_assert_int_eq(spawns[_i](NULL, 2, NULL), DDP_EINVAL);
}
END_TEST

START_TEST(an_invalid_variable_is_named)
{
    setenv("DDP_TIMEOUT", "soon", 1);
    ck_assert_int_eq(spawns[_i](use_all, 2, NULL), DDP_EENV);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "DDP_TIMEOUT"));
    unsetenv("DDP_TIMEOUT");
}
END_TEST

/* --- threads ---------------------------------------------------------------------------------- */

static int exit_on_1(struct ddp_group *g, void *arg)
{
    (void)arg;
    if (ddp_rank(g) == 1)
        pthread_exit(NULL);
    return ddp_barrier(g);
}

START_TEST(a_thread_that_ends_otherwise_stops_the_others_and_is_named)
{
    ck_assert_int_eq(ddp_spawn_threads(exit_on_1, 3, NULL), DDP_EPEER);
    ck_assert_str_eq(
        ddp_last_error(),
        "ddp_spawn_threads: rank 1 of 3 called pthread_exit() before its function returned");
}
END_TEST

/* --- processes -------------------------------------------------------------------------------- */

/* Rank 1 ends in a way; the others wait, in a call or deaf to it. */
static int end_somehow(struct ddp_group *g, void *arg)
{
    const int how = *(int *)arg;
    if (ddp_rank(g) != 1) {
        while (how == 2 && pause() < 0 && errno == EINTR) /* without a call of the library */
            ;
        return ddp_barrier(g);
    }
    if (how == 0)
        raise(SIGKILL);
    if (how == 1)
        raise(SIGSEGV);
    exit(how == 3 ? 0 : 5);
}

static const char *const ends[] = {
    "ddp_spawn: rank 1 of 3 was killed by signal 9 (Killed)",
    "ddp_spawn: rank 1 of 3 was killed by signal 11 (Segmentation fault)",
    "ddp_spawn: rank 1 of 3 called exit(5) before its function returned",
    "ddp_spawn: rank 1 of 3 called exit(0) before its function returned",
};

START_TEST(a_process_that_ends_otherwise_stops_the_others_and_is_named)
{
    signal(SIGSEGV, SIG_DFL); /* whatever a sanitizer would do */
    ck_assert_int_eq(ddp_spawn(end_somehow, 3, &_i), DDP_EPEER);
    ck_assert_str_eq(ddp_last_error(), ends[_i]);
}
END_TEST

static int be_deaf(struct ddp_group *g, void *arg)
{
    (void)arg;
    signal(SIGTERM, SIG_IGN);
    if (ddp_barrier(g) != 0)
        return DDP_EPEER;
    while (ddp_rank(g) != 0)
        pause();
    return ddp_barrier(NULL);
}

START_TEST(a_rank_that_ignores_sigterm_is_killed)
{
    ck_assert_int_eq(ddp_spawn(be_deaf, 2, NULL), DDP_EINVAL);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "rank 0 of 2"));
}
END_TEST

static int tell_pid(struct ddp_group *g, void *arg)
{
    struct shared *s = arg;
    s->pid[ddp_rank(g)] = getpid();
    atomic_fetch_add(&s->n_ran, 1);
    while (true)
        pause();
    return 0;
}

START_TEST(ranks_die_with_the_program_that_spawned_them)
{
    struct shared *s = shared_memory();
    const uint64_t deadline_ms = co_deadline_ms(RANKS_DEADLINE_MS);
    int alive[2];
    ck_assert_int_eq(pipe(alive), 0);
    pid_t parent = fork();
    if (parent == 0) {
        close(alive[0]);
        _exit(ddp_spawn(tell_pid, 2, s) != 0);
    }
    close(alive[1]);
    while (s->n_ran < 2 && co_left_ms(deadline_ms) > 0)
        usleep(1000);
    ck_assert_int_eq(s->n_ran, 2);
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    char byte; /* the last one that has the other end is gone */
    ck_assert_int_eq(read(alive[0], &byte, 1), 0);
    close(alive[0]);
}
END_TEST

/* --- threads ---------------------------------------------------------------------------------- */

static int lose_1(struct ddp_group *g, void *arg)
{
    struct shared *s = arg;
    if (ddp_rank(g) == 1)
        return DDP_EPEER;
    const int rc = ddp_barrier(g);
    atomic_fetch_add(&s->n_right, rc == DDP_EPEER);
    return rc;
}

/* The process itself is a rank, of a job that continues when it loses one. */
START_TEST(a_lost_thread_is_not_a_lost_rank_of_the_job)
{
    struct shared *s = shared_memory();
    struct node_message m;
    int node[2], fd;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, node), 0);
    ck_assert_int_eq(process_enter(node[1], 0, NULL), 0);
    process_set_may_go_on(true);
    ck_assert_int_eq(ddp_spawn_threads(lose_1, 3, s), DDP_EPEER);
    ck_assert_int_eq(s->n_right, 2);
    ck_assert_int_eq(node_message_receive(node[0], &m, &fd, NULL), -EAGAIN);
    process_lose_peer(); /* one of the job */
    ck_assert_int_eq(node_message_receive(node[0], &m, &fd, NULL), 1);
    ck_assert_int_eq(m.type, NODE_LOST);
    process_leave(true);
    close(node[0]);
}
END_TEST

/* --- the first failure ------------------------------------------------------------------------ */

START_TEST(causes_precede_their_consequences)
{
    static const struct {
        struct rank_end of[3];
        int first;
    } cases[] = {
        {{{.order = 1}, {.order = 2}, {.order = 3}}, -1},
        {{{.order = 2, .status = DDP_EINVAL}, {.order = 1, .status = -77}, {.order = 3}}, 1},
        {{{.order = 1, .status = DDP_EPEER}, {.order = 2, .status = DDP_EINVAL}, {.order = 3}}, 1},
        {{{.order = 1, .status = DDP_EPEER}, {.signal = 9}, {.exit_status = 1}}, 1},
        {{{.order = 1, .status = DDP_EPEER}, {.order = 2}, {.exit_status = 1}}, 2},
        {{{.order = 2, .status = DDP_EPEER}, {.order = 1, .status = DDP_EPEER}, {.order = 3}}, 1},
        {{{.exit_status = 0}, {.order = 1}, {.order = 2}}, -1}, /* stopped by us */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_int_eq(first_failure_find(cases[i].of, 3), cases[i].first);
}
END_TEST

/* The test framework's own answer to SIGTERM would be inherited. */
static void set_up(void)
{
    signal(SIGTERM, SIG_DFL);
}

TEST_SUITE(spawn)
{
    Suite *s = suite_create("spawn");
    TCase *t = tcase_create("spawn");
    tcase_add_checked_fixture(t, set_up, NULL);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, ranks_of_either_kind_can_use_the_whole_library, 0, 6);
    tcase_add_loop_test(t, the_first_failure_is_returned_with_its_text, 0, 2);
    tcase_add_loop_test(t, a_failure_does_not_have_the_text_of_an_earlier_one, 0, 2);
    tcase_add_loop_test(t, a_function_that_finalizes_its_world_fails, 0, 2);
    tcase_add_loop_test(t, a_positive_result_is_an_error, 0, 2);
    tcase_add_loop_test(t, numbers_out_of_bounds_are_refused, 0, 2);
    tcase_add_loop_test(t, an_invalid_variable_is_named, 0, 2);
    tcase_add_test(t, a_thread_that_ends_otherwise_stops_the_others_and_is_named);
    tcase_add_loop_test(t, a_process_that_ends_otherwise_stops_the_others_and_is_named, 0, 4);
    tcase_add_test(t, a_rank_that_ignores_sigterm_is_killed);
    tcase_add_test(t, ranks_die_with_the_program_that_spawned_them);
    tcase_add_test(t, a_lost_thread_is_not_a_lost_rank_of_the_job);
    tcase_add_test(t, causes_precede_their_consequences);
    suite_add_tcase(s, t);
    return s;
}
