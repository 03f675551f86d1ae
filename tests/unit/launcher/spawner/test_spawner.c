/* The spawner itself, and the image and directory that it gets: real processes. Its lease:
 * test_spawner_lease.c. */
#include "one_spawner.h"

#include "launcher/spawner/runtime_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>

START_TEST(a_worker_is_started_and_its_exit_is_reported)
{
    spawn_sh(3, "exit 7");
    struct spawner_report r = next();
    ck_assert_uint_eq(r.event, SPAWNER_STARTED);
    ck_assert_int_eq(r.local_rank, 3);
    pid_t pid = r.pid;
    r = next();
    ck_assert_uint_eq(r.event, SPAWNER_EXITED);
    ck_assert_int_eq(r.local_rank, 3);
    ck_assert_int_eq(r.pid, pid);
    ck_assert_int_eq(WEXITSTATUS(r.status), 7);
    ck_assert_int_eq(r.empty, 1);
}
END_TEST

START_TEST(arguments_and_environment_arrive_unchanged)
{
    int out[2];
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    static char big[100001]; /* near the limit of one argument */
    memset(big, 'b', sizeof big - 1);
    char *argv[] = {(char *)"name",
                    (char *)"-c",
                    (char *)"printf '%s|' \"$0\" \"$1\" \"$2\" ${#3} \"$GREETING\"",
                    (char *)"zero",
                    (char *)"",
                    (char *)"a b\n",
                    big,
                    NULL};
    spawn(0, "/bin/sh", argv, out[1]);
    close(out[1]);
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    char text[256] = "";
    for (ssize_t got, at = 0; (got = read(out[0], text + at, sizeof text - 1 - (size_t)at)) > 0;)
        at += got;
    ck_assert_str_eq(text,
                     "zero||a b\n|100000|hello|"); /* and the pipe has ended: no process holds it */
    close(out[0]);
    ck_assert_uint_eq(next().event, SPAWNER_EXITED);
}
END_TEST

START_TEST(a_failed_exec_is_reported_exactly)
{
    static const struct {
        const char *path;
        int error;
    } cases[] = {
        {"/nowhere", ENOENT}, {"/", EACCES}, {"/etc/passwd", EACCES}, {"/etc/passwd/x", ENOTDIR}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *argv[] = {(char *)"x", NULL};
        spawn((int)i, cases[i].path, argv, null_fd);
        struct spawner_report r = next();
        ck_assert_uint_eq(r.event, SPAWNER_START_FAILED);
        ck_assert_int_eq(r.local_rank, (int)i);
        ck_assert_int_eq(r.status, cases[i].error);
        ck_assert_int_eq(r.stage, SPAWN_EXEC);
        ck_assert_int_eq(r.empty, 1);
    }
}
END_TEST

/* Text of a pipe until its end, in pieces of any size. */
static const char *read_text(int fd)
{
    static char text[4096];
    size_t at = 0;
    for (ssize_t got; (got = read(fd, text + at, sizeof text - 1 - at)) > 0;)
        at += (size_t)got;
    text[at] = '\0';
    return text;
}

START_TEST(shared_signals_are_not_sent_again_and_held_back_ones_end_no_rank)
{
    static const char *const script[] = {"trap 'echo usr2' USR2; trap 'echo hup' HUP; echo up; "
                                         "sleep 600 <&- >&- 2>&- & while :; do wait; done"};
    char line[8] = "";
    int out[2];
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    ck_assert_int_eq(spawner_share_signals(&n, UINT64_C(1) << SIGUSR1, UINT64_C(1) << SIGUSR2), 0);
    spawn_many(0, 1, "/bin/sh", script, out[1]);
    close(out[1]);
    const pid_t pid = next().pid;
    ck_assert_int_eq(read(out[0], line, 3), 3);
    ck_assert_str_eq(line, "up\n");
    kill(pid, SIGUSR1); /* as Slurm does: ignored */
    kill(n.pid, SIGUSR2);
    ck_assert_int_eq(spawner_signal(&n, SPAWNER_MAIN, -1, SIGUSR2), 0);
    ck_assert_int_eq(spawner_signal(&n, SPAWNER_MAIN, -1, SIGHUP), 0);
    ck_assert_int_eq(read(out[0], line, 4), 4);
    ck_assert_str_eq(line, "hup\n");
    ck_assert_int_eq(spawner_signal(&n, SPAWNER_MAIN, -1, SIGUSR1), 0);
    const struct spawner_report r = next();
    ck_assert_uint_eq(r.event, SPAWNER_EXITED);
    ck_assert_int_eq(WTERMSIG(r.status), SIGTERM);
    ck_assert_int_eq(r.signaled, 1);
    ck_assert_str_eq(read_text(out[0]), "");
    close(out[0]);
}
END_TEST

