/* Where a process is: texts of /proc, also odd ones, and a real process. */
#include "common/process_where.h"
#include "tests/support/suite.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(a_system_call_has_a_number)
{
    ck_assert_int_eq(co_process_parse_syscall("202 0x7f 0x0 0x1 0x2 0x3 0x4 0x7ffe 0x7f12\n"), 202);
    ck_assert_int_eq(co_process_parse_syscall("-1 0x7ffe 0x7f12\n"), -1);
    ck_assert_int_eq(co_process_parse_syscall("running\n"), -1);
    ck_assert_int_eq(co_process_parse_syscall(""), -1);
    ck_assert_str_eq(co_process_syscall_name(SYS_futex), "futex");
    ck_assert_ptr_null(co_process_syscall_name(-1));
    ck_assert_ptr_null(co_process_syscall_name(1 << 20));
}
END_TEST

START_TEST(a_status_gives_the_tracer_and_the_handlers)
{
    pid_t tracer = 7;
    struct co_process_where w = {0};
    co_process_parse_status("Name:\tx\nTracerPid:\t4711\nSigBlk:\tffffffffffffffff\n"
                            "SigCgt:\t0000000180000a00\nSeccomp:\t0\n",
                            &tracer, &w.caught);
    ck_assert_int_eq(tracer, 4711);
    ck_assert(co_process_catches(&w, SIGUSR1) && co_process_catches(&w, SIGUSR2));
    ck_assert(!co_process_catches(&w, SIGTERM));
    ck_assert(!co_process_catches(&w, 0) && !co_process_catches(&w, 65));
    co_process_parse_status("", &tracer, &w.caught);
    co_process_parse_status("TracerPid:\nSigCgt:\tzz\nName:\tSigCgt:\t1", &tracer, &w.caught);
    ck_assert_int_eq(tracer, 4711);
    ck_assert_uint_eq(w.caught, 0x180000a00);
}
END_TEST

START_TEST(a_kernel_stack_becomes_names)
{
    char kernel[CO_WHERE_KERNEL_BYTES], text[8192] = "";
    co_process_parse_stack("[<0>] futex_wait_queue+0x61/0x80\n[<0>] do_futex+0x1/0x2 [mod]\n",
                           kernel);
    ck_assert_str_eq(kernel, "futex_wait_queue\ndo_futex\n");
    co_process_parse_stack("", kernel);
    ck_assert_str_eq(kernel, "");
    co_process_parse_stack("no such line\n[<0>]\n[<0>] \n]\n\n[<0>] x", kernel);
    ck_assert_str_eq(kernel, "x\n");
    for (int i = 0; i < 300; i++)
        strcat(text, "[<0>] some_function+0x1\n");
    co_process_parse_stack(text, kernel);
    ck_assert_uint_lt(strlen(kernel), sizeof kernel);
    ck_assert_int_eq(kernel[strlen(kernel) - 1], '\n');
    memset(text, 'a', sizeof text - 1);
    text[0] = ']';
    co_process_parse_stack(text, kernel);
    ck_assert_str_eq(kernel, "");
}
END_TEST

static void on_signal(int sig)
{
    (void)sig;
}

START_TEST(a_waiting_process_is_found_in_its_system_call)
{
    struct co_process_where w;
    struct co_process p;
    int ready[2];
    ck_assert_int_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        signal(SIGUSR2, on_signal);
        if (write(ready[1], "", 1) != 1)
            _exit(1);
        close(ready[1]);
        for (;;) /* reads what never comes: the parent holds the other end */
            if (read(ready[0], &byte, 0) < 0 || pause() != -1)
                _exit(1);
    }
    char byte;
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    do { /* until it sleeps */
        ck_assert_int_eq(co_process_look(child, &p, NULL), 0);
    } while (p.state != 'S');
    co_process_where(child, &w);
    ck_assert(co_process_catches(&w, SIGUSR2));
    ck_assert(!co_process_catches(&w, SIGUSR1));
    ck_assert_int_eq(w.tracer, 0);
    if (w.syscall >= 0) /* some kernels do not report it */
        ck_assert_str_eq(co_process_syscall_name(w.syscall), "pause");
    ck_assert(!co_process_is_python(child));
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    co_process_where(child, &w);
    ck_assert_int_eq(w.syscall, -1);
    ck_assert_str_eq(w.wchan, "");
    close(ready[0]);
    close(ready[1]);
}
END_TEST

TEST_SUITE(process_where)
{
    Suite *suite = suite_create("process_where");
    TCase *tc = tcase_create("process_where");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, a_system_call_has_a_number);
    tcase_add_test(tc, a_status_gives_the_tracer_and_the_handlers);
    tcase_add_test(tc, a_kernel_stack_becomes_names);
    tcase_add_test(tc, a_waiting_process_is_found_in_its_system_call);
    suite_add_tcase(suite, tc);
    return suite;
}
