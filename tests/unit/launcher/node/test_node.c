/* A node of a one-node job, in this process: its steps, its starts and its roster. The spawner is a
 * double at the other end of its socket, and signals arrive through a pipe. The ranks are not
 * processes: the double reports that they started, and how they ended. */
#include "launcher/node/node_priv.h"

#include "common/error.h"
#include "launcher/job/job_spec.h"
#include "launcher/membership/solo_link.h"
#include "launcher/node/node_roster.h"
#include "launcher/spawner/spawner_wire.h"
#include "segments/node_socket.h"
#include "tests/support/cli_words.h"
#include "tests/support/fake_host_env.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_RANKS = 100 };

#define EXIT_STATUS(code) ((code) << 8)

static struct node n;
static struct job_spec spec;
static struct co_error err;
static int spawner_fd, signal_fd; /* the doubles' ends */
static int terminal_fd;           /* the node's stdout and stderr are this file */
static int null_fd;
static char folder[64];

/* --- The doubles --- */

/* The ranks' ends of the node sockets; of the descriptors that come along only these are kept. */
static int node_fd[MAX_RANKS];

static void keep_fds(const struct spawner_request *r, struct cmsghdr *c)
{
    int fds[SPAWNER_MAX_FDS];
    const size_t n_fds = c != NULL ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
    if (n_fds > 0)
        memcpy(fds, CMSG_DATA(c), n_fds * sizeof(int));
    for (int i = 0; i < r->n_ranks && r->type == SPAWNER_SPAWN; i++)
        node_fd[r->local_rank + i] = dup(fds[r->fd_of[i][SPAWN_NODE_FD]]);
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
}