START_TEST(workers_started_together_have_their_own_arguments)
{
    static const char *const scripts[SPAWN_AT_ONCE] = {
        "echo 0 $GREETING", "echo 1 $GREETING", "echo 2 $GREETING", "echo 3 $GREETING",
        "echo 4 $GREETING", "echo 5 $GREETING", "echo 6 $GREETING", "echo 7 $GREETING"};
    int out[2];
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    spawn_many(40, SPAWN_AT_ONCE, "/bin/sh", scripts, out[1]);
    close(out[1]);
    const char *text = read_text(out[0]);
    close(out[0]);
    ck_assert_uint_eq(strlen(text), SPAWN_AT_ONCE * strlen("0 hello\n"));
    for (int i = 0; i < SPAWN_AT_ONCE; i++) {
        char line[16];
        snprintf(line, sizeof line, "%d hello\n", i);
        ck_assert_msg(strstr(text, line) != NULL, "%s", text);
    }
    pid_t pid_of[SPAWN_AT_ONCE];
    for (int i = 0; i < SPAWN_AT_ONCE; i++) {
        struct spawner_report r = next();
        ck_assert_uint_eq(r.event, SPAWNER_STARTED);
        ck_assert_int_eq(r.local_rank, 40 + i); /* in order */
        pid_of[i] = r.pid;
    }
    for (int i = 0; i < SPAWN_AT_ONCE; i++) {
        struct spawner_report r = next();
        ck_assert_uint_eq(r.event, SPAWNER_EXITED);
        ck_assert_int_eq(r.pid, pid_of[r.local_rank - 40]);
        ck_assert_int_eq(r.status, 0);
        ck_assert_int_eq(r.empty, i == SPAWN_AT_ONCE - 1);
    }
}
END_TEST

START_TEST(a_failed_exec_of_many_workers_is_reported_exactly)
{
    static const char *const scripts[SPAWN_AT_ONCE] = {"", "", "", "", "", "", "", ""};
    for (int round = 0; round < 20; round++) {
        spawn_many(0, SPAWN_AT_ONCE, round % 2 == 0 ? "/etc/passwd/x" : "/", scripts, null_fd);
        for (int i = 0; i < SPAWN_AT_ONCE; i++) {
            struct spawner_report r = next();
            ck_assert_uint_eq(r.event, SPAWNER_START_FAILED);
            ck_assert_int_eq(r.local_rank, i);
            ck_assert_int_eq(r.status, round % 2 == 0 ? ENOTDIR : EACCES);
            ck_assert_int_eq(r.stage, SPAWN_EXEC);
            ck_assert_int_eq(r.empty, 1);
        }
    }
}
END_TEST

START_TEST(many_workers_run_a_file_without_a_format_as_a_script)
{
    static const char *const arguments[4] = {"a", "b", "c", "d"};
    char path[] = "/tmp/test-spawner-XXXXXX";
    int out[2];
    int fd = mkstemp(path);
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    ck_assert_int_eq(write(fd, "echo $2\n", 8), 8);
    ck_assert_int_eq(fchmod(fd, 0700), 0);
    close(fd);
    spawn_many(0, 4, path, arguments, out[1]);
    close(out[1]);
    const char *text = read_text(out[0]);
    close(out[0]);
    unlink(path);
    ck_assert_uint_eq(strlen(text), 8);
    for (int i = 0; i < 4; i++)
        ck_assert_ptr_nonnull(strstr(text, arguments[i]));
}
END_TEST

