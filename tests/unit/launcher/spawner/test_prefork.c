/* The spawner's part of --warm. The parent and its preforked processes are test doubles: sleeping
 * processes, and this one, which sends what they would send. */
#include "launcher/spawner/prefork.h"
#include "launcher/spawner/spawner_wire.h"

#include "common/clock.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SOON_MS = 20, LATE_MS = 60000 };

static struct prefork s;
static int theirs; /* the end that a parent and its preforked processes share */

static pid_t sleeper(void)
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        for (;;)
            pause();
    return pid;
}

static void set_up(void)
{
    int pair[2];
    prefork_init(&s);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    s.parent = sleeper();
    s.session = getsid(0);
    s.sock = pair[0];
    theirs = pair[1];
    prefork_hear_senders(s.sock);
}

static void tear_down(void)
{
    prefork_close(&s);
    close(theirs);
    while (waitpid(-1, NULL, 0) > 0) {
    }
    ck_assert_int_eq(errno, ECHILD);
}

static void say(uint32_t type, int32_t pid, int32_t value)
{
    struct prefork_word w = {.type = type, .pid = pid, .value = value};
    ck_assert_int_eq(send(theirs, &w, sizeof w, 0), sizeof w);
}

static void say_batch(int32_t batch, const pid_t *pids, int n)
{
    say(PREFORK_PROMISE, n, batch);
    for (int i = 0; i < n; i++)
        say(PREFORK_SEED, pids[i], batch);
}

/* Wait for one that was killed. */
static void await_killed(pid_t pid)
{
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static struct spawn_order plain_order(void)
{
    return (struct spawn_order){.fds = {0, 1, 2, -1, -1, -1, -1, -1, -1}};
}

static enum prefork_taken take(struct spawn_order *orders, int n, int wait_ms)
{
    return prefork_take(&s, 4, orders, n, 0, co_deadline_ms((uint64_t)wait_ms));
}

START_TEST(preforked_processes_are_known_once_they_are_announced)
{
    pid_t pids[] = {sleeper(), sleeper()};
    ck_assert(prefork_know(&s, s.parent));
    ck_assert(!prefork_know(&s, pids[0]));
    say_batch(1, pids, 2);
    ck_assert(prefork_know(&s, pids[1])); /* reads what has come */
    ck_assert(s.complete);
    ck_assert(!prefork_know(&s, getpid()));
}
END_TEST

START_TEST(messages_of_another_form_are_ignored)
{
    static const char noise[64] = "\1";
    pid_t pid = sleeper();
    ck_assert_int_eq(send(theirs, noise, 3, 0), 3);
    ck_assert_int_eq(send(theirs, noise, sizeof noise, 0), sizeof noise);
    say(PREFORK_SEED, -1, 1);
    say(PREFORK_SEED, 0, 1);
    say(77, pid, 1);
    say(PREFORK_TAKEN, pid, 4);
    prefork_hear(&s);
    ck_assert_int_eq(s.n, 0);
    say_batch(-5, &pid, 1); /* a batch is a number like any other */
    prefork_hear(&s);
    ck_assert_int_eq(s.n, 1);
}
END_TEST

START_TEST(a_turn_reads_some_messages_and_the_next_one_the_others)
{
    enum { TURN = 64, SENT = TURN + 6 };
    for (int i = 0; i < SENT; i++)
        say(PREFORK_SEED, getpid(), 1);
    prefork_hear(&s);
    ck_assert_int_eq(s.n, TURN);
    prefork_hear(&s);
    ck_assert_int_eq(s.n, SENT);
}
END_TEST

START_TEST(an_announcement_after_many_messages_is_found)
{
    enum { MANY = 100 /* more than a turn reads */ };
    static const char noise[64] = "\1";
    pid_t pid = sleeper();
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(send(theirs, noise, i % 2 == 0 ? 3 : sizeof noise, 0),
                         i % 2 == 0 ? 3 : sizeof noise);
    say(PREFORK_SEED, pid, 1);
    ck_assert(prefork_know(&s, pid));
}
END_TEST

START_TEST(messages_that_still_come_do_not_extend_a_deadline)
{
    enum { MANY = 200 /* more than two turns read */ };
    struct spawn_order order = plain_order();
    int n_waiting;
    s.n_awaited = 1; /* promised */
    for (int i = 0; i < MANY; i++)
        say(77, 1, 1);
    ck_assert_int_eq(prefork_take(&s, 4, &order, 1, 0, co_now_ms()), PREFORK_TOO_FEW);
    ck_assert_int_eq(ioctl(s.sock, FIONREAD, &n_waiting), 0);
    ck_assert_int_gt(n_waiting, 0);
}
END_TEST

START_TEST(a_complete_newer_batch_ends_the_previous_one)
{
    pid_t old[] = {sleeper(), sleeper()};
    pid_t new[] = {sleeper(), sleeper()};
    say_batch(1, old, 2);
    say(PREFORK_PROMISE, 2, 2);
    say(PREFORK_SEED, new[0], 2);
    prefork_hear(&s);
    ck_assert_int_eq(waitpid(old[0], NULL, WNOHANG), 0);
    say(PREFORK_SEED, new[1], 2);
    prefork_hear(&s);
    for (int i = 0; i < 2; i++) {
        await_killed(old[i]);
        ck_assert_int_eq(prefork_forget(&s, old[i]), PREFORK_ONE_GONE);
    }
    ck_assert_int_eq(waitpid(new[0], NULL, WNOHANG), 0);
    ck_assert_int_eq(s.n, 2);
}
END_TEST

START_TEST(seeds_above_the_limit_are_killed)
{
    say(PREFORK_PROMISE, 1 << 30, 1);
    for (int i = 0; i < 2 * PREFORK_MAX; i++) {
        say(PREFORK_SEED, sleeper(), 1);
        prefork_hear(&s);
    }
    pid_t pid = sleeper();
    say(PREFORK_SEED, pid, 1);
    prefork_hear(&s);
    ck_assert_int_eq(s.n, 2 * PREFORK_MAX);
    await_killed(pid);
}
END_TEST

/* As a rank is: our child, in a session of its own. */
static pid_t sleeper_elsewhere(void)
{
    int ends[2];
    char byte;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        close(ends[0]);
        close(ends[1]);
        for (;;)
            pause();
    }
    close(ends[1]);
    ck_assert_int_eq(read(ends[0], &byte, 1), 0);
    close(ends[0]);
    return pid;
}

