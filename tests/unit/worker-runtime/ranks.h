/* ranks.h - real ranks for a test: forked processes with the environment of a job started by hand.
 *
 * A rank's function returns its exit status. It reports what is wrong by RANK_CHECK: the check
 * library's own assertions belong to the test's process. */
#ifndef DDP_TESTS_UNIT_WORKER_RUNTIME_RANKS_H
#define DDP_TESTS_UNIT_WORKER_RUNTIME_RANKS_H

#include "common/clock.h"
#include "tests/support/suite.h"

#include <check.h>
#include <ddp/ddp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 32, RANKS_DEADLINE_MS = 120 * 1000 };

struct ranks {
    int n;
    char job[64];
    pid_t pid[RANKS_MAX];
    int status[RANKS_MAX]; /* as waitpid() gives it, once ranks_wait() has returned */
};

typedef int rank_fn(int rank, void *arg);

#define RANK_CHECK(rank, condition, ...)                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: rank %d: %s: ", __FILE__, __LINE__, rank, #condition);         \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, " [%s]\n", ddp_last_error());                                          \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static inline void ranks_init(struct ranks *r, int n)
{
    static int count;
    *r = (struct ranks){.n = n};
    /* With the time, because a store serves many tests and a busy machine reuses process
     * numbers. */
    snprintf(r->job, sizeof r->job, "test %d %d %llu", getpid(), count++,
             (unsigned long long)co_now_ns());
}

static inline void ranks_start_one(struct ranks *r, int rank, rank_fn *fn, void *arg)
{
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        char text[16];
        snprintf(text, sizeof text, "%d", rank);
        setenv("RANK", text, 1);
        snprintf(text, sizeof text, "%d", r->n);
        setenv("WORLD_SIZE", text, 1);
        setenv("DDP_JOB_ID", r->job, 1);
        setenv("DDP_SEGMENT_BYTES", "256M", 0);
        _exit(fn(rank, arg));
    }
    r->pid[rank] = pid;
}

static inline void ranks_start(struct ranks *r, int n, rank_fn *fn, void *arg)
{
    ranks_init(r, n);
    for (int i = 0; i < n; i++)
        ranks_start_one(r, i, fn, arg);
}

/* CK_TIMEOUT_MULTIPLIER, which scripts/check sets for a busy machine, also applies here. */
static inline uint64_t ranks_deadline_ms(void)
{
    const char *patience = getenv("CK_TIMEOUT_MULTIPLIER");
    const int times = patience != NULL ? atoi(patience) : 1;
    return co_deadline_ms(RANKS_DEADLINE_MS * (times > 1 ? times : 1));
}

/* All that are left, before one of them is collected: else the others would report its death. */
static inline void ranks_kill(const struct ranks *r)
{
    for (int i = 0; i < r->n; i++)
        if (r->pid[i] > 0)
            kill(r->pid[i], SIGSTOP);
    for (int i = 0; i < r->n; i++)
        if (r->pid[i] > 0)
            kill(r->pid[i], SIGKILL);
}

/* Collect those that were started; kill what is left at the deadline, and fail. */
static inline void ranks_wait(struct ranks *r)
{
    const uint64_t deadline_ms = ranks_deadline_ms();
    bool late = false;
    for (int i = 0; i < r->n; i++) {
        while (r->pid[i] > 0) {
            pid_t got = waitpid(r->pid[i], &r->status[i], late ? 0 : WNOHANG);
            ck_assert_int_ge(got, 0);
            if (got == r->pid[i]) {
                r->pid[i] = 0;
            } else if (co_left_ms(deadline_ms) == 0) {
                late = true;
                ranks_kill(r);
            } else {
                usleep(500); /* between two looks; the deadline is above */
            }
        }
    }
    ck_assert_msg(!late, "ranks did not end in time");
}

/* All have ended with status 0. */
static inline void ranks_expect_success(struct ranks *r)
{
    ranks_wait(r);
    for (int i = 0; i < r->n; i++)
        ck_assert_msg(WIFEXITED(r->status[i]) && WEXITSTATUS(r->status[i]) == 0,
                      "rank %d ended with status %#x", i, r->status[i]);
}

static inline struct ddp_group *rank_init(int rank, uint64_t timeout_ms)
{
    struct ddp_group *g;
    struct ddp_init_opts opts = {.start_timeout_ms = 60000, .timeout_ms = timeout_ms};
    RANK_CHECK(rank, ddp_init(&opts, &g) == DDP_OK, "ddp_init");
    return g;
}

static inline double rank_sum(int rank, struct ddp_group *g, double x)
{
    double sum;
    RANK_CHECK(rank, ddp_all_reduce(g, &x, &sum, 1, DDP_FLOAT64, DDP_SUM, NULL) == DDP_OK, "sum");
    return sum;
}

static inline struct ddp_group *rank_split(int rank, struct ddp_group *g, int color, int key)
{
    struct ddp_group *sub = NULL;
    RANK_CHECK(rank, ddp_group_split(g, color, key, &sub) == DDP_OK, "split");
    return sub;
}

#endif
