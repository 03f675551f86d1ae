#include "common/error.h"
#include "segments/broker.h"
#include "segments/control.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/core/cpus.h"
#include "worker-runtime/join/node_join.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un address_of(const struct ranks *r, socklen_t *ret_size)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char job[80];
    snprintf(job, sizeof job, "name %s", r->job);
    node_join_name(job, (unsigned)geteuid(), a.sun_path + 1);
    *ret_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(a.sun_path + 1));
    return a;
}

static int run_sum(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    float x = (float)rank + 1;
    int n = ddp_world_size(g);
    RANK_CHECK(rank, ddp_all_reduce(g, &x, &x, 1, DDP_FLOAT32, DDP_SUM, NULL) == DDP_OK, "sum");
    RANK_CHECK(rank, x == (float)(n * (n + 1) / 2), "%g", (double)x);
    ddp_finalize(g);
    return 0;
}

START_TEST(ranks_find_each_other_in_any_order)
{
    struct ranks r;
    ranks_init(&r, 4);
    for (int i = 0; i < 4; i++)
        ranks_start_one(&r, (_i + i) % 4, run_sum, NULL);
    ranks_expect_success(&r);
}
END_TEST

struct absence {
    int missing;
    const char *text;
};

static int run_in_vain(int rank, void *arg)
{
    const struct absence *absence = arg;
    struct ddp_group *g;
    /* longer than a busy machine needs until the others have joined */
    struct ddp_init_opts opts = {.start_timeout_ms = 2000};
    int rc = ddp_init(&opts, &g);
    RANK_CHECK(rank, rc == DDP_ETIMEOUT, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank,
               strstr(ddp_last_error(), absence->text) != NULL ||
                   strstr(ddp_last_error(), "timed out waiting for its peers to join") != NULL,
               "expected: %s", absence->text);
    return strstr(ddp_last_error(), absence->text) != NULL ? 7 : 8;
}

START_TEST(a_rank_that_never_joins_is_named)
{
    static const struct absence absences[] = {{1, "timed out waiting for rank 1 of 3 to join"},
                                              {0, "timed out waiting for rank 0 to join"}};
    struct absence absence = absences[_i];
    struct ranks r;
    int n_named = 0;
    ranks_init(&r, 3);
    for (int i = 0; i < 3; i++)
        if (i != absence.missing)
            ranks_start_one(&r, i, run_in_vain, &absence);
    ranks_wait(&r);
    for (int i = 0; i < 3; i++) {
        if (i == absence.missing)
            continue;
        ck_assert_msg(WIFEXITED(r.status[i]) && WEXITSTATUS(r.status[i]) >= 7, "rank %d", i);
        n_named += WEXITSTATUS(r.status[i]) == 7;
    }
    ck_assert_int_ge(n_named, 1);
}
END_TEST

/* As /proc/self/smaps has them: "dc", no copy for children, and "dd", not in core dumps. */
static bool has_control_flags(void)
{
    char line[512];
    bool is_control = false, has_flags = false;
    FILE *maps = fopen("/proc/self/smaps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        is_control = is_control || strstr(line, "ddp-control") != NULL;
        if (!is_control || strncmp(line, "VmFlags:", strlen("VmFlags:")) != 0)
            continue;
        has_flags = strstr(line, " dc") != NULL && strstr(line, " dd") != NULL;
        break;
    }
    if (maps != NULL)
        fclose(maps);
    return has_flags;
}

/* Local rank 0 serves the others: it has the segment mapped as ddprun has. */
static int run_and_look_at_maps(int rank, void *arg)
{
    struct ddp_group *g;
    (void)arg;
    RANK_CHECK(rank, ddp_init(NULL, &g) == 0, "%s", ddp_last_error());
    RANK_CHECK(rank, rank == 0 || has_control_flags(), "the mapping does not have the flags");
    ddp_finalize(g);
    return 0;
}

