/* The ends of a rank's threads. The ranks are test doubles: processes of this test whose threads
 * exit on request. */
#include "launcher/spawner/exit_watch.h"

#include "common/clock.h"
#include "tests/support/suite.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BEGUN_MS = 1000, LATE_MS = 60000, A_DAY_MS = 24 * 3600 * 1000, MAX_THREADS = 4 };

struct rank {
    pid_t pid;
    int end_of[MAX_THREADS]; /* a byte written here ends that thread, counted without the first */
};

static struct exit_watch w;

static bool kernel_can(void)
{
    const int fd = (int)syscall(SYS_pidfd_open, getpid(), O_EXCL);
    return fd >= 0 && close(fd) == 0;
}

static void set_up(void)
{
    exit_watch_init(&w);
}

static void tear_down(void)
{
    exit_watch_fini(&w);
    ck_assert_int_eq(w.fd, -1);
}

static void *wait_for_byte(void *arg)
{
    char byte;
    return read(*(int *)arg, &byte, 1) == 1 ? arg : NULL;
}

static _Noreturn void be_rank(int n_threads, int in[][2], int out)
{
    pthread_t thread;
    for (int i = 0; i < n_threads; i++)
        if (pthread_create(&thread, NULL, wait_for_byte, &in[i][0]) != 0)
            _exit(1);
    if (write(out, "", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

static struct rank start(int n_threads)
{
    int in[MAX_THREADS][2], out[2];
    char byte;
    struct rank r;
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    for (int i = 0; i < MAX_THREADS; i++) {
        ck_assert_int_eq(pipe2(in[i], O_CLOEXEC), 0);
        r.end_of[i] = in[i][1];
    }
    r.pid = fork();
    ck_assert_int_ge(r.pid, 0);
    if (r.pid == 0)
        be_rank(n_threads, in, out[1]);
    for (int i = 0; i < MAX_THREADS; i++)
        close(in[i][0]);
    close(out[1]);
    ck_assert_int_eq(read(out[0], &byte, 1), 1); /* its threads are there */
    close(out[0]);
    return r;
}

static void end_thread(const struct rank *r, int i)
{
    ck_assert_int_eq(write(r->end_of[i], "", 1), 1);
}

static void end(struct rank *r)
{
    kill(r->pid, SIGKILL);
    ck_assert_int_eq(waitpid(r->pid, NULL, 0), r->pid);
    for (int i = 0; i < MAX_THREADS; i++)
        close(r->end_of[i]);
}

/* Look as if a day had passed. */
static void look(const pid_t *pids, int n)
{
    exit_watch_begin(&w, BEGUN_MS);
    exit_watch_look(&w, pids, n, BEGUN_MS + A_DAY_MS);
}

static bool await_sign(void)
{
    struct pollfd p = {.fd = w.fd, .events = POLLIN};
    return poll(&p, 1, LATE_MS) == 1 && exit_watch_hear(&w, BEGUN_MS);
}

START_TEST(the_end_of_a_thread_is_seen_while_its_rank_lives)
{
    struct rank r = start(2);
    look(&r.pid, 1);
    ck_assert_int_eq(w.n, 2);
    ck_assert(!exit_watch_hear(&w, BEGUN_MS));
    end_thread(&r, 1);
    ck_assert(await_sign());
    ck_assert_int_eq(w.n, 1);
    ck_assert_int_eq(kill(r.pid, 0), 0);
    ck_assert_int_eq(waitpid(r.pid, NULL, WNOHANG), 0);
    end(&r);
}
END_TEST

START_TEST(a_killed_rank_wakes_the_watch)
{
    struct rank r = start(2);
    look(&r.pid, 1);
    kill(r.pid, SIGKILL);
    ck_assert(await_sign());
    end(&r);
}
END_TEST

START_TEST(after_the_end_of_a_thread_another_one_is_watched)
{
    struct rank r = start(3);
    look(&r.pid, 1); /* the two oldest */
    end_thread(&r, 0);
    ck_assert(await_sign());
    ck_assert_uint_ne(w.next_ms, CO_NEVER_MS);
    exit_watch_look(&w, &r.pid, 1, w.next_ms - 1);
    ck_assert_int_eq(w.n, 1);
    exit_watch_look(&w, &r.pid, 1, w.next_ms);
    ck_assert_int_eq(w.n, 2);
    end_thread(&r, 2);
    ck_assert(await_sign());
    end(&r);
}
END_TEST

START_TEST(a_forgotten_rank_has_no_descriptors_left)
{
    struct rank r[2] = {start(2), start(2)};
    const pid_t pids[] = {r[0].pid, 0, r[1].pid};
    look(pids, 3);
    ck_assert_int_eq(w.n, 4);
    exit_watch_forget(&w, r[0].pid);
    ck_assert_int_eq(w.n, 2);
    ck_assert_int_eq(w.of[0].rank, r[1].pid);
    ck_assert_int_eq(w.of[1].rank, r[1].pid);
    end(&r[0]);
    ck_assert(!exit_watch_hear(&w, BEGUN_MS));
    end(&r[1]);
    ck_assert(await_sign());
}
END_TEST

START_TEST(single_threaded_ranks_are_checked_less_and_less_often)
{
    struct rank r = start(0);
    uint64_t before_ms = BEGUN_MS, wait_ms = 0;
    exit_watch_begin(&w, before_ms);
    while (w.next_ms != CO_NEVER_MS) {
        ck_assert_uint_gt(w.next_ms - before_ms, wait_ms);
        ck_assert_uint_lt(w.next_ms, A_DAY_MS);
        wait_ms = w.next_ms - before_ms;
        before_ms = w.next_ms;
        exit_watch_look(&w, &r.pid, 1, before_ms);
    }
    ck_assert_int_eq(w.n, 0);
    ck_assert(!exit_watch_hear(&w, before_ms));
    end(&r);
}
END_TEST

START_TEST(ranks_whose_threads_are_known_are_not_checked_again)
{
    struct rank r = start(4);
    look(&r.pid, 1);
    ck_assert_int_eq(w.n, EXIT_WATCH_EACH);
    ck_assert_uint_eq(w.next_ms, CO_NEVER_MS);
    end(&r);
}
END_TEST

START_TEST(of_many_ranks_the_first_are_watched)
{
    struct rank r = start(2);
    pid_t pids[EXIT_WATCH_RANKS + 1] = {0};
    pids[EXIT_WATCH_RANKS] = r.pid;
    look(pids, EXIT_WATCH_RANKS + 1);
    ck_assert_int_eq(w.n, 0);
    pids[EXIT_WATCH_RANKS - 1] = r.pid;
    look(pids, EXIT_WATCH_RANKS + 1);
    ck_assert_int_eq(w.n, 2);
    end(&r);
}
END_TEST

START_TEST(an_exited_rank_does_no_harm)
{
    struct rank r = start(2);
    const pid_t pid = r.pid;
    end(&r);
    look(&pid, 1);
    ck_assert_int_eq(w.n, 0);
}
END_TEST

TEST_SUITE(exit_watch)
{
    if (!kernel_can()) {
        puts("skipped: this kernel is older than Linux 6.9");
        return NULL;
    }
    Suite *suite = suite_create("exit_watch");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, the_end_of_a_thread_is_seen_while_its_rank_lives);
    tcase_add_test(all, a_killed_rank_wakes_the_watch);
    tcase_add_test(all, after_the_end_of_a_thread_another_one_is_watched);
    tcase_add_test(all, a_forgotten_rank_has_no_descriptors_left);
    tcase_add_test(all, single_threaded_ranks_are_checked_less_and_less_often);
    tcase_add_test(all, ranks_whose_threads_are_known_are_not_checked_again);
    tcase_add_test(all, of_many_ranks_the_first_are_watched);
    tcase_add_test(all, an_exited_rank_does_no_harm);
    suite_add_tcase(suite, all);
    return suite;
}
