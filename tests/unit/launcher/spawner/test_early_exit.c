/* Ranks that are as good as ended: when they are looked at, and what is seen. */
#include "launcher/spawner/exit_watch.h"

#include "common/clock.h"
#include "common/process.h"
#include "tests/support/suite.h"

#include <check.h>
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEADLINE_MS = 60000, LOWEST_PRIORITY = 19 };

START_TEST(the_intervals_between_looks_grow)
{
    static const uint64_t looks[] = {0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 1023};
    struct early_exit_watch w = {0};
    ck_assert_uint_eq(early_exit_watch_next_ms(&w), CO_NEVER_MS);
    ck_assert(!early_exit_watch_take(&w, 5000));
    early_exit_watch_begin(&w, 5000);
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        ck_assert_uint_eq(early_exit_watch_next_ms(&w), 5000 + looks[i]);
        ck_assert(!early_exit_watch_take(&w, 5000 + looks[i] - 1));
        ck_assert(early_exit_watch_take(&w, 5000 + looks[i]));
    }
    ck_assert_uint_eq(early_exit_watch_next_ms(&w), CO_NEVER_MS);
    ck_assert(!early_exit_watch_take(&w, 5000 + DEADLINE_MS));
}
END_TEST

START_TEST(a_process_that_is_reported_again_starts_over)
{
    struct early_exit_watch w;
    early_exit_watch_begin(&w, 0);
    ck_assert(early_exit_watch_take(&w, 0) && early_exit_watch_take(&w, 1));
    early_exit_watch_begin(&w, 2);
    ck_assert_uint_eq(early_exit_watch_next_ms(&w), 2);
    ck_assert(early_exit_watch_take(&w, 2));
    ck_assert_uint_eq(early_exit_watch_next_ms(&w), 3);
}
END_TEST

START_TEST(a_killed_process_counts_as_dead_and_a_live_one_does_not)
{
    int status = 0;
    const uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
    const pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    ck_assert(!early_exit_is_ending(pid) && !early_exit_has_failed(pid, &status));
    kill(pid, SIGKILL);
    while (!early_exit_has_failed(pid, &status) && co_left_ms(deadline_ms) > 0)
        poll(NULL, 0, 1);
    ck_assert(early_exit_is_ending(pid));
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    waitpid(pid, NULL, 0);
}
END_TEST

static void *wait_for_ever(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static bool has_lost_its_first_thread(pid_t pid)
{
    struct co_process p;
    return co_process_look(pid, &p, NULL) == 0 && p.is_ending;
}

START_TEST(a_process_without_its_first_thread_is_not_dead)
{
    int status = 0;
    siginfo_t info;
    const uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
    const pid_t pid = fork();
    pthread_t thread;
    if (pid == 0) {
        pthread_create(&thread, NULL, wait_for_ever, NULL);
        pthread_exit(NULL);
    }
    while (!has_lost_its_first_thread(pid) && co_left_ms(deadline_ms) > 0)
        poll(NULL, 0, 1);
    ck_assert(has_lost_its_first_thread(pid));
    ck_assert(!early_exit_is_ending(pid) && !early_exit_has_failed(pid, &status));
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    ck_assert(early_exit_is_ending(pid));
    waitpid(pid, NULL, 0);
}
END_TEST

/* returns   the lowest nice value of the process's threads; -100: it has not so many */
static int find_lowest(pid_t pid, int n_threads)
{
    char path[64];
    int n = 0, lowest = 20;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    ck_assert_ptr_nonnull(threads);
    for (struct dirent *t; (t = readdir(threads)) != NULL;) {
        const id_t tid = (id_t)strtoul(t->d_name, NULL, 10);
        if (tid == 0)
            continue;
        const int nice = getpriority(PRIO_PROCESS, tid);
        lowest = nice < lowest ? nice : lowest;
        n++;
    }
    closedir(threads);
    return n == n_threads ? lowest : -100;
}

START_TEST(all_threads_get_the_lowest_priority)
{
    const uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
    if (getpriority(PRIO_PROCESS, 0) == LOWEST_PRIORITY)
        return; /* the tests themselves run at the lowest priority: no difference would show */
    const pid_t pid = fork();
    pthread_t thread;
    if (pid == 0) {
        pthread_create(&thread, NULL, wait_for_ever, NULL);
        wait_for_ever(NULL);
    }
    while (find_lowest(pid, 2) == -100 && co_left_ms(deadline_ms) > 0)
        poll(NULL, 0, 1);
    ck_assert_int_lt(find_lowest(pid, 2), LOWEST_PRIORITY);
    early_exit_step_aside(pid);
    ck_assert_int_eq(find_lowest(pid, 2), LOWEST_PRIORITY);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    early_exit_step_aside(pid); /* an ended process does no harm */
}
END_TEST

START_TEST(a_process_that_ends_gets_its_priority_back_and_no_other_one)
{
    const int nice = getpriority(PRIO_PROCESS, 0);
    siginfo_t info;
    const pid_t pid = fork();
    if (pid == 0)
        wait_for_ever(NULL);
    early_exit_step_aside(pid);
    early_exit_step_back(pid);
    ck_assert_int_eq(find_lowest(pid, 1), LOWEST_PRIORITY);
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    const bool may_raise = setpriority(PRIO_PROCESS, (id_t)pid, nice) == 0;
    early_exit_step_aside(pid);
    early_exit_step_back(pid);
    ck_assert_int_eq(find_lowest(pid, 1), may_raise ? nice : LOWEST_PRIORITY);
    waitpid(pid, NULL, 0);
    early_exit_step_back(pid); /* an ended process does no harm */
}
END_TEST

TEST_SUITE(early_exit)
{
    Suite *suite = suite_create("dying");
    TCase *t = tcase_create("dying");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, the_intervals_between_looks_grow);
    tcase_add_test(t, a_process_that_is_reported_again_starts_over);
    tcase_add_test(t, a_killed_process_counts_as_dead_and_a_live_one_does_not);
    tcase_add_test(t, a_process_without_its_first_thread_is_not_dead);
    tcase_add_test(t, all_threads_get_the_lowest_priority);
    tcase_add_test(t, a_process_that_ends_gets_its_priority_back_and_no_other_one);
    suite_add_tcase(suite, t);
    return suite;
}