START_TEST(children_and_core_dumps_do_not_have_the_control_segment)
{
    struct ranks r;
    ranks_init(&r, 2);
    for (int i = 0; i < 2; i++)
        ranks_start_one(&r, i, run_and_look_at_maps, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* --- others on the abstract socket ------------------------------------------------------------ */

static int connect_to(const struct ranks *r)
{
    socklen_t size;
    struct sockaddr_un a = address_of(r, &size);
    uint64_t deadline_ms = co_deadline_ms(30000);
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(sock, 0);
    while (connect(sock, (struct sockaddr *)&a, size) != 0) {
        ck_assert_int_eq(errno, ECONNREFUSED);
        ck_assert_int_ne(co_left_ms(deadline_ms), 0);
        poll(NULL, 0, 1);
    }
    return sock;
}

START_TEST(garbage_on_the_socket_does_not_block_ranks)
{
    struct ranks r;
    int sock[3];
    char garbage[4096];
    memset(garbage, 0xee, sizeof garbage);
    ranks_init(&r, 2);
    ranks_start_one(&r, 0, run_sum, NULL);
    /* one that sends nothing, one that sends too much, one that sends too little */
    for (int i = 0; i < 3; i++) {
        sock[i] = connect_to(&r);
        if (i > 0)
            ck_assert_int_gt(send(sock[i], garbage, i == 1 ? sizeof garbage : 3, MSG_NOSIGNAL), 0);
    }
    ranks_start_one(&r, 1, run_sum, NULL);
    ranks_expect_success(&r);
    for (int i = 0; i < 3; i++)
        close(sock[i]);
}
END_TEST

static int run_sum_without(int rank, void *arg)
{
    close(*(int *)arg); /* inherited: it must be the test's alone */
    return run_sum(rank, NULL);
}

START_TEST(a_taken_socket_is_waited_for)
{
    struct ranks r;
    socklen_t size;
    ranks_init(&r, 2);
    struct sockaddr_un a = address_of(&r, &size);
    int taken = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(taken, (struct sockaddr *)&a, size), 0);
    ck_assert_int_eq(listen(taken, 8), 0);
    ranks_start_one(&r, 0, run_sum_without, &taken);
    ranks_start_one(&r, 1, run_sum_without, &taken);
    int sock = accept4(taken, NULL, NULL, SOCK_CLOEXEC); /* rank 1 takes us for rank 0 */
    ck_assert_int_ge(sock, 0);
    close(taken);
    close(sock);
    ranks_expect_success(&r);
}
END_TEST

START_TEST(a_socket_that_stays_taken_is_reported)
{
    struct ranks r;
    socklen_t size;
    struct absence absence = {-1, "is a job with the same ID still running?"};
    ranks_init(&r, 2);
    struct sockaddr_un a = address_of(&r, &size);
    int taken = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(taken, (struct sockaddr *)&a, size), 0);
    ranks_start_one(&r, 0, run_in_vain, &absence);
    ranks_wait(&r);
    ck_assert_int_eq(WEXITSTATUS(r.status[0]), 7);
    close(taken);
}
END_TEST

static int run_stopped_joining(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g;
    int rc = ddp_init(NULL, &g);
    RANK_CHECK(rank, rc == DDP_EPEER, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, strstr(ddp_last_error(), "rank 2 died before all ranks had joined") != NULL,
               "text");
    return 0;
}

/* Wait until a process has mapped the control segment. */
static void wait_for_control(pid_t pid)
{
    uint64_t deadline_ms = co_deadline_ms(30000);
    for (bool here = false; !here;) {
        char path[64], line[4096];
        snprintf(path, sizeof path, "/proc/%d/maps", pid);
        FILE *maps = fopen(path, "re");
        ck_assert_ptr_nonnull(maps);
        while (fgets(line, sizeof line, maps) != NULL)
            here = here || strstr(line, "ddp-control") != NULL;
        fclose(maps);
        ck_assert_int_ne(co_left_ms(deadline_ms), 0);
    }
}

START_TEST(a_rank_that_dies_while_others_join_is_named)
{
    struct ranks r;
    ranks_init(&r, 4); /* rank 3 never comes, so that 0, 1 and 2 stay where they are */
    ranks_start_one(&r, 0, run_stopped_joining, NULL);
    ranks_start_one(&r, 1, run_stopped_joining, NULL);
    ranks_start_one(&r, 2, run_stopped_joining, NULL);
    wait_for_control(r.pid[1]); /* a rank that joins after the end finds no other rank */
    wait_for_control(r.pid[2]);
    kill(r.pid[2], SIGKILL);
    ranks_wait(&r);
    ck_assert(WIFSIGNALED(r.status[2]));
    ck_assert_int_eq(r.status[0], 0);
    ck_assert_int_eq(r.status[1], 0);
}
END_TEST

/* --- with a broker, as under ddprun ----------------------------------------------------------- */

struct brokered {
    struct ranks ranks;
    struct broker *broker;
    struct control *control;
    int fd, ends[3][2];
};

static void start_brokered(struct brokered *b, rank_fn *fn, void *arg)
{
    ranks_init(&b->ranks, 3);
    ck_assert_int_eq(control_create(3, 0, &b->fd, &b->control, NULL), 0);
    ck_assert_int_eq(broker_create(3, b->fd, &b->broker, NULL), 0);
    for (int i = 0; i < 3; i++) {
        char text[16];
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, b->ends[i]), 0);
        fcntl(b->ends[i][0], F_SETFL, O_NONBLOCK);
        fcntl(b->ends[i][0], F_SETFD, FD_CLOEXEC);
        snprintf(text, sizeof text, "%d", b->ends[i][1]);
        setenv("DDP_NODE_FD", text, 1);
        ranks_start_one(&b->ranks, i, fn, arg);
        close(b->ends[i][1]);
    }
    unsetenv("DDP_NODE_FD");
}

