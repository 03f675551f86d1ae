/* What /proc contains, and what it might contain. */
#include "common/error.h"
#include "common/process.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int parse(const char *line, struct co_process *p)
{
    return co_process_parse(line, strlen(line), 100, 4096, p);
}

#define REST                                                                                       \
    " 4 5 0 -1 4194560 100 200 0 0 150 50 7 3 20 0 3 0 987654 1000000 250 18446744073709551615 "   \
    "1 2 3 4 5 0 0 0\n"

START_TEST(the_fields_are_found)
{
    struct co_process p;
    ck_assert_int_eq(parse("123 (train.py) S 77" REST, &p), 0);
    ck_assert_int_eq(p.state, 'S');
    ck_assert_str_eq(p.name, "train.py");
    ck_assert_int_eq(p.parent, 77);
    ck_assert_uint_eq(p.cpu_ms, 2100);
    ck_assert_uint_eq(p.start_ticks, 987654);
    ck_assert_uint_eq(p.rss_bytes, 250 * 4096);
    ck_assert_int_eq(p.n_threads, 3);
}
END_TEST

/* Flags, and the fields from the 23rd to the 52nd. */
#define DYING(flags, exit_code)                                                                    \
    " 4 5 0 -1 " flags " 100 200 0 0 150 50 7 3 20 0 3 0 987654 1000000 250 18446744073709551615 " \
    "1 2 3 4 5 0 0 0 8 9 10 11 17 1 0 0 12 13 14 15 16 17 18 19 20 21 " exit_code "\n"

START_TEST(an_exit_and_its_status_are_seen)
{
    struct co_process p;
    ck_assert_int_eq(parse("123 (a b) S 77" DYING("4194560", "9"), &p), 0);
    ck_assert(!p.is_ending);
    ck_assert_int_eq(p.exit_status, 0); /* of a stopped one it is another number */
    ck_assert_int_eq(parse("123 (a b) R 77" DYING("4194564", "9"), &p), 0);
    ck_assert(p.is_ending);
    ck_assert_int_eq(p.exit_status, SIGKILL);
    ck_assert_int_eq(parse("123 (a b) Z 77" DYING("4228108", "1792"), &p), 0);
    ck_assert_int_eq(WEXITSTATUS(p.exit_status), 7);
    ck_assert_int_eq(parse("123 (a b) R 77" DYING("4194564", "x"), &p), 0);
    ck_assert_int_eq(p.exit_status, 0);
    ck_assert_int_eq(parse("123 (a b) R 77 4 5 0 -1 4194564 1 2 0 0 1 5 7 3 20 0 3 0 9 1 2\n", &p),
                     0);
    ck_assert(p.is_ending);
    ck_assert_int_eq(p.exit_status, 0); /* as long as it is not known */
}
END_TEST

START_TEST(a_name_may_contain_anything)
{
    struct co_process p;
    ck_assert_int_eq(parse("123 (a) R 1 (b\n) S 77" REST, &p), 0);
    ck_assert_str_eq(p.name, "a) R 1 (b\n");
    ck_assert_int_eq(p.state, 'S');
    ck_assert_int_eq(parse("123 () S 77" REST, &p), 0);
    ck_assert_str_eq(p.name, "");
}
END_TEST

static const char *const bad[] = {
    "",
    "\n",
    "123",
    "123 (x",
    "123 x) S 77" REST,
    "123 )x( S 77" REST,
    "123 (x) S 77 1 2\n",
    "123 (x) S 77 4 5 0 -1 4194560 100 200 0 0 150 x 7 3 20 0 3 0 987654 1000000 250\n",
};

START_TEST(an_invalid_line_is_refused)
{
    struct co_process p = {.parent = 7};
    ck_assert_int_eq(parse(bad[_i], &p), -EINVAL);
    ck_assert_int_eq(p.parent, 7);
}
END_TEST

START_TEST(long_lines_and_nuls_are_refused)
{
    struct co_process p;
    char line[2000];
    memset(line, 'x', sizeof line);
    ck_assert_int_eq(co_process_parse(line, sizeof line, 100, 4096, &p), -EINVAL);
    memcpy(line, "123 (a\0b) S 77" REST, sizeof "123 (a\0b) S 77" REST);
    ck_assert_int_eq(co_process_parse(line, sizeof "123 (a\0b) S 77" REST - 1, 100, 4096, &p),
                     -EINVAL);
}
END_TEST