/* The next request. returns its type; 0: none */
static int hear(struct spawner_request *ret)
{
    union {
        char bytes[CMSG_SPACE(SPAWNER_MAX_FDS * sizeof(int))];
        struct cmsghdr head;
    } control;
    struct iovec data = {.iov_base = ret, .iov_len = sizeof *ret};
    struct msghdr m = {.msg_iov = &data,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    if (recvmsg(spawner_fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *ret)
        return 0;
    keep_fds(ret, CMSG_FIRSTHDR(&m));
    return (int)ret->type;
}

/* Requests of no other type come before it. */
static struct spawner_request expect(enum spawner_request_type type)
{
    struct spawner_request r = {0};
    ck_assert_int_eq(hear(&r), type);
    return r;
}

static void expect_silence(void)
{
    struct spawner_request r;
    ck_assert_int_eq(hear(&r), 0);
}

static void turn(void)
{
    for (int i = 0; i < 3 && !n.ended; i++) {
        uv_run(&n.loop, UV_RUN_NOWAIT);
        node_settle(&n);
    }
}

static void report(struct spawner_report r)
{
    ck_assert_int_eq(send(spawner_fd, &r, sizeof r, 0), (ssize_t)sizeof r);
    turn();
}

static void started(int rank)
{
    report((struct spawner_report){
        .event = SPAWNER_STARTED, .local_rank = rank, .pid = getpid(), .way = SPAWNER_EXECUTED});
}

static void exited(int rank, int status, bool empty)
{
    report((struct spawner_report){
        .event = SPAWNER_EXITED, .local_rank = rank, .status = status, .empty = empty});
}

/* Rank `rank` joins the others, and can outlive them. */
static void joins(int rank, uint32_t generation)
{
    const struct node_message hello = {.magic = NODE_SOCKET_MAGIC,
                                       .version = NODE_SOCKET_VERSION,
                                       .type = NODE_HELLO,
                                       .local_rank = (uint32_t)rank,
                                       .n_local = (uint32_t)spec.n_local,
                                       .generation = generation,
                                       .flags = NODE_RECOVERS};
    struct node_message answer;
    int control, segment = memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    fcntl(segment, F_ADD_SEALS, F_SEAL_SHRINK);
    ck_assert_int_eq(node_message_send(node_fd[rank], &hello, segment), 0);
    close(segment);
    turn();
    ck_assert_int_eq(node_message_receive(node_fd[rank], &answer, &control, &err), 1);
    ck_assert_int_eq(answer.type, NODE_CONTROL);
    ck_assert_uint_eq(answer.generation, generation);
    close(control);
}

static void signalled(int sig)
{
    const struct signalfd_siginfo info = {.ssi_signo = (uint32_t)sig};
    ck_assert_int_eq(write(signal_fd, &info, sizeof info), (ssize_t)sizeof info);
    turn();
}

/* --- The node --- */

static void open_job(const char *const *words)
{
    static struct fake_host_env fake;
    enum cli_wish wish;
    int pair[2], signals[2];
    fake = fake_host_env_usual;
    const struct host_env world = fake_host_env_make(&fake);
    ck_assert_msg(cli_words_parse(words, &world, &wish, &spec, &err) == 0, "%s", err.text);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    ck_assert_int_eq(pipe2(signals, O_CLOEXEC | O_NONBLOCK), 0);
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    node_init(&n, &spec, null_fd);
    n.spawner.sock = pair[0]; /* without a pid: it is not waited for */
    n.signal_fd = signals[0];
    n.runtime_dir = folder; /* removed with the node */
    spawner_fd = pair[1];
    signal_fd = signals[1];
    ck_assert_msg(node_open(&n, &solo_link_ops, &err) == 0, "%s", err.text);
}

#define BEGIN(...)                                                                                 \
    do {                                                                                           \
        open_job((const char *[]){"ddprun", __VA_ARGS__, "true", NULL});                           \
        node_begin(&n);                                                                            \
        turn();                                                                                    \
    } while (0)

static void expect_start(int n_ranks)
{
    const struct spawner_request r = expect(SPAWNER_SPAWN);
    ck_assert_int_eq(r.local_rank, 0);
    ck_assert_int_eq(r.n_ranks, n_ranks);
    for (int i = 0; i < n_ranks; i++)
        started(i);
    ck_assert_int_eq(supervisor_get_state(n.supervisor), SUPERVISOR_RUNNING);
    expect_silence();
}

static void expect_end(int exit_code)
{
    ck_assert(n.ended);
    ck_assert_int_eq(supervisor_exit_code(n.supervisor), exit_code);
    ck_assert(node_queue_is_empty(&n.queue));
}

static void expect_said(const char *words)
{
    static char text[1 << 16];
    const ssize_t size = pread(terminal_fd, text, sizeof text - 1, 0);
    ck_assert_int_ge(size, 0);
    text[size] = '\0';
    ck_assert_msg(strstr(text, words) != NULL, "not said: %s\nbut: %s", words, text);
}

static void set_up(void)
{
    snprintf(folder, sizeof folder, "/tmp/test_node.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    terminal_fd = memfd_create("terminal", MFD_CLOEXEC);
    fcntl(terminal_fd, F_SETFL, O_APPEND);
    dup2(terminal_fd, STDOUT_FILENO);
    dup2(terminal_fd, STDERR_FILENO);
}

static void tear_down(void)
{
    if (n.spawner.sock >= 0)
        close(n.spawner.sock);
    node_close(&n);
    job_spec_fini(&spec);
    for (int i = 0; i < MAX_RANKS; i++)
        if (node_fd[i] > 0)
            close(node_fd[i]);
    memset(node_fd, 0, sizeof node_fd);
    close(spawner_fd);
    close(signal_fd);
    close(null_fd);
    close(terminal_fd);
}

START_TEST(ranks_that_succeed_end_the_job)
{
    BEGIN("-n", "2");
    expect_start(2);
    exited(0, 0, false);
    ck_assert(!n.ended);
    exited(1, 0, true);
    expect_end(0);
}
END_TEST

START_TEST(under_slurm_a_repeated_signal_counts_once)
{
    BEGIN("-n", "1");
    spec.under_slurm = _i != 0;
    expect_start(1);
    signalled(SIGUSR1);
    ck_assert_int_eq(expect(SPAWNER_SIGNAL).sig, SIGUSR1);
    signalled(SIGUSR1);
    if (!spec.under_slurm)
        ck_assert_int_eq(expect(SPAWNER_SIGNAL).sig, SIGUSR1);
    signalled(SIGUSR2);
    ck_assert_int_eq(expect(SPAWNER_SIGNAL).sig, SIGUSR2);
    signalled(SIGINT);
    ck_assert_int_eq(expect(SPAWNER_SIGNAL).sig, SIGINT);
    signalled(SIGINT); /* a person's */
    ck_assert_int_eq(expect(SPAWNER_SIGNAL).sig, SIGKILL);
    exited(0, SIGINT, true);
}
END_TEST

START_TEST(a_failure_restarts_all_ranks_within_the_budget)
{
    BEGIN("-n", "2", "--max-restarts", "1");
    for (int i = 0; i < 2; i++) {
        expect_start(2);
        ck_assert_int_eq(n.io.generation, i);
        ck_assert_int_eq(n.start.place.generation, i);
        exited(0, EXIT_STATUS(3), false);
        ck_assert_int_eq(expect(SPAWNER_SIGNAL).sig, SIGTERM);
        exited(1, SIGTERM, true);
    }
    expect_said("ddprun: error: rank 0 failed: exit status 3");
    expect_said("restart 1 of 1");
    expect_end(3);
}
END_TEST

/* Each of the failures is an event that is posted from within the step that asked for the start. */
START_TEST(failed_requests_for_ranks_are_answered_one_by_one)
{
    open_job((const char *[]){"ddprun", "-n", "100", "--max-restarts", "3", "true", NULL});
    n.renew_failure = -ENOMEM;
    node_begin(&n);
    turn();
    ck_assert_int_eq(expect(SPAWNER_SIGNAL).sig, SIGTERM);
    ck_assert_int_eq(expect(SPAWNER_SWEEP).sig, SIGTERM); /* nothing is known of what it has */
    report((struct spawner_report){.event = SPAWNER_EMPTY, .local_rank = -1, .empty = true});
    expect_end(70);
    for (int i = 0; i < SPAWNER_WINDOW; i++)
        ck_assert_int_eq(supervisor_get_rank(n.supervisor, i)->phase, RANK_FAILED_TO_START);
    ck_assert_int_eq(supervisor_generation(n.supervisor), 0);
}
END_TEST

START_TEST(a_signal_is_passed_on_and_ends_the_job)
{
    BEGIN("-n", "2", "--max-restarts", "3");
    expect_start(2);
    signalled(SIGUSR1);
    ck_assert_int_eq(expect(SPAWNER_SIGNAL).sig, SIGUSR1);
    signalled(SIGTERM);
    ck_assert_int_eq(expect(SPAWNER_SIGNAL).sig, SIGTERM);
    expect_silence();
    exited(0, SIGTERM, false);
    exited(1, SIGTERM, true);
    expect_end(128 + SIGTERM);
    ck_assert_int_eq(supervisor_die_of(n.supervisor), SIGTERM);
}
END_TEST

START_TEST(leftovers_of_ranks_are_swept)
{
    BEGIN("-n", "1");
    expect_start(1);
    exited(0, 0, false);
    ck_assert_int_eq(expect(SPAWNER_SWEEP).sig, SIGTERM);
    report((struct spawner_report){.event = SPAWNER_EMPTY, .local_rank = -1, .empty = true});
    expect_end(0);
}
END_TEST

START_TEST(a_failed_rank_is_replaced_while_the_others_live)
{
    BEGIN("-n", "2", "--max-restarts", "1", "--on-failure", "replace");
    expect_start(2);
    for (int i = 0; i < 2; i++)
        joins(i, 0);
    exited(1, SIGKILL, false);
    const struct spawner_request r = expect(SPAWNER_SPAWN);
    ck_assert_int_eq(r.local_rank, 1);
    ck_assert_int_eq(r.n_ranks, 1);
    expect_silence();
    expect_said("ddprun: note: rank 1 failed: killed by SIGKILL");
    expect_said("replacing it, restart 1 of 1");
    ck_assert_int_eq(n.start.place.generation, 1);
    started(1);
    for (int i = 0; i < 2; i++)
        joins(i, 1);
    ck_assert_int_eq(supervisor_get_state(n.supervisor), SUPERVISOR_RUNNING);
    exited(0, EXIT_STATUS(5), false); /* no restart is left */
    ck_assert_int_eq(expect(SPAWNER_SIGNAL).sig, SIGTERM);
    exited(1, SIGTERM, true);
    expect_end(5);
}
END_TEST

START_TEST(a_requested_restart_begins_when_all_ranks_have_ended)
{
    BEGIN("-n", "1");
    expect_start(1);
    ck_assert(node_roster_restart(n.parts.roster));
    turn();
    ck_assert_int_eq(expect(SPAWNER_SIGNAL).sig, SIGTERM);
    exited(0, SIGTERM, true);
    expect_start(1);
    expect_said("ddprun: note: restarting all ranks as requested; restart 1\n");
    exited(0, 0, true);
    expect_end(0);
}
END_TEST

START_TEST(a_feature_that_posts_steps_nothing_before_the_queue_is_drained)
{
    BEGIN("-n", "1");
    expect_start(1);
    node_post(&n.view, &(struct supervisor_event){.type = SUPERVISOR_EV_SIGNAL, .sig = SIGINT});
    ck_assert_int_eq(supervisor_get_state(n.supervisor), SUPERVISOR_RUNNING);
    turn();
    ck_assert_int_eq(supervisor_get_state(n.supervisor), SUPERVISOR_STOPPING);
    ck_assert_int_eq(expect(SPAWNER_SIGNAL).sig, SIGINT);
    exited(0, SIGINT, true);
    expect_end(128 + SIGINT);
}
END_TEST

TEST_SUITE(node)
{
    Suite *suite = suite_create("node");
    TCase *t = tcase_create("node");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, ranks_that_succeed_end_the_job);
    tcase_add_test(t, a_failure_restarts_all_ranks_within_the_budget);
    tcase_add_test(t, failed_requests_for_ranks_are_answered_one_by_one);
    tcase_add_test(t, a_signal_is_passed_on_and_ends_the_job);
    tcase_add_test(t, leftovers_of_ranks_are_swept);
    tcase_add_loop_test(t, under_slurm_a_repeated_signal_counts_once, 0, 2);
    tcase_add_test(t, a_failed_rank_is_replaced_while_the_others_live);
    tcase_add_test(t, a_requested_restart_begins_when_all_ranks_have_ended);
    tcase_add_test(t, a_feature_that_posts_steps_nothing_before_the_queue_is_drained);
    suite_add_tcase(suite, t);
    return suite;
}