/* Serve until all ranks have closed their sockets. */
static void serve(struct brokered *b)
{
    uint64_t deadline_ms = co_deadline_ms(RANKS_DEADLINE_MS);
    for (int open = 3; open > 0;) {
        struct pollfd watch[3];
        for (int i = 0; i < 3; i++)
            watch[i] = (struct pollfd){.fd = b->ends[i][0], .events = POLLIN};
        ck_assert_int_gt(poll(watch, 3, co_left_ms(deadline_ms)), 0);
        for (int i = 0; i < 3; i++) {
            int rank = i;
            if (watch[i].revents == 0 ||
                broker_on_readable(b->broker, i, b->ends[i][0], &rank, NULL) > 0)
                continue;
            close(b->ends[i][0]);
            b->ends[i][0] = -1;
            open--;
        }
    }
}

static void end_brokered(struct brokered *b)
{
    broker_destroy(b->broker);
    control_unmap(b->control);
    close(b->fd);
}

static int run_once_only(int rank, void *arg)
{
    int fd = atoi(getenv("DDP_NODE_FD"));
    run_sum(rank, arg);
    RANK_CHECK(rank, fcntl(fd, F_GETFD) < 0 && errno == EBADF, "the node socket is still open");
    struct ddp_group *g;
    char text[16];
    int pair[2];
    RANK_CHECK(rank, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "socketpair");
    snprintf(text, sizeof text, "%d", pair[0]);
    setenv("DDP_NODE_FD", text, 1);
    RANK_CHECK(rank, ddp_init(NULL, &g) == DDP_EUNSUPPORTED, "ddprun admits a process once");
    return 0;
}

START_TEST(ranks_of_ddprun_join_over_the_inherited_socket)
{
    struct brokered b;
    start_brokered(&b, run_once_only, NULL);
    serve(&b);
    ranks_expect_success(&b.ranks);
    end_brokered(&b);
}
END_TEST

static int run_stopped(int rank, void *arg)
{
    struct ddp_group *g = rank_init(rank, 60000);
    int rc;
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "barrier");
    RANK_CHECK(rank, write(*(int *)arg, "x", 1) == 1, "report");
    if (rank == 0)
        pause(); /* it is stopped outside of the library */
    rc = ddp_barrier(g);
    RANK_CHECK(rank, rc == DDP_EPEER, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, strstr(ddp_last_error(), "ddprun is stopping the job") != NULL, "text");
    ddp_finalize(g);
    return 0;
}

START_TEST(ddprun_can_end_every_wait)
{
    struct brokered b;
    int report[2];
    char bytes[3];
    ck_assert_int_eq(pipe2(report, O_NONBLOCK), 0);
    start_brokered(&b, run_stopped, &report[1]);
    uint64_t deadline_ms = co_deadline_ms(30000);
    for (ssize_t n = 0, got = 0; got<3; got += n> 0 ? n : 0) { /* serve until all have reported */
        ck_assert_int_ne(co_left_ms(deadline_ms), 0);
        for (int i = 0, rank; i < 3; i++)
            ck_assert_int_ge(broker_on_readable(b.broker, i, b.ends[i][0], &rank, NULL), 0);
        n = read(report[0], bytes, sizeof bytes);
        poll(NULL, 0, 1);
    }
    control_abort_set(b.control, (struct control_abort){.cause = CONTROL_JOB_STOPPING});
    kill(b.ranks.pid[0], SIGKILL);
    ranks_wait(&b.ranks);
    ck_assert(b.ranks.status[1] == 0 && b.ranks.status[2] == 0);
    for (int i = 0; i < 3; i++)
        close(b.ends[i][0]);
    end_brokered(&b);
}
END_TEST

static int run_without_socket(int rank, void *arg)
{
    int ends[2]; /* the number is in use for something else: a pipe */
    char text[16];
    RANK_CHECK(rank, pipe(ends) == 0, "pipe");
    snprintf(text, sizeof text, "%d", ends[0]);
    setenv("DDP_NODE_FD", rank == 0 ? text : "987", 1);
    run_sum(rank, arg);
    RANK_CHECK(rank, fcntl(ends[0], F_GETFD) == 0, "a descriptor of others was changed");
    return 0;
}

