/* timeit.c - how long a program takes, from posix_spawn to the end of waitpid, without the overhead
 * of an interpreter.
 *
 *     timeit LIMIT-S PROGRAM [ARGUMENT]...
 *
 * Prints nanoseconds and the exit status (128 + N for signal N) to descriptor 3; the program has
 * the other descriptors to itself. After LIMIT-S seconds, or on a signal that stops it, timeit
 * kills the program's process group: the status is then 137. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RESULT_FD 3

extern char **environ;

static volatile pid_t child;

static void on_stop(int sig)
{
    (void)sig;
    if (child > 0)
        kill(-child, SIGKILL);
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Start argv as leader of its own process group, with default handlers and no blocked signals. */
static int spawn_group(char **argv, pid_t *ret_pid)
{
    posix_spawnattr_t attr;
    sigset_t handled, none;
    int rc;

    sigemptyset(&none);
    sigemptyset(&handled);
    sigaddset(&handled, SIGALRM);
    sigaddset(&handled, SIGINT);
    sigaddset(&handled, SIGTERM);
    if ((rc = posix_spawnattr_init(&attr)) != 0)
        return rc;
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigdefault(&attr, &handled);
    posix_spawnattr_setsigmask(&attr, &none);
    rc = posix_spawnp(ret_pid, argv[0], NULL, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    return rc;
}

int main(int argc, char **argv)
{
    struct sigaction stop = {.sa_handler = on_stop};
    int limit_s = argc > 2 ? atoi(argv[1]) : 0;
    int status = 0, rc;
    sigset_t handled, before;
    pid_t pid;

    if (limit_s < 1) {
        fputs("usage: timeit LIMIT-S PROGRAM [ARGUMENT]... 3>RESULT\n", stderr);
        return 2;
    }
    if (fcntl(RESULT_FD, F_SETFD, FD_CLOEXEC) < 0) {
        fprintf(stderr, "timeit: descriptor %d is not open\n", RESULT_FD);
        return 2;
    }
    sigaction(SIGALRM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigfillset(&handled);
    sigprocmask(SIG_BLOCK, &handled, &before); /* a signal before `child` is set would be lost */

    int64_t begun = now_ns();
    if ((rc = spawn_group(argv + 2, &pid)) != 0) {
        fprintf(stderr, "timeit: cannot start '%s': %s\n", argv[2], strerror(rc));
        return 127;
    }
    child = pid;
    alarm((unsigned)limit_s);
    sigprocmask(SIG_SETMASK, &before, NULL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    int64_t took = now_ns() - begun;

    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    dprintf(RESULT_FD, "%lld %d\n", (long long)took, code);
    return 0;
}