START_TEST(a_signal_reaches_ranks_that_were_requested_before_it)
{
    static const char *const scripts[4] = {"exec sleep 1000", "exec sleep 1000", "exec sleep 1000",
                                           "exec sleep 1000"};
    for (int i = 0; i < 4; i++)
        spawn_sh(i, "exec sleep 1000");
    spawn_many(4, 4, "/bin/sh", scripts, null_fd);
    ck_assert_int_eq(spawner_signal(&n, SPAWNER_MAIN, -1, SIGTERM), 0);
    for (int n_started = 0, n_ended = 0; n_ended < 8;) {
        struct spawner_report r = next();
        if (r.event == SPAWNER_STARTED) {
            n_started++;
            continue;
        }
        ck_assert_uint_eq(r.event, SPAWNER_EXITED);
        ck_assert_int_eq(WTERMSIG(r.status), SIGTERM);
        ck_assert_int_eq(n_started, 8);
        n_ended++;
        ck_assert_int_eq(r.empty, n_ended == 8);
    }
}
END_TEST

/* By the kernel's word; it may have been reaped already. */
static void await_death(pid_t pid)
{
    char path[64], text[8];
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    for (uint64_t deadline_ms = co_deadline_ms(20000);;) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n_bytes = fd >= 0 ? read(fd, text, sizeof text) : 0;
        if (fd >= 0)
            close(fd);
        if (n_bytes < 2 || memcmp(text, "0 ", 2) == 0)
            return;
        ck_assert_int_gt(co_left_ms(deadline_ms), 0);
    }
}

/* A stopped spawner sees the exit after the request, as a busy one does. */
START_TEST(a_worker_that_died_before_the_signal_did_not_get_it)
{
    spawn_sh(0, "exec sleep 1000");
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    spawn_sh(1, "exec sleep 1000");
    struct spawner_report r = next();
    ck_assert_uint_eq(r.event, SPAWNER_STARTED);
    kill(n.pid, SIGSTOP);
    kill(r.pid, SIGKILL);
    await_death(r.pid);
    ck_assert_int_eq(spawner_signal(&n, SPAWNER_MAIN, -1, SIGTERM), 0);
    kill(n.pid, SIGCONT);
    for (int n_ended = 0; n_ended < 2; n_ended++) {
        r = next();
        ck_assert_uint_eq(r.event, SPAWNER_EXITED);
        ck_assert_int_eq(WTERMSIG(r.status), r.local_rank == 0 ? SIGTERM : SIGKILL);
        ck_assert_int_eq(r.signaled, r.local_rank == 0);
    }
}
END_TEST

START_TEST(a_signal_that_ends_no_worker_does_not_count)
{
    spawn_sh(0, "exec sleep 1000");
    pid_t pid = next().pid;
    ck_assert_int_eq(spawner_signal(&n, SPAWNER_MAIN, -1, SIGWINCH), 0);
    kill(pid, SIGKILL);
    struct spawner_report r = next();
    ck_assert_uint_eq(r.event, SPAWNER_EXITED);
    ck_assert_int_eq(r.signaled, 0);
}
END_TEST

START_TEST(one_rank_alone_can_be_signaled)
{
    spawn_sh(0, "sleep 1000");
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    spawn_sh(1, "sleep 1000");
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    ck_assert_int_eq(spawner_signal_one(&n, SPAWNER_MAIN, 7, SIGKILL), 0); /* there is no such */
    ck_assert_int_eq(spawner_signal_one(&n, SPAWNER_MAIN, -1, SIGKILL), 0);
    ck_assert_int_eq(spawner_signal_one(&n, SPAWNER_MAIN, 1, SIGABRT), 0);
    struct spawner_report r = next();
    ck_assert_uint_eq(r.event, SPAWNER_EXITED);
    ck_assert_int_eq(r.local_rank, 1);
    ck_assert_int_eq(WTERMSIG(r.status), SIGABRT);
    ck_assert_int_eq(r.signaled, 0); /* it did not end since the job does */
    ck_assert_int_eq(spawner_signal_one(&n, SPAWNER_GROUP, 1, SIGKILL), 0); /* it is gone */
    ck_assert_int_eq(spawner_signal_one(&n, SPAWNER_GROUP, 0, SIGKILL), 0);
    r = next();
    ck_assert_int_eq(r.local_rank, 0);
    ck_assert_int_eq(WTERMSIG(r.status), SIGKILL);
}
END_TEST

/* A traced process cannot be reaped before its tracer has waited for it: it is the test
 * double of one whose memory takes long to free.
 *
 * returns   false: tracing is not permitted here */
static bool hold_end_of(pid_t pid)
{
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0)
        return true;
    ck_assert_int_eq(errno, EPERM);
    fprintf(stderr, "skipped: processes may not be traced here\n");
    return false;
}

