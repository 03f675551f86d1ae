/* A tool that inspects a rank: its output, and its end. sh is the test double of gdb. */
#include "common/error.h"
#include "launcher/diagnosis/stacks.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

static uv_loop_t loop;
static char said[4096];
static int n_done;
static bool was_late, keeps_end;
static int end_status;
static pid_t target;

static void on_done(void *arg, const char *text, int status, bool timed_out)
{
    ck_assert_ptr_eq(arg, said);
    snprintf(said, sizeof said, "%s", text);
    was_late = timed_out;
    end_status = status;
    n_done++;
}

static void set_up(void)
{
    n_done = 0;
    target = 0;
    said[0] = '\0';
    keeps_end = false;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

static void tear_down(void)
{
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1); /* nothing of it is left */
    ck_assert_int_eq(errno, ECHILD);
}

static struct stack_tool *begin(const char *path, const char *script, uint64_t timeout_ms)
{
    struct stack_tool *t = NULL;
    struct co_error err = {0};
    char *const argv[] = {"sh", "-c", (char *)script, NULL};
    const struct stack_tool_opts opts = {.path = path,
                                         .argv = argv,
                                         .target = target,
                                         .max_bytes = 64,
                                         .keeps_end = keeps_end,
                                         .timeout_ms = timeout_ms,
                                         .on_done = on_done,
                                         .arg = said};
    ck_assert_msg(stack_tool_begin(&loop, &opts, &t, &err) == 0, "%s", err.text);
    return t;
}

static void await_done(void)
{
    while (n_done == 0)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(n_done, 1);
}

START_TEST(its_status_is_reported)
{
    begin("/bin/sh", "exit 7", 60000);
    await_done();
    ck_assert(WIFEXITED(end_status) && WEXITSTATUS(end_status) == 7);
}
END_TEST

START_TEST(the_end_of_its_output_is_kept_if_asked_for)
{
    keeps_end = true;
    begin("/bin/sh", "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done", 60000);
    await_done();
    ck_assert_uint_le(strlen(said), 64);
    ck_assert_ptr_nonnull(strstr(said, "line 19999\n"));
}
END_TEST

START_TEST(its_output_is_kept)
{
    begin("/bin/sh", "echo one; echo two >&2; read x; echo \"<$x>\"", 60000);
    await_done();
    ck_assert_str_eq(said, "one\ntwo\n<>\n");
    ck_assert(!was_late);
}
END_TEST

START_TEST(its_output_is_bounded)
{
    begin("/bin/sh", "i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i + 1)); done", 60000);
    await_done();
    ck_assert_uint_eq(strlen(said), 64);
}
END_TEST

START_TEST(a_tool_that_hangs_is_killed_with_its_children)
{
    begin("/bin/sh", "trap '' TERM; echo begun; sleep 1000 & wait; sleep 1000", 300);
    await_done();
    ck_assert(was_late);
}
END_TEST

START_TEST(a_child_that_holds_the_output_does_not_block_ddprun)
{
    begin("/bin/sh", "sleep 2 & echo said", 60000);
    await_done();
    ck_assert_str_eq(said, "said\n");
    ck_assert(!was_late);
}
END_TEST

START_TEST(the_tool_starts_with_default_signals)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    signal(SIGPIPE, SIG_IGN);
    begin("/bin/sh", "kill -TERM $$; echo alive", 60000);
    await_done();
    ck_assert_str_eq(said, "");
}
END_TEST

START_TEST(a_missing_tool_has_no_output)
{
    begin("/nowhere/gdb", "", 60000);
    await_done();
    ck_assert_str_eq(said, "");
}
END_TEST

