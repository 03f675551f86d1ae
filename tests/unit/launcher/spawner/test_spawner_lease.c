/* The spawner's lease: when it is over all is killed, whatever ddprun does, and nothing is
 * started. */
#include "one_spawner.h"

#include <errno.h>
#include <stdbool.h>

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

TCase *spawner_lease_cases(void)
{
    TCase *t = tcase_create("lease");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 50);
    tcase_add_test(t, an_expired_lease_kills_all_workers_then_reports_them);
    tcase_add_test(t, a_newer_lease_sent_in_time_counts);
    tcase_add_test(t, after_the_lease_nothing_starts_before_a_newer_one);
    tcase_add_test(t, the_lease_does_not_wait_for_unread_reports);
    return t;
}
