/* Which signals ranks get of those that a scheduler sends to each process. */
#include "launcher/spawner/step_signals.h"
#include "tests/support/suite.h"

#include <check.h>
#include <grp.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define BIT(sig) (UINT64_C(1) << (sig))

static struct step_signals s;
static sigset_t heard;

static void set_up(void)
{
    s = (struct step_signals){0};
}

/* A process in which the signal has that disposition. */
static pid_t start(int sig, void (*disposition)(int))
{
    int up[2];
    char byte;
    ck_assert_int_eq(pipe(up), 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        signal(sig, disposition);
        close(up[0]);
        close(up[1]); /* reports that it is done */
        for (;;)
            pause();
    }
    close(up[1]);
    ck_assert_int_eq(read(up[0], &byte, 1), 0);
    close(up[0]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static void nothing(int sig)
{
    (void)sig;
}

START_TEST(without_a_scheduler_all_signals_are_sent)
{
    step_signals_hear(&s, SIGUSR1, 5000);
    const pid_t pid = start(SIGUSR1, SIG_IGN);
    for (int sig = 1; sig < NSIG; sig++)
        ck_assert_int_eq(step_signals_choose(&s, sig, pid, 5000), sig);
    end(pid);
}
END_TEST

START_TEST(a_signal_that_all_ranks_just_got_is_not_sent_again)
{
    step_signals_begin(&s, 0, BIT(SIGUSR1) | BIT(SIGTERM), &heard);
    ck_assert(sigismember(&heard, SIGUSR1) && sigismember(&heard, SIGTERM));
    ck_assert(!sigismember(&heard, SIGUSR2));
    step_signals_hear(&s, SIGUSR1, 5000);
    step_signals_hear(&s, SIGUSR2, 5000);
    ck_assert_int_eq(step_signals_choose(&s, SIGUSR1, getpid(), 5999), 0);
    ck_assert_int_eq(step_signals_choose(&s, SIGUSR1, getpid(), 6000), SIGUSR1);
    ck_assert_int_eq(step_signals_choose(&s, SIGUSR2, getpid(), 5000), SIGUSR2);
    ck_assert_int_eq(step_signals_choose(&s, SIGTERM, getpid(), 5000), SIGTERM);
    ck_assert_int_eq(step_signals_choose(&s, SIGKILL, getpid(), 5000), SIGKILL);
}
END_TEST

START_TEST(a_rank_that_ignores_the_held_back_signal_gets_sigterm)
{
    static void (*const dispositions[])(int) = {SIG_IGN, SIG_DFL, nothing};
    void (*old)(int) = signal(SIGUSR1, SIG_DFL);
    step_signals_begin(&s, BIT(SIGUSR1), 0, &heard);
    ck_assert(signal(SIGUSR1, old) == SIG_IGN); /* as its children begin */
    step_signals_hear(&s, SIGUSR1, 5000);
    for (size_t i = 0; i < sizeof dispositions / sizeof *dispositions; i++) {
        const pid_t pid = start(SIGUSR1, dispositions[i]);
        ck_assert_int_eq(step_signals_choose(&s, SIGUSR1, pid, 5000), i == 0 ? SIGTERM : SIGUSR1);
        end(pid);
    }
}
END_TEST

START_TEST(a_user_with_many_groups_is_supported)
{
    enum { N_GROUPS = 2000 };
    static gid_t groups[N_GROUPS];
    for (int i = 0; i < N_GROUPS; i++)
        groups[i] = 2000000000u + (gid_t)i;
    if (setgroups(N_GROUPS, groups) < 0) {
        printf("skipped: this user may not set groups\n");
        return;
    }
    const pid_t pid = start(SIGUSR1, SIG_IGN);
    s.ignored = BIT(SIGUSR1);
    ck_assert_int_eq(step_signals_choose(&s, SIGUSR1, pid, 5000), SIGTERM);
    end(pid);
}
END_TEST

START_TEST(no_number_is_out_of_bounds)
{
    static const int numbers[] = {-1, 0, 32, 63, 64, 1000};
    step_signals_begin(&s, UINT64_MAX, UINT64_MAX, &heard);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        step_signals_hear(&s, numbers[i], 5000);
        ck_assert_int_eq(step_signals_choose(&s, numbers[i], getpid(), 5000), numbers[i]);
    }
}
END_TEST

TEST_SUITE(step_signals)
{
    Suite *suite = suite_create("step_signals");
    TCase *t = tcase_create("step_signals");
    tcase_add_checked_fixture(t, set_up, NULL);
    tcase_add_test(t, without_a_scheduler_all_signals_are_sent);
    tcase_add_test(t, a_signal_that_all_ranks_just_got_is_not_sent_again);
    tcase_add_test(t, a_rank_that_ignores_the_held_back_signal_gets_sigterm);
    tcase_add_test(t, a_user_with_many_groups_is_supported);
    tcase_add_test(t, no_number_is_out_of_bounds);
    suite_add_tcase(suite, t);
    return suite;
}
