/* The spawner's lease: when it is over all is killed, whatever ddprun does, and nothing is
 * started. And its heartbeats: without them ranks are suspended. */
#include "one_spawner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>

/* A worker whose end shows even if the test does not read the report: no process holds the pipe any
 * more. */
static int spawn_holding_pipe(int rank, const char *script)
{
    int out[2];
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    spawn(rank, "/bin/sh", argv, out[1]);
    close(out[1]);
    return out[0];
}

static void expect_closed(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char byte;
    ck_assert_int_eq(poll(&p, 1, 20000), 1);
    ck_assert_int_eq(read(fd, &byte, 1), 0);
    close(fd);
}

START_TEST(an_expired_lease_kills_all_workers_then_reports_them)
{
    int pipe_fd = spawn_holding_pipe(
        0, "trap '' TERM; (trap '' TERM; setsid sleep 1000 & sleep 1000) & sleep 1000");
    int other_fd = spawn_holding_pipe(2, "exec sleep 1000");
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    ck_assert_int_eq(spawner_set_lease(&n, co_now_ms() + 20), 0);
    expect_closed(pipe_fd); /* what the rank has left included */
    expect_closed(other_fd);
    ck_assert_uint_eq(next().event, SPAWNER_LAPSED);
    bool seen[3] = {false};
    struct spawner_report r;
    for (int i = 0; i < 2; i++) {
        r = next();
        ck_assert_uint_eq(r.event, SPAWNER_EXITED);
        ck_assert_int_eq(WTERMSIG(r.status), SIGKILL);
        seen[r.local_rank] = true;
    }
    ck_assert(seen[0] && seen[2]);
    if (!r.empty)
        ck_assert_uint_eq(next().event, SPAWNER_EMPTY);
}
END_TEST

START_TEST(a_newer_lease_sent_in_time_counts)
{
    int status;
    spawn_sh(0, "exec sleep 1000");
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    kill(n.pid, SIGSTOP); /* as on a machine too busy to run it */
    ck_assert_int_eq(waitpid(n.pid, &status, WUNTRACED), n.pid);
    ck_assert_int_eq(spawner_set_lease(&n, co_now_ms()), 0);
    ck_assert_int_eq(spawner_set_lease(&n, CO_NEVER_MS), 0);
    ck_assert_int_eq(spawner_signal(&n, SPAWNER_MAIN, -1, SIGTERM), 0);
    kill(n.pid, SIGCONT);
    struct spawner_report r = next();
    ck_assert_uint_eq(r.event, SPAWNER_EXITED);
    ck_assert_int_eq(WTERMSIG(r.status), SIGTERM);
}
END_TEST

START_TEST(after_the_lease_nothing_starts_before_a_newer_one)
{
    ck_assert_int_eq(spawner_set_lease(&n, 1), 0);
    ck_assert_uint_eq(next().event, SPAWNER_LAPSED);
    spawn_sh(0, "exit 0");
    struct spawner_report r = next();
    ck_assert_uint_eq(r.event, SPAWNER_START_FAILED);
    ck_assert_int_eq(r.status, ECANCELED);
    ck_assert_int_eq(r.stage, SPAWN_SETUP);
    ck_assert_int_eq(r.empty, 1);
    ck_assert_int_eq(spawner_set_lease(&n, 2), 0); /* also expired */
    spawn_sh(0, "exit 0");
    ck_assert_uint_eq(next().event, SPAWNER_START_FAILED);
    ck_assert_int_eq(spawner_set_lease(&n, CO_NEVER_MS), 0);
    spawn_sh(0, "exit 0");
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    r = next();
    ck_assert_uint_eq(r.event, SPAWNER_EXITED);
    ck_assert_int_eq(WEXITSTATUS(r.status), 0);
}
END_TEST

/* As while ddprun is stopped: more reports than its socket holds. */
START_TEST(the_lease_does_not_wait_for_unread_reports)
{
    enum { N = 700 };
    char *argv[] = {(char *)"true", NULL};
    char *env[] = {NULL};
    const struct image_words words = {.path = "/bin/true", .argv = argv, .env = env};
    int image = -1;
    int pipe_fds[2];
    ck_assert_int_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
    int last_fd = spawn_holding_pipe(N, "exec sleep 1000");
    ck_assert_int_eq(image_make(&words, 1, &image, NULL), 0);
    for (int i = 0; i < N; i++) { /* the spawner reports each one twice */
        int rc;
        const int of_rank[1][SPAWN_N_FDS] = {
            {null_fd, pipe_fds[1], STDERR_FILENO, null_fd, -1, -1, -1, -1, -1}};
        while ((rc = spawner_spawn(&n, i, 1, image, of_rank)) == -EAGAIN) {
            struct pollfd room = {.fd = n.sock, .events = POLLOUT};
            ck_assert_int_eq(poll(&room, 1, 20000), 1);
        }
        ck_assert_int_eq(rc, 0);
    }
    close(image);
    close(pipe_fds[1]);
    expect_closed(pipe_fds[0]);
    ck_assert_int_eq(spawner_set_lease(&n, co_now_ms() + 1), 0);
    expect_closed(last_fd);
    int n_started = 0, n_ended = 0, n_lapsed = 0;
    while (n_ended < N + 1) {
        struct spawner_report r = next();
        n_started += r.event == SPAWNER_STARTED;
        n_ended += r.event == SPAWNER_EXITED;
        n_lapsed += r.event == SPAWNER_LAPSED;
    }
    ck_assert_int_eq(n_started, N + 1);
    ck_assert_int_eq(n_lapsed, 1);
}
END_TEST