START_TEST(a_living_process_is_seen_and_an_ended_one_is_not)
{
    struct co_process p;
    struct co_error err = {0};
    ck_assert_msg(co_process_look(getpid(), &p, &err) == 0, "%s", err.text);
    ck_assert_int_eq(p.state, 'R');
    ck_assert_int_eq(p.parent, getppid());
    ck_assert_uint_gt(p.rss_bytes, 0);
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    ck_assert_int_eq(kill(child, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(child, NULL, WUNTRACED), child);
    ck_assert_int_eq(co_process_look(child, &p, &err), 0);
    ck_assert_int_eq(p.state, 'T');
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_assert_int_eq(co_process_look(child, &p, &err), -ESRCH);
}
END_TEST

START_TEST(the_status_is_known_before_the_process_is_reaped)
{
    struct co_process p;
    siginfo_t info;
    for (int by_signal = 0; by_signal < 2; by_signal++) {
        pid_t child = fork();
        if (child == 0) {
            if (by_signal)
                kill(getpid(), SIGKILL);
            _exit(7);
        }
        ck_assert_int_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
        ck_assert_int_eq(co_process_look(child, &p, NULL), 0);
        ck_assert(p.is_ending);
        int status;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(p.exit_status, status);
    }
}
END_TEST

/* On a processor that this process keeps busy: it ends when nothing else wants to run there. */
static bool is_seen_to_tear_down(void)
{
    static const struct sched_param none;
    const pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    sched_setscheduler(pid, SCHED_IDLE, &none);
    kill(pid, SIGKILL);
    const bool seen = co_process_tears_down(pid);
    waitpid(pid, NULL, 0);
    return seen && !co_process_tears_down(pid);
}

/* Any user is to see it. returns an exit status */
static int look_as_any_user(void)
{
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET((size_t)sched_getcpu(), &here);
    if (sched_setaffinity(0, sizeof here, &here) < 0 ||
        (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0))
        return 2;
    for (int i = 0; i < 1000; i++)
        if (is_seen_to_tear_down())
            return 0;
    return 1;
}

START_TEST(a_killed_process_that_wants_to_run_is_torn_down)
{
    int status;
    const pid_t pid = fork();
    if (pid == 0)
        _exit(look_as_any_user());
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}
END_TEST

static _Noreturn void run_on(void)
{
    for (;;)
        sched_yield();
}

static _Noreturn void sleep_on(void)
{
    for (;;)
        pause();
}

START_TEST(a_process_that_is_not_killed_is_not_torn_down)
{
    siginfo_t info;
    for (int runs = 0; runs < 2; runs++) {
        const pid_t pid = fork();
        if (pid == 0)
            (runs ? run_on : sleep_on)();
        ck_assert(!co_process_tears_down(pid));
        kill(pid, SIGSTOP);
        ck_assert_int_eq(waitpid(pid, NULL, WUNTRACED), pid);
        ck_assert(!co_process_tears_down(pid));
        kill(pid, SIGKILL);
        ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
        ck_assert(!co_process_tears_down(pid)); /* only its status is left */
        waitpid(pid, NULL, 0);
    }
}
END_TEST

START_TEST(a_file_is_read_as_far_as_the_buffer_allows)
{
    char name[4];
    ck_assert_int_eq(co_process_read(getpid(), "comm", name, sizeof name), 3);
    ck_assert_uint_eq(strlen(name), 3);
    ck_assert_int_eq(co_process_read(getpid(), "nothing", name, sizeof name), -ENOENT);
}
END_TEST

TEST_SUITE(process)
{
    Suite *suite = suite_create("process");
    TCase *tc = tcase_create("process");
    tcase_add_test(tc, the_fields_are_found);
    tcase_add_test(tc, an_exit_and_its_status_are_seen);
    tcase_add_test(tc, a_name_may_contain_anything);
    tcase_add_loop_test(tc, an_invalid_line_is_refused, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(tc, long_lines_and_nuls_are_refused);
    tcase_add_test(tc, a_living_process_is_seen_and_an_ended_one_is_not);
    tcase_add_test(tc, the_status_is_known_before_the_process_is_reaped);
    tcase_add_test(tc, a_killed_process_that_wants_to_run_is_torn_down);
    tcase_add_test(tc, a_process_that_is_not_killed_is_not_torn_down);
    tcase_add_test(tc, a_file_is_read_as_far_as_the_buffer_allows);
    suite_add_tcase(suite, tc);
    return suite;
}