START_TEST(a_dying_worker_is_reported_before_it_can_be_reaped)
{
    int status;
    spawn_sh(0, "exec sleep 1000");
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    spawn_sh(1, "exec sleep 1000");
    struct spawner_report r = next();
    const pid_t pid = r.pid;
    if (!hold_end_of(pid))
        return;
    kill(pid, SIGKILL);
    await_death(pid);
    ck_assert_int_eq(spawner_look(&n), 0);
    r = next();
    ck_assert_uint_eq(r.event, SPAWNER_EXITED);
    ck_assert_int_eq(r.local_rank, 1);
    ck_assert_int_eq(r.pid, pid);
    ck_assert_int_eq(WTERMSIG(r.status), SIGKILL);
    ck_assert_int_eq(r.signaled, 0);
    ck_assert_int_eq(r.empty, 0);
    spawn_sh(1, "exit 3"); /* its successor, while it is still there */
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    r = next();
    ck_assert_int_eq(r.local_rank, 1);
    ck_assert_int_eq(WEXITSTATUS(r.status), 3);
    ck_assert_int_eq(spawner_signal_one(&n, SPAWNER_MAIN, 0, SIGTERM), 0);
    r = next();
    ck_assert_int_eq(r.local_rank, 0);
    ck_assert_int_eq(r.empty, 0); /* not as long as the dead one is there */
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_uint_eq(next().event, SPAWNER_EMPTY);
}
END_TEST