/* --- heartbeats --- */

static char state_of(pid_t pid)
{
    char path[64], text[512], state = '?';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_gt(fread(text, 1, sizeof text - 1, f), 0);
    fclose(f);
    sscanf(strchr(text, ')'), ") %c", &state);
    return state;
}

static void await_state(pid_t pid, bool is_stopped)
{
    const uint64_t end_ms = co_deadline_ms(20000);
    while ((state_of(pid) == 'T') != is_stopped) {
        ck_assert_uint_lt(co_now_ms(), end_ms);
        usleep(1000);
    }
}

static struct spawner_report await_event(enum spawner_event event)
{
    struct spawner_report r;
    do
        r = next();
    while (r.event != event);
    return r;
}

START_TEST(ranks_are_suspended_at_the_stated_end_and_resumed_by_an_answer)
{
    spawn_sh(0, "exec sleep 1000");
    const pid_t pid = await_event(SPAWNER_STARTED).pid;
    ck_assert_int_eq(spawner_state_end(&n, co_now_ms() + 20), 0);
    ck_assert_int_eq(await_event(SPAWNER_SUSPENDED).status, 0);
    await_state(pid, true);
    ck_assert_int_eq(spawner_resume(&n, co_now_ms()), 0); /* the end has passed */
    ck_assert_int_eq(spawner_state_end(&n, CO_NEVER_MS), 0);
    await_event(SPAWNER_SUSPENDED); /* it asks for an answer */
    await_state(pid, true);
    ck_assert_int_eq(spawner_resume(&n, co_now_ms()), 0);
    await_event(SPAWNER_RESUMED);
    await_state(pid, false);
}
END_TEST

START_TEST(a_rank_that_starts_while_others_are_suspended_is_suspended)
{
    ck_assert_int_eq(spawner_state_end(&n, co_now_ms()), 0);
    await_event(SPAWNER_SUSPENDED);
    spawn_sh(0, "exec sleep 1000");
    await_state(await_event(SPAWNER_STARTED).pid, true);
}
END_TEST

/* returns the one end; *ret_other: the other one */
static int connect_pair(int *ret_other)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, len), 0);
    *ret_other = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(*ret_other, 0);
    close(listener);
    return fd;
}

START_TEST(a_connection_that_ends_suspends_when_the_limit_is_over)
{
    int other;
    char bytes[4];
    const int fd = connect_pair(&other);
    spawn_sh(0, "exec sleep 1000");
    const pid_t pid = await_event(SPAWNER_STARTED).pid;
    ck_assert_int_eq(spawner_send_heartbeats(&n, fd, co_now_ms(), 60), 0);
    close(fd);
    for (size_t got = 0; got < sizeof bytes;) { /* the kernel answers them, whatever we do */
        const ssize_t len = recv(other, bytes, sizeof bytes - got, 0);
        ck_assert_int_gt(len, 0);
        got += (size_t)len;
    }
    close(other);
    await_event(SPAWNER_HEARTBEAT_GONE);
    ck_assert_int_eq(await_event(SPAWNER_SUSPENDED).status, 0);
    await_state(pid, true);
    ck_assert_int_eq(spawner_set_lease(&n, co_now_ms()), 0);
    ck_assert_int_eq(WTERMSIG(await_event(SPAWNER_EXITED).status), SIGKILL);
}
END_TEST

TCase *spawner_lease_cases(void)
{
    TCase *t = tcase_create("lease");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 50);
    tcase_add_test(t, an_expired_lease_kills_all_workers_then_reports_them);
    tcase_add_test(t, a_newer_lease_sent_in_time_counts);
    tcase_add_test(t, after_the_lease_nothing_starts_before_a_newer_one);
    tcase_add_test(t, the_lease_does_not_wait_for_unread_reports);
    tcase_add_test(t, ranks_are_suspended_at_the_stated_end_and_resumed_by_an_answer);
    tcase_add_test(t, a_rank_that_starts_while_others_are_suspended_is_suspended);
    tcase_add_test(t, a_connection_that_ends_suspends_when_the_limit_is_over);
    return t;
}
