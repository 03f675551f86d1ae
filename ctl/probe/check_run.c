#include "check_run.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "launcher/hosts/remote_shell.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process that is blocked in a call to a driver (state D) does not react to SIGKILL. After this
 * time the check continues without it. */
enum { KILL_MS = 2000 };

static int program_start(const char *const *words, int out_fd, pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc == 0)
        rc = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    for (int fd = 1; rc == 0 && fd <= 2; fd++)
        rc = posix_spawn_file_actions_adddup2(&actions, out_fd, fd);
    if (rc == 0)
        rc = posix_spawnp(ret_pid, words[0], &actions, NULL, (char *const *)words, environ);
    posix_spawn_file_actions_destroy(&actions);
    return -rc;
}

/* Read all of its output. returns 0, -ETIMEDOUT, -errno */
static int listen_to(int fd, uint64_t deadline_ms, char *text, size_t n)
{
    size_t len = 0;
    char rest[4096];
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int left_ms = co_left_ms(deadline_ms), n_ready = poll(&p, 1, left_ms);
        if (n_ready == 0 || (n_ready < 0 && errno != EINTR))
            return n_ready == 0 ? -ETIMEDOUT : -errno;
        bool is_full = len == n - 1;
        ssize_t got = n_ready < 0 ? -1
                      : is_full   ? read(fd, rest, sizeof rest)
                                  : read(fd, text + len, n - 1 - len);
        if (got == 0 || (got < 0 && errno != EINTR))
            return got == 0 ? 0 : -errno;
        len += got > 0 && !is_full ? (size_t)got : 0;
        text[len] = '\0';
    }
}

int check_run_watch(pid_t pid)
{
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    return fd >= 0 ? fd : -errno;
}

int check_run_await(pid_t pid, uint64_t deadline_ms, int *ret_status)
{
    co_autoclose_fd int fd = check_run_watch(pid);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n;
    if (fd < 0)
        return fd;
    while ((n = poll(&p, 1, co_left_ms(deadline_ms))) < 0 && errno == EINTR) {
    }
    if (n <= 0)
        return n == 0 ? -ETIMEDOUT : -errno;
    return waitpid(pid, ret_status, 0) < 0 ? -errno : 0;
}

static int explain(int status, const char *name, const char *text, struct co_error *err)
{
    char said[160];
    remote_shell_complaint(text, strlen(text), "ddprun: ", said, sizeof said);
    if (WIFSIGNALED(status))
        return co_fail(err, -EIO, "%s was killed by signal %d", name, WTERMSIG(status));
    return co_fail(err, -EIO, "%s exited with status %d%s%s", name, WEXITSTATUS(status),
                   said[0] != '\0' ? ": " : "", said);
}

int check_run(const char *const *words, uint64_t timeout_ms, char *text, size_t n,
              struct co_error *err)
{
    int fds[2], status = 0;
    pid_t pid;
    uint64_t deadline_ms = co_deadline_ms(timeout_ms);
    text[0] = '\0';
    if (pipe2(fds, O_CLOEXEC) < 0)
        return co_fail(err, -errno, "cannot make a pipe to %s: %s", words[0], strerror(errno));
    co_autoclose_fd int fd = fds[0];
    int rc = program_start(words, fds[1], &pid);
    close(fds[1]);
    if (rc < 0)
        return co_fail(err, rc, "%s: %s", words[0], strerror(-rc));
    rc = listen_to(fd, deadline_ms, text, n);
    if (rc == 0)
        rc = check_run_await(pid, deadline_ms, &status); /* one that stays silently is killed */
    if (rc < 0) {
        kill(pid, SIGKILL);
        check_run_await(pid, co_deadline_ms(KILL_MS), &status);
        return co_fail(err, rc, "%s: %s", words[0], rc == -ETIMEDOUT ? "timed out" : strerror(-rc));
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : explain(status, words[0], text, err);
}