START_TEST(a_successful_worker_is_reported_when_it_is_reaped)
{
    static const char *const until_end_of_pipe[] = {"read x <&1; exit 0"};
    int pipe_fds[2], status;
    ck_assert_int_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
    spawn_many(1, 1, "/bin/sh", until_end_of_pipe, pipe_fds[0]);
    const pid_t pid = next().pid;
    const bool is_held = hold_end_of(pid);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    if (!is_held)
        return;
    await_death(pid);
    ck_assert_int_eq(spawner_look(&n), 0);
    spawn_sh(2, "exit 0"); /* exits after that look; its exit is also reported when it is reaped */
    struct spawner_report r = next();
    ck_assert_uint_eq(r.event, SPAWNER_STARTED);
    r = next();
    ck_assert_int_eq(r.local_rank, 2);
    ck_assert_int_eq(r.empty, 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    r = next();
    ck_assert_uint_eq(r.event, SPAWNER_EXITED);
    ck_assert_int_eq(r.local_rank, 1);
    ck_assert_int_eq(r.status, 0);
    ck_assert_int_eq(r.empty, 1);
}
END_TEST

START_TEST(a_look_at_live_workers_reports_nothing)
{
    spawn_sh(0, "exec sleep 1000");
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    ck_assert_int_eq(spawner_look(&n), 0);
    spawn_sh(1, "exit 3"); /* is done after that */
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    struct spawner_report r = next();
    ck_assert_int_eq(r.local_rank, 1);
    ck_assert_int_eq(WEXITSTATUS(r.status), 3);
    ck_assert_int_eq(spawner_signal_one(&n, SPAWNER_MAIN, 0, SIGTERM), 0);
    ck_assert_int_eq(WTERMSIG(next().status), SIGTERM);
}
END_TEST

START_TEST(descendants_are_swept)
{
    /* the subshell's child outlives both: a descendant */
    spawn_sh(0, "(sleep 1000 & sleep 1000 &) ; exit 0");
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    struct spawner_report r = next();
    ck_assert_uint_eq(r.event, SPAWNER_EXITED);
    ck_assert_int_eq(r.empty, 0);
    ck_assert_int_eq(spawner_sweep(&n, SIGTERM), 0);
    r = next();
    ck_assert_uint_eq(r.event, SPAWNER_EMPTY);
}
END_TEST

START_TEST(closing_kills_the_remaining_processes)
{
    int out[2];
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    char *argv[] = {(char *)"sh", (char *)"-c",
                    (char *)"trap '' TERM; setsid sleep 1000 & sleep 1000", NULL};
    spawn(0, "/bin/sh", argv, out[1]);
    close(out[1]);
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    spawner_close(&n, co_deadline_ms(20000));
    char byte;
    /* the end of the pipe: all of its writers have exited */
    ck_assert_int_eq(read(out[0], &byte, 1), 0);
    close(out[0]);
}
END_TEST

START_TEST(the_death_of_the_spawner_is_seen)
{
    struct spawner_report r;
    struct pollfd p = {.fd = n.sock, .events = POLLIN};
    ck_assert_int_eq(spawner_receive(&n, &r), -EAGAIN);
    kill(n.pid, SIGKILL);
    ck_assert_int_eq(poll(&p, 1, 20000), 1);
    ck_assert_int_eq(spawner_receive(&n, &r), 0);
    ck_assert_int_eq(spawner_signal(&n, SPAWNER_MAIN, -1, SIGTERM), -EPIPE);
}
END_TEST

START_TEST(the_runtime_directory_is_private_and_removed)
{
    struct runtime_dir_names names, others;
    const char *dir = NULL;
    char path[4096];
    struct stat st;
    ck_assert_int_eq(runtime_dir_choose(&names, NULL), 0);
    ck_assert_int_eq(runtime_dir_choose(&others, NULL), 0);
    for (size_t i = 0; i < names.n; i++) {
        ck_assert_int_eq(access(names.paths[i], F_OK), -1);
        ck_assert_str_ne(names.paths[i], others.paths[i]);
    }
    ck_assert_int_eq(runtime_dir_make(&names, &dir, NULL), 0);
    ck_assert_int_eq(stat(dir, &st), 0);
    ck_assert_int_eq(st.st_mode & 07777, 0700);
    close(open(runtime_dir_error_file(dir, 3, path, sizeof path), O_CREAT | O_WRONLY, 0600));
    ck_assert_int_eq(access(path, F_OK), 0);
    runtime_dir_remove(dir);
    ck_assert_int_eq(access(dir, F_OK), -1);
    runtime_dir_remove(dir);
    runtime_dir_remove(NULL);
    runtime_dir_remove_any(&names);
    runtime_dir_remove_any(NULL);
    runtime_dir_forget_names(&names);
    runtime_dir_forget_names(&others);
}
END_TEST

START_TEST(the_runtime_directory_moves_if_necessary)
{
    struct runtime_dir_names names;
    const char *dir = NULL;
    setenv("XDG_RUNTIME_DIR", "/nowhere", 1);
    setenv("TMPDIR", "relative", 1);
    ck_assert_int_eq(runtime_dir_choose(&names, NULL), 0);
    ck_assert_int_eq(runtime_dir_make(&names, &dir, NULL), 0);
    ck_assert(strncmp(dir, "/dev/shm/", 9) == 0 || strncmp(dir, "/tmp/", 5) == 0);
    runtime_dir_remove_any(&names);
    ck_assert_int_eq(access(dir, F_OK), -1);
    runtime_dir_forget_names(&names);
}
END_TEST

/* Like a ddprun that is killed as soon as it has its directory. */
static _Noreturn void die_with_a_folder(const struct runtime_dir_names *names, int done_fd)
{
    struct spawner other;
    const char *dir = NULL;
    const bool is_made =
        spawner_open(names, &other, NULL) == 0 && runtime_dir_make(names, &dir, NULL) == 0;
    if (write(done_fd, is_made ? "y" : "n", 1) == 1)
        raise(SIGKILL);
    _exit(1);
}

START_TEST(the_runtime_directory_of_a_killed_ddprun_is_removed)
{
    struct runtime_dir_names names;
    int pipe_fds[2];
    char is_made = 'n';
    const uint64_t deadline_ms = co_deadline_ms(20000);
    ck_assert_int_eq(runtime_dir_choose(&names, NULL), 0);
    ck_assert_int_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0)
        die_with_a_folder(&names, pipe_fds[1]);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_int_eq(read(pipe_fds[0], &is_made, 1), 1);
    ck_assert_int_eq(is_made, 'y');
    while (access(names.paths[0], F_OK) == 0 && co_left_ms(deadline_ms) > 0)
        poll(NULL, 0, 1);
    for (size_t i = 0; i < names.n; i++)
        ck_assert_int_eq(access(names.paths[i], F_OK), -1);
    ck_assert_int_gt(waitpid(-1, NULL, 0), 0); /* its spawner: we are the subreaper above it */
    runtime_dir_forget_names(&names);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}
END_TEST

