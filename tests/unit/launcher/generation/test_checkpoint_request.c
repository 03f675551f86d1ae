/* A node's ranks are asked to save their state, and answer, over real sockets. */
#include "launcher/generation/checkpoint_request.h"
#include "tests/support/suite.h"

#include <check.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

enum { N = 3 };

static uv_loop_t loop;
static struct checkpoint_request *s;
static int fds[N]; /* the ranks' ends; -1: closed */
static int n_calls;

static void on_saved(void *arg)
{
    ck_assert_ptr_eq(arg, &n_calls);
    ck_assert(checkpoint_request_all_saved(s));
    n_calls++;
}

static void set_up(void)
{
    n_calls = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(checkpoint_request_create(&loop, N, on_saved, &n_calls, &s), 0);
    memset(fds, 0xff, sizeof fds);
}

static void tear_down(void)
{
    checkpoint_request_close(s);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    for (int i = 0; i < N; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static void add_all(void)
{
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(checkpoint_request_add(s, i, &fds[i]), 0);
}

/* What has been sent is there already: sockets of one machine. */
static void look(void)
{
    for (int i = 0; i < 3; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

static void answer(int rank)
{
    ck_assert_int_eq(send(fds[rank], "saved\n", 6, MSG_NOSIGNAL), 6);
    look();
}

static bool is_asked(int rank)
{
    struct pollfd p = {.fd = fds[rank], .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

START_TEST(every_rank_is_asked_once_and_must_answer)
{
    add_all();
    ck_assert(!is_asked(0));
    ck_assert(checkpoint_request_ask(s));
    ck_assert(!checkpoint_request_ask(s));
    char bytes[8];
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(recv(fds[i], bytes, sizeof bytes, 0), 1);
    answer(2);
    answer(0);
    answer(2);
    ck_assert(!checkpoint_request_all_saved(s));
    answer(1);
    ck_assert(checkpoint_request_all_saved(s));
    answer(1);
    ck_assert_int_eq(n_calls, 1);
}
END_TEST

START_TEST(a_save_before_the_request_does_not_count)
{
    add_all();
    for (int i = 0; i < N; i++)
        answer(i);
    checkpoint_request_ask(s);
    look();
    ck_assert(!checkpoint_request_all_saved(s));
    for (int i = 0; i < N; i++)
        answer(i);
    ck_assert_int_eq(n_calls, 1);
}
END_TEST

START_TEST(a_rank_that_starts_later_receives_the_request)
{
    ck_assert_int_eq(checkpoint_request_add(s, 0, &fds[0]), 0);
    checkpoint_request_ask(s);
    ck_assert_int_eq(checkpoint_request_add(s, 1, &fds[1]), 0);
    ck_assert(is_asked(0) && is_asked(1));
}
END_TEST

START_TEST(an_exited_rank_has_not_answered)
{
    add_all();
    close(fds[1]);
    fds[1] = -1;
    look();
    checkpoint_request_ask(s);
    answer(0);
    answer(2);
    ck_assert(!checkpoint_request_all_saved(s));
}
END_TEST

START_TEST(an_answer_just_before_the_exit_counts)
{
    add_all();
    checkpoint_request_ask(s);
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(send(fds[i], "x", 1, MSG_NOSIGNAL), 1);
        close(fds[i]);
        fds[i] = -1;
    }
    look();
    ck_assert_int_eq(n_calls, 1);
}
END_TEST

/* The rank sends much, and does not read what it receives. */
START_TEST(endless_output_of_a_rank_changes_nothing)
{
    static const uint8_t much[1 << 20];
    add_all();
    checkpoint_request_ask(s);
    for (size_t sent = 0; sent < sizeof much;) {
        ssize_t n = send(fds[0], much, sizeof much - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        look();
    }
    ck_assert(!checkpoint_request_all_saved(s));
    answer(1);
    answer(2);
    ck_assert_int_eq(n_calls, 1);
}
END_TEST

START_TEST(without_ranks_nothing_is_saved)
{
    ck_assert(!checkpoint_request_all_saved(NULL));
    checkpoint_request_close(NULL);
}
END_TEST

START_TEST(a_replacement_rank_is_asked_again)
{
    int next;
    add_all();
    ck_assert(checkpoint_request_ask(s));
    for (int i = 0; i < N - 1; i++)
        answer(i);
    look();
    ck_assert_int_eq(checkpoint_request_add(s, 0, &next),
                     0); /* what was saved died with it, perhaps */
    close(fds[0]);
    fds[0] = next;
    answer(N - 1);
    look();
    ck_assert(!checkpoint_request_all_saved(s));
    struct pollfd p = {.fd = next, .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 0), 1); /* the question is there */
    answer(0);
    look();
    ck_assert(checkpoint_request_all_saved(s));
    ck_assert_int_eq(n_calls, 1);
}
END_TEST

START_TEST(a_dropped_rank_is_not_waited_for)
{
    add_all();
    checkpoint_request_ask(s);
    answer(1);
    checkpoint_request_drop(s, 1);
    checkpoint_request_renew(s);
    checkpoint_request_let_in(s, 0);
    checkpoint_request_let_in(s, 2);
    checkpoint_request_ask(s);
    answer(0);
    ck_assert(!checkpoint_request_all_saved(
        s)); /* the state that the dropped rank saved does not count for another one */
    answer(2);
    ck_assert_int_eq(n_calls, 1);
}
END_TEST

TEST_SUITE(checkpoint_request)
{
    Suite *suite = suite_create("checkpoint_request");
    TCase *t = tcase_create("checkpoint_request");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, every_rank_is_asked_once_and_must_answer);
    tcase_add_test(t, a_save_before_the_request_does_not_count);
    tcase_add_test(t, a_rank_that_starts_later_receives_the_request);
    tcase_add_test(t, an_exited_rank_has_not_answered);
    tcase_add_test(t, an_answer_just_before_the_exit_counts);
    tcase_add_test(t, endless_output_of_a_rank_changes_nothing);
    tcase_add_test(t, without_ranks_nothing_is_saved);
    tcase_add_test(t, a_replacement_rank_is_asked_again);
    tcase_add_test(t, a_dropped_rank_is_not_waited_for);
    suite_add_tcase(suite, t);
    return suite;
}