START_TEST(it_can_be_canceled)
{
    stack_tool_cancel(begin("/bin/sh", "sleep 1000", 60000));
    stack_tool_cancel(NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(n_done, 0);
}
END_TEST

START_TEST(it_ends_with_the_process_that_started_it)
{
    int ends[2];
    char script[64], text[32] = "";
    ck_assert_int_eq(pipe(ends), 0); /* both inherit it: its end is the end of both */
    snprintf(script, sizeof script, "echo $$ >/proc/self/fd/%d; exec sleep 1000", ends[1]);
    const pid_t starter = fork();
    if (starter == 0) {
        begin("/bin/sh", script, 60000);
        uv_run(&loop, UV_RUN_DEFAULT);
        _exit(1);
    }
    close(ends[1]);
    ck_assert_int_gt(read(ends[0], text, sizeof text - 1), 0);
    kill(starter, SIGKILL);
    ck_assert_int_eq(waitpid(starter, NULL, 0), starter);
    struct pollfd p = {.fd = ends[0], .events = POLLIN};
    const bool has_ended = poll(&p, 1, 20000) == 1 && read(ends[0], text, 1) == 0;
    if (!has_ended)
        kill((pid_t)strtol(text, NULL, 10), SIGKILL);
    ck_assert(has_ended);
    close(ends[0]);
}
END_TEST

/* returns what the script makes of a process that it stops: its state afterwards */
static int stop_and(const char *then, bool is_cancelled)
{
    char script[128];
    siginfo_t info = {0};
    const bool ends_well = strcmp(then, "exit 0") == 0;
    target = fork();
    ck_assert_int_ge(target, 0);
    if (target == 0)
        for (;;)
            pause();
    snprintf(script, sizeof script, "kill -STOP %d; %s", target, then);
    struct stack_tool *t = begin("/bin/sh", script, is_cancelled ? 60000 : 300);
    ck_assert_int_eq(waitid(P_PID, (id_t)target, &info, WSTOPPED), 0); /* and so it is not below */
    if (is_cancelled)
        stack_tool_cancel(t);
    else
        await_done();
    uv_run(&loop, UV_RUN_DEFAULT);
    info.si_pid = 0;
    ck_assert_int_eq(waitid(P_PID, (id_t)target, &info, WCONTINUED | (ends_well ? WNOHANG : 0)), 0);
    kill(target, SIGKILL);
    waitpid(target, NULL, 0);
    return info.si_pid != 0 ? info.si_code : CLD_STOPPED;
}

START_TEST(the_inspected_process_continues_unless_the_tool_succeeded)
{
    ck_assert_int_eq(stop_and("sleep 1000", false), CLD_CONTINUED);
    n_done = 0;
    ck_assert_int_eq(stop_and("kill -TERM $$; sleep 1000", false), CLD_CONTINUED);
    n_done = 0;
    ck_assert_int_eq(stop_and("sleep 1000", true), CLD_CONTINUED);
    ck_assert_int_eq(stop_and("exit 0", false), CLD_STOPPED);
}
END_TEST

START_TEST(canceling_does_not_wait_for_its_end)
{
    siginfo_t ended;
    stack_tool_cancel(begin("/bin/sh", "sleep 1000", 60000));
    ck_assert_int_eq(waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT), 0); /* not reaped yet */
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(n_done, 0);
}
END_TEST

START_TEST(programs_are_found_in_path)
{
    setenv("PATH", "/nowhere::/bin", 1);
    char *path = stack_tool_find("sh");
    ck_assert_str_eq(path, "/bin/sh");
    free(path);
    ck_assert_ptr_null(stack_tool_find("no-such-program"));
    unsetenv("PATH");
    ck_assert_ptr_null(stack_tool_find("sh"));
}
END_TEST

TEST_SUITE(stack_tool)
{
    Suite *suite = suite_create("stack_tool");
    TCase *tc = tcase_create("stack_tool");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, its_status_is_reported);
    tcase_add_test(tc, the_end_of_its_output_is_kept_if_asked_for);
    tcase_add_test(tc, its_output_is_kept);
    tcase_add_test(tc, its_output_is_bounded);
    tcase_add_test(tc, a_tool_that_hangs_is_killed_with_its_children);
    tcase_add_test(tc, a_child_that_holds_the_output_does_not_block_ddprun);
    tcase_add_test(tc, the_tool_starts_with_default_signals);
    tcase_add_test(tc, a_missing_tool_has_no_output);
    tcase_add_test(tc, it_can_be_canceled);
    tcase_add_test(tc, it_ends_with_the_process_that_started_it);
    tcase_add_test(tc, the_inspected_process_continues_unless_the_tool_succeeded);
    tcase_add_test(tc, canceling_does_not_wait_for_its_end);
    tcase_add_test(tc, programs_are_found_in_path);
    suite_add_tcase(suite, tc);
    return suite;
}