START_TEST(ranks_whose_node_socket_was_closed_find_each_other)
{
    struct ranks r;
    ranks_start(&r, 2, run_without_socket, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_twice(int rank, void *arg)
{
    for (int i = 0; i < 5; i++)
        run_sum(rank, arg);
    return 0;
}

START_TEST(ranks_may_leave_and_join_again)
{
    struct ranks r;
    ranks_start(&r, 3, run_twice, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_disagreement(int rank, void *arg)
{
    (void)arg;
    if (rank == 1)
        setenv("WORLD_SIZE", "3", 1);
    struct ddp_group *g;
    struct ddp_init_opts opts = {.start_timeout_ms = 5000};
    RANK_CHECK(rank, ddp_init(&opts, &g) != DDP_OK, "joined");
    const char *text =
        "a rank expects 3 ranks on this node, but there are 2; check LOCAL_WORLD_SIZE";
    RANK_CHECK(rank, strstr(ddp_last_error(), text) != NULL, "text");
    return 0;
}

START_TEST(ranks_that_expect_different_sizes_get_an_error)
{
    struct ranks r;
    ranks_start(&r, 2, run_disagreement, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_bad_environment(int rank, void *arg)
{
    const char *const *setting = arg;
    struct ddp_group *g;
    setenv(setting[0], setting[1], 1);
    int rc = ddp_init(NULL, &g);
    RANK_CHECK(rank, rc == DDP_EENV, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, strstr(ddp_last_error(), setting[0]) != NULL, "text");
    return 0;
}

START_TEST(a_bad_variable_is_named)
{
    static const char *const settings[][2] = {
        {"DDP_SIMD", "sse9"},
        {"DDP_SEGMENT_BYTES", "much"},
        {"WORLD_SIZE", "two"},
        {"DDP_BACKEND", "ncll"},
        {"DDP_CMA", "9"},
        {"DDP_NCCL_ABORT_TIMEOUT", "zz"},
        {"DDP_TIMEOUT", "soon"},
        {"DDP_PROGRESS_THREAD", "2"},
        {"DDP_TUNING", "/no/such/table"},
        {"DDP_NODE_RANK", "one"},
    };
    struct ranks r;
    for (int n = 1; n <= 2; n++) { /* also a world of 1, which uses none of them */
        ranks_start(&r, n, run_bad_environment, (void *)settings[_i]);
        ranks_expect_success(&r);
    }
}
END_TEST

START_TEST(some_processor_time_is_allowed)
{
    ck_assert_uint_ge(cpus_quota(), 1);
}
END_TEST

START_TEST(a_socket_name_keeps_jobs_and_users_apart)
{
    char a[NODE_JOIN_NAME_BYTES], b[NODE_JOIN_NAME_BYTES], longer[600];
    node_join_name("x", 1, a);
    node_join_name("x", 2, b);
    ck_assert_str_ne(a, b);
    node_join_name("y", 1, b);
    ck_assert_str_ne(a, b);
    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    node_join_name(longer, 1, a);
    longer[sizeof longer - 2] = 'b';
    node_join_name(longer, 1, b);
    ck_assert_str_ne(a, b);
    ck_assert_uint_lt(strlen(a), NODE_JOIN_NAME_BYTES - 1);
}
END_TEST

TEST_SUITE(join)
{
    Suite *suite = suite_create("join");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 150);
    tcase_add_loop_test(tcase, ranks_find_each_other_in_any_order, 0, 4);
    tcase_add_loop_test(tcase, a_rank_that_never_joins_is_named, 0, 2);
    tcase_add_test(tcase, children_and_core_dumps_do_not_have_the_control_segment);
    tcase_add_test(tcase, garbage_on_the_socket_does_not_block_ranks);
    tcase_add_test(tcase, a_taken_socket_is_waited_for);
    tcase_add_test(tcase, a_socket_that_stays_taken_is_reported);
    tcase_add_test(tcase, a_rank_that_dies_while_others_join_is_named);
    tcase_add_test(tcase, ranks_of_ddprun_join_over_the_inherited_socket);
    tcase_add_test(tcase, ddprun_can_end_every_wait);
    tcase_add_test(tcase, ranks_whose_node_socket_was_closed_find_each_other);
    tcase_add_test(tcase, ranks_may_leave_and_join_again);
    tcase_add_test(tcase, ranks_that_expect_different_sizes_get_an_error);
    tcase_add_loop_test(tcase, a_bad_variable_is_named, 0, 10);
    tcase_add_test(tcase, some_processor_time_is_allowed);
    tcase_add_test(tcase, a_socket_name_keeps_jobs_and_users_apart);
    suite_add_tcase(suite, tcase);
    return suite;
}