START_TEST(a_pid_outside_the_session_of_the_parent_is_not_believed)
{
    int status;
    pid_t pid = sleeper_elsewhere();
    say(PREFORK_PROMISE, 1, 1);
    say(PREFORK_SEED, pid, 1);
    prefork_hear(&s);
    ck_assert_int_eq(s.n, 0);
    ck_assert_int_eq(s.n_awaited, 0);
    prefork_close(&s);
    kill(pid, SIGUSR1);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
}
END_TEST

/* A process between us and a sleeper, which sends the sleeper's pid and then exits with the signal
 * that ended the sleeper. */
static pid_t between(int pid_fd)
{
    int status;
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    pid_t below = fork();
    if (below == 0)
        for (;;)
            pause();
    if (write(pid_fd, &below, sizeof below) != sizeof below || waitpid(below, &status, 0) != below)
        _exit(0);
    _exit(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

START_TEST(only_a_child_is_killed_or_made_a_rank)
{
    struct spawn_order order = plain_order();
    int ends[2], status;
    pid_t pid;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t above = between(ends[1]);
    ck_assert_int_eq(read(ends[0], &pid, sizeof pid), sizeof pid);
    say_batch(1, &pid, 1);
    say(PREFORK_TAKEN, pid, 4);
    prefork_hear(&s);
    ck_assert_int_eq(s.n, 1); /* it may become a child */
    say(PREFORK_TAKEN, pid, 4);
    ck_assert_int_eq(take(&order, 1, SOON_MS), PREFORK_NO_ANSWER); /* closes everything */
    ck_assert_int_eq(order.pid, 0);
    kill(pid, SIGUSR1);
    ck_assert_int_eq(waitpid(above, &status, 0), above);
    ck_assert_int_eq(WEXITSTATUS(status), SIGUSR1);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

START_TEST(too_few_seeds_are_not_used)
{
    struct spawn_order orders[] = {plain_order(), plain_order()};
    pid_t pid = sleeper();
    ck_assert_int_eq(take(orders, 1, LATE_MS), PREFORK_TOO_FEW); /* none is promised: no wait */
    say_batch(1, &pid, 1);
    ck_assert_int_eq(take(orders, 2, LATE_MS), PREFORK_TOO_FEW);
    say(PREFORK_PROMISE, 2, 2);
    ck_assert_int_eq(take(orders, 2, SOON_MS), PREFORK_TOO_FEW); /* it does not come */
    ck_assert_int_eq(waitpid(pid, NULL, WNOHANG), 0);
    ck_assert_int_gt(s.parent, 0);
}
END_TEST

/* A seed that obeys: it reads an order, checks what came with it, and answers. */
static pid_t obedient(int answers_as)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    struct prefork_order order;
    union {
        char bytes[CMSG_SPACE((1 + SPAWN_N_FDS) * sizeof(int))];
        struct cmsghdr head;
    } control;
    struct iovec data = {.iov_base = &order, .iov_len = sizeof order};
    struct msghdr m = {.msg_iov = &data,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control};
    if (recvmsg(theirs, &m, 0) != sizeof order ||
        CMSG_FIRSTHDR(&m)->cmsg_len != CMSG_LEN(4 * sizeof(int)) || order.fd_of[0] != 1 ||
        order.fd_of[2] != 3 || order.fd_of[3] != SPAWNER_NO_FD)
        _exit(1);
    struct prefork_word w = {.type = PREFORK_TAKEN,
                             .pid = getpid(),
                             .value = answers_as < 0 ? order.local_rank : answers_as};
    send(theirs, &w, sizeof w, 0);
    for (;;)
        pause();
}

START_TEST(each_order_makes_one_seed_a_rank)
{
    struct spawn_order orders[] = {plain_order(), plain_order()};
    pid_t pids[] = {obedient(-1), obedient(-1), sleeper()};
    say_batch(1, pids, 3);
    ck_assert_int_eq(take(orders, 2, LATE_MS), PREFORK_TOOK);
    ck_assert((orders[0].pid == pids[0] && orders[1].pid == pids[1]) ||
              (orders[0].pid == pids[1] && orders[1].pid == pids[0]));
    ck_assert_int_eq(s.n, 1);
    ck_assert(!prefork_know(&s, pids[0])); /* a rank now */
    prefork_close(&s);
    await_killed(pids[2]);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(waitpid(pids[i], NULL, WNOHANG), 0);
        kill(pids[i], SIGKILL);
    }
}
END_TEST

/* What a parent does that is asked: it has another batch, of one. */
static pid_t willing_parent(pid_t seed)
{
    uint64_t wish;
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    if (read(s.wish_fd, &wish, sizeof wish) == sizeof wish)
        say_batch(2, &seed, 1);
    for (;;)
        pause();
}

START_TEST(used_up_seeds_are_requested_from_the_parent)
{
    struct spawn_order order = plain_order();
    pid_t pids[] = {obedient(-1), 0};
    s.wish_fd = eventfd(0, EFD_CLOEXEC);
    ck_assert_int_ge(s.wish_fd, 0);
    say_batch(1, &pids[0], 1);
    ck_assert_int_eq(take(&order, 1, LATE_MS), PREFORK_TOOK);
    pids[1] = obedient(-1);
    pid_t parent = willing_parent(pids[1]);
    ck_assert_int_eq(take(&order, 1, LATE_MS), PREFORK_TOOK);
    ck_assert_int_eq(order.pid, pids[1]);
    for (int i = 0; i < 2; i++)
        kill(pids[i], SIGKILL);
    kill(parent, SIGKILL);
}
END_TEST

START_TEST(the_spawner_does_not_wait_for_a_parent_without_a_promise)
{
    struct spawn_order order = plain_order();
    pid_t pid = obedient(-1);
    s.wish_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ck_assert_int_eq(take(&order, 1, LATE_MS),
                     PREFORK_TOO_FEW); /* it has had none yet: not asked */
    uint64_t wish;
    ck_assert_int_eq(read(s.wish_fd, &wish, sizeof wish), -1);
    say_batch(1, &pid, 1);
    ck_assert_int_eq(take(&order, 1, LATE_MS), PREFORK_TOOK);
    const uint64_t begun_ms = co_now_ms();
    ck_assert_int_eq(take(&order, 1, LATE_MS), PREFORK_TOO_FEW);
    ck_assert_uint_ge(co_now_ms() - begun_ms, PREFORK_PROMISE_MS);
    ck_assert_int_eq(read(s.wish_fd, &wish, sizeof wish), sizeof wish);
    ck_assert_int_gt(s.parent, 0);
    kill(pid, SIGKILL);
}
END_TEST

/* One that answers when a newer batch is there: the parent may have been about to fork it. */
static pid_t overtaken(pid_t newer)
{
    struct prefork_order order;
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    if (recv(theirs, &order, sizeof order, 0) != sizeof order)
        _exit(1);
    say_batch(2, &newer, 1);
    say(PREFORK_TAKEN, getpid(), order.local_rank);
    for (;;)
        pause();
}

START_TEST(a_newer_batch_keeps_seeds_that_have_an_order)
{
    struct spawn_order order = plain_order();
    pid_t newer = sleeper(), left = sleeper(), rank = overtaken(newer);
    const pid_t older[] = {left, rank};
    int status;
    say_batch(1, older, 2);
    ck_assert_int_eq(take(&order, 1, LATE_MS), PREFORK_TOOK);
    ck_assert_int_eq(order.pid, rank);
    await_killed(left);
    kill(rank, SIGUSR1);
    ck_assert_int_eq(waitpid(rank, &status, 0), rank);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
    ck_assert_int_eq(waitpid(newer, NULL, WNOHANG), 0);
}
END_TEST

/* One that reads an order before its announcement is read: its session is its own by then. */
static pid_t unannounced(void)
{
    struct prefork_order order;
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    if (recv(theirs, &order, sizeof order, 0) != sizeof order || setsid() < 0)
        _exit(1);
    pid_t own = getpid();
    say_batch(2, &own, 1);
    say(PREFORK_TAKEN, own, order.local_rank);
    for (;;)
        pause();
}

START_TEST(a_seed_that_takes_an_order_before_it_is_known_becomes_the_rank)
{
    struct spawn_order order = plain_order();
    pid_t known = sleeper(), rank = unannounced();
    int status;
    say_batch(1, &known, 1);
    ck_assert_int_eq(take(&order, 1, LATE_MS), PREFORK_TOOK);
    ck_assert_int_eq(order.pid, rank);
    await_killed(known); /* a newer batch is there */
    prefork_close(&s);
    kill(rank, SIGUSR1);
    ck_assert_int_eq(waitpid(rank, &status, 0), rank);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
}
END_TEST

/* One that takes its time to die: it has memory to give back. */
static pid_t large_sleeper(void)
{
    enum { BYTES = 128 << 20 };
    int ends[2];
    char byte;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *memory = malloc(BYTES);
        if (memory == NULL)
            _exit(1);
        memset(memory, 1, BYTES);
        if (write(ends[1], memory, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ends[1]);
    ck_assert_int_eq(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    return pid;
}

/* One of the older batch may read from the same socket until it is dead. */
START_TEST(no_order_goes_to_a_seed_that_is_being_killed)
{
    struct spawn_order order = plain_order();
    pid_t old = large_sleeper(), new = obedient(-1);
    say_batch(1, &old, 1);
    say_batch(2, &new, 1);
    ck_assert_int_eq(take(&order, 1, LATE_MS), PREFORK_TOOK);
    ck_assert_int_eq(order.pid, new);
    siginfo_t info = {0};
    ck_assert_int_eq(waitid(P_PID, (id_t)old, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    ck_assert_int_eq(info.si_pid, old);
    ck_assert_int_eq(info.si_status, SIGKILL);
    kill(new, SIGKILL);
}
END_TEST

START_TEST(a_timeout_ends_the_parent_and_all_seeds)
{
    struct spawn_order orders[] = {plain_order(), plain_order()};
    pid_t parent = s.parent;
    pid_t pids[] = {sleeper(), sleeper()};
    say_batch(1, pids, 2);
    ck_assert_int_eq(take(orders, 2, SOON_MS), PREFORK_NO_ANSWER);
    ck_assert_int_eq(orders[0].pid, 0);
    await_killed(parent);
    await_killed(pids[0]);
    await_killed(pids[1]);
    ck_assert_int_eq(take(orders, 2, LATE_MS), PREFORK_NO_PARENT);
}
END_TEST

START_TEST(an_answer_for_another_rank_does_not_count)
{
    struct spawn_order order = plain_order();
    pid_t pid = obedient(99);
    say_batch(1, &pid, 1);
    say(PREFORK_TAKEN, getpid(), 4); /* no seed */
    ck_assert_int_eq(take(&order, 1, SOON_MS), PREFORK_NO_ANSWER);
    ck_assert_int_eq(order.pid, 0);
}
END_TEST

START_TEST(without_the_parent_there_are_no_seeds)
{
    pid_t parent = s.parent;
    pid_t pid = sleeper();
    say_batch(1, &pid, 1);
    prefork_hear(&s);
    kill(parent, SIGKILL);
    await_killed(parent);
    ck_assert_int_eq(prefork_forget(&s, parent), PREFORK_PARENT_GONE);
    await_killed(pid);
    ck_assert_int_eq(prefork_forget(&s, pid), PREFORK_NOT_OURS);
    ck_assert_int_eq(s.sock, -1);
}
END_TEST

START_TEST(there_is_one_parent_at_a_time)
{
    struct spawn_order order = plain_order();
    ck_assert_int_eq(prefork_start(&s, &order), -EBUSY);
}
END_TEST

TEST_SUITE(prefork)
{
    Suite *suite = suite_create("preforked processes");
    TCase *tests = tcase_create("preforked processes");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, preforked_processes_are_known_once_they_are_announced);
    tcase_add_test(tests, messages_of_another_form_are_ignored);
    tcase_add_test(tests, a_turn_reads_some_messages_and_the_next_one_the_others);
    tcase_add_test(tests, an_announcement_after_many_messages_is_found);
    tcase_add_test(tests, messages_that_still_come_do_not_extend_a_deadline);
    tcase_add_test(tests, a_complete_newer_batch_ends_the_previous_one);
    tcase_add_test(tests, seeds_above_the_limit_are_killed);
    tcase_add_test(tests, a_pid_outside_the_session_of_the_parent_is_not_believed);
    tcase_add_test(tests, only_a_child_is_killed_or_made_a_rank);
    tcase_add_test(tests, too_few_seeds_are_not_used);
    tcase_add_test(tests, each_order_makes_one_seed_a_rank);
    tcase_add_test(tests, used_up_seeds_are_requested_from_the_parent);
    tcase_add_test(tests, the_spawner_does_not_wait_for_a_parent_without_a_promise);
    tcase_add_test(tests, a_newer_batch_keeps_seeds_that_have_an_order);
    tcase_add_test(tests, a_seed_that_takes_an_order_before_it_is_known_becomes_the_rank);
    tcase_add_test(tests, no_order_goes_to_a_seed_that_is_being_killed);
    tcase_add_test(tests, a_timeout_ends_the_parent_and_all_seeds);
    tcase_add_test(tests, an_answer_for_another_rank_does_not_count);
    tcase_add_test(tests, without_the_parent_there_are_no_seeds);
    tcase_add_test(tests, there_is_one_parent_at_a_time);
    suite_add_tcase(suite, tests);
    return suite;
}