START_TEST(a_standby_takes_the_number_of_an_ended_worker)
{
    spawn_sh(0, "exit 3");
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    ck_assert_uint_eq(next().event, SPAWNER_EXITED);
    spawn_sh(5, "sleep 1000");
    struct spawner_report r = next();
    ck_assert_uint_eq(r.event, SPAWNER_STARTED);
    const pid_t pid = r.pid;
    ck_assert_int_eq(spawner_renumber(&n, 5, 0), 0);
    r = next();
    ck_assert_uint_eq(r.event, SPAWNER_STARTED);
    ck_assert_int_eq(r.local_rank, 0);
    ck_assert_int_eq(r.pid, pid);
    /* no rank has this number now */
    ck_assert_int_eq(spawner_signal_one(&n, SPAWNER_MAIN, 5, SIGKILL), 0);
    ck_assert_int_eq(spawner_signal_one(&n, SPAWNER_MAIN, 0, SIGUSR1), 0);
    r = next();
    ck_assert_uint_eq(r.event, SPAWNER_EXITED);
    ck_assert_int_eq(r.local_rank, 0);
    ck_assert_int_eq(WTERMSIG(r.status), SIGUSR1);
}
END_TEST

START_TEST(an_ended_standby_takes_no_number)
{
    spawn_sh(0, "exit 3");
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    ck_assert_uint_eq(next().event, SPAWNER_EXITED);
    spawn_sh(5, "exit 0");
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    ck_assert_uint_eq(next().event, SPAWNER_EXITED);
    ck_assert_int_eq(spawner_renumber(&n, 5, 0), 0);
    struct spawner_report r = next();
    ck_assert_uint_eq(r.event, SPAWNER_START_FAILED);
    ck_assert_int_eq(r.local_rank, 0);
    ck_assert_int_eq(r.stage, SPAWN_GONE);
    ck_assert_int_eq(r.status, ESRCH);
    /* no such rank: the spawner sends no answer ... */
    ck_assert_int_eq(spawner_renumber(&n, 7, 0), 0);
    ck_assert_int_eq(spawner_renumber(&n, 0, -1), 0);
    spawn_sh(0, "exit 0"); /* ... and continues */
    ck_assert_uint_eq(next().event, SPAWNER_STARTED);
    ck_assert_uint_eq(next().event, SPAWNER_EXITED);
}
END_TEST

TEST_SUITE(spawner)
{
    Suite *suite = suite_create("spawner");
    TCase *t = tcase_create("spawner");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 50);
    tcase_add_test(t, shared_signals_are_not_sent_again_and_held_back_ones_end_no_rank);
    tcase_add_test(t, a_worker_is_started_and_its_exit_is_reported);
    tcase_add_test(t, arguments_and_environment_arrive_unchanged);
    tcase_add_test(t, a_failed_exec_is_reported_exactly);
    tcase_add_test(t, workers_started_together_have_their_own_arguments);
    tcase_add_test(t, a_failed_exec_of_many_workers_is_reported_exactly);
    tcase_add_test(t, many_workers_run_a_file_without_a_format_as_a_script);
    tcase_add_test(t, a_signal_reaches_ranks_that_were_requested_before_it);
    tcase_add_test(t, a_worker_that_died_before_the_signal_did_not_get_it);
    tcase_add_test(t, a_signal_that_ends_no_worker_does_not_count);
    tcase_add_test(t, one_rank_alone_can_be_signaled);
    tcase_add_test(t, a_dying_worker_is_reported_before_it_can_be_reaped);
    tcase_add_test(t, a_successful_worker_is_reported_when_it_is_reaped);
    tcase_add_test(t, a_look_at_live_workers_reports_nothing);
    tcase_add_test(t, descendants_are_swept);
    tcase_add_test(t, closing_kills_the_remaining_processes);
    tcase_add_test(t, the_death_of_the_spawner_is_seen);
    tcase_add_test(t, the_runtime_directory_is_private_and_removed);
    tcase_add_test(t, the_runtime_directory_moves_if_necessary);
    tcase_add_test(t, the_runtime_directory_of_a_killed_ddprun_is_removed);
    tcase_add_test(t, a_standby_takes_the_number_of_an_ended_worker);
    tcase_add_test(t, an_ended_standby_takes_no_number);
    suite_add_tcase(suite, t);
    suite_add_tcase(suite, spawner_lease_cases());
    return suite;
}
