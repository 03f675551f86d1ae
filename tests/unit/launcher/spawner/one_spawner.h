/* one_spawner.h - a spawner under test: what it is asked to start, and what it reports. */
#ifndef DDP_TESTS_UNIT_LAUNCHER_SPAWNER_ONE_SPAWNER_H
#define DDP_TESTS_UNIT_LAUNCHER_SPAWNER_ONE_SPAWNER_H

#include "launcher/spawner/spawner.h"

#include "common/clock.h"
#include "common/error.h"
#include "launcher/spawner/image.h"
#include "tests/support/suite.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The cases of the file of test_spawner that has no main(), with the fixture below. */
TCase *spawner_lease_cases(void);

static struct spawner n;
static int null_fd;

static inline void set_up(void)
{
    sigset_t child_ended;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_ended, NULL);
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(spawner_open(NULL, &n, NULL), 0);
}

static inline void tear_down(void)
{
    spawner_close(&n, co_deadline_ms(20000));
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1); /* nothing was left to us */
    close(null_fd);
}

static inline struct spawner_report next(void)
{
    struct spawner_report r = {0};
    struct pollfd p = {.fd = n.sock, .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 20000), 1);
    ck_assert_int_eq(spawner_receive(&n, &r), 1);
    return r;
}

/* Workers that are started together, of which each has its own script as argv[2]. */
static inline void spawn_many(int first, int n_workers, const char *path,
                              const char *const *scripts, int out_fd)
{
    char *env[] = {(char *)"GREETING=hello", NULL};
    char *argv[SPAWN_AT_ONCE][4];
    struct image_words words[SPAWN_AT_ONCE];
    int fds[SPAWN_AT_ONCE][SPAWN_N_FDS];
    int image = -1;
    for (int i = 0; i < n_workers; i++) {
        char *own[] = {(char *)"sh", (char *)"-c", (char *)scripts[i], NULL};
        memcpy(argv[i], own, sizeof own);
        words[i] = (struct image_words){.path = path, .argv = argv[i], .env = env};
        memcpy(fds[i],
               (int[SPAWN_N_FDS]){null_fd, out_fd, STDERR_FILENO, null_fd, -1, -1, -1, -1, -1},
               sizeof fds[i]);
    }
    ck_assert_int_eq(image_make(words, (size_t)n_workers, &image, NULL), 0);
    ck_assert_int_eq(spawner_spawn(&n, first, n_workers, image, (const int(*)[SPAWN_N_FDS])fds), 0);
    close(image);
}

static inline void spawn(int rank, const char *path, char *const *argv, int out_fd)
{
    char *env[] = {(char *)"GREETING=hello", NULL};
    int image = -1;
    const struct image_words words = {.path = path, .argv = argv, .env = env};
    const int fds[1][SPAWN_N_FDS] = {{null_fd, out_fd, STDERR_FILENO, null_fd, -1, -1, -1, -1, -1}};
    ck_assert_int_eq(image_make(&words, 1, &image, NULL), 0);
    ck_assert_int_eq(spawner_spawn(&n, rank, 1, image, fds), 0);
    close(image);
}

static inline void spawn_sh(int rank, const char *script)
{
    spawn_many(rank, 1, "/bin/sh", &script, null_fd);
}

#endif
