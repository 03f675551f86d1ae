/* Our end of a rank's socket, over real sockets: what it receives, and that it receives nothing
 * after its end. */
#include "launcher/generation/rank_line.h"

#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANK = 7 };

static uv_loop_t loop;
static struct rank_line *line;
static int rank_fd; /* -1: closed */
static int n_events, last_events, n_closed;
static bool closes; /* at the first event */

static void on_event(void *arg, int rank, int events)
{
    ck_assert_ptr_eq(arg, &n_events);
    ck_assert_int_eq(rank, RANK);
    n_events++;
    last_events = events;
    if (closes)
        rank_line_close(&line);
}

static void on_closed(void *arg)
{
    ck_assert_ptr_eq(arg, &n_events);
    n_closed++;
}

static const struct rank_line_owner owner = {
    .on_event = on_event, .on_closed = on_closed, .arg = &n_events};

static void set_up(void)
{
    n_events = last_events = n_closed = 0;
    closes = false;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(rank_line_open(&loop, SOCK_STREAM, -1, RANK, &owner, &line, &rank_fd), 0);
}

static void tear_down(void)
{
    rank_line_close(&line);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(n_closed, 1); /* once, on either way to close */
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    if (rank_fd >= 0)
        close(rank_fd);
}

/* What has been sent is there already: sockets of one machine. */
static void look(void)
{
    for (int i = 0; i < 3; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

START_TEST(data_of_a_rank_is_reported)
{
    char bytes[8];
    look();
    ck_assert_int_eq(n_events, 0);
    ck_assert_int_eq(send(rank_fd, "hello", 5, 0), 5);
    uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(n_events, 1);
    ck_assert_int_eq(last_events, UV_READABLE);
    ck_assert_int_eq(recv(rank_line_fd(line), bytes, sizeof bytes, 0), 5);
    ck_assert_int_eq(recv(rank_line_fd(line), bytes, sizeof bytes, 0), -1); /* does not wait */
    ck_assert_int_eq(errno, EAGAIN);
}
END_TEST

START_TEST(the_end_of_a_ranks_socket_is_reported)
{
    char byte;
    close(rank_fd);
    rank_fd = -1;
    uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(last_events & UV_READABLE, UV_READABLE);
    ck_assert_int_eq(recv(rank_line_fd(line), &byte, 1, 0), 0);
}
END_TEST

START_TEST(space_in_the_socket_is_reported_while_it_is_watched_for)
{
    rank_line_watch(line, UV_READABLE | UV_WRITABLE);
    uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(last_events, UV_WRITABLE);
    rank_line_watch(line, UV_READABLE);
    n_events = 0;
    look();
    ck_assert_int_eq(n_events, 0);
}
END_TEST

START_TEST(a_closed_line_closes_at_once_and_reports_nothing_more)
{
    char byte;
    ck_assert_int_eq(send(rank_fd, "hello", 5, 0), 5);
    rank_line_close(&line);
    ck_assert_ptr_null(line);
    ck_assert_int_eq(send(rank_fd, "hello", 5, MSG_NOSIGNAL), -1);
    ck_assert_int_eq(n_closed, 0); /* the loop reports the close */
    look();
    ck_assert_int_eq(n_events, 0);
    ck_assert_int_eq(n_closed, 1);
    ck_assert_int_le(recv(rank_fd, &byte, 1, MSG_DONTWAIT), 0);
}
END_TEST

START_TEST(it_may_be_closed_in_its_callback)
{
    closes = true;
    ck_assert_int_eq(send(rank_fd, "hello", 5, 0), 5);
    look();
    ck_assert_int_eq(n_events, 1);
    ck_assert_ptr_null(line);
}
END_TEST

START_TEST(a_descriptor_that_cannot_be_watched_is_closed)
{
    struct rank_line *none = NULL;
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(rank_line_open(&loop, SOCK_STREAM, fd, RANK, &owner, &none, NULL), -EPERM);
    ck_assert_ptr_null(none);
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
}
END_TEST

TEST_SUITE(rank_line)
{
    Suite *s = suite_create("rank_line");
    TCase *t = tcase_create("rank_line");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, data_of_a_rank_is_reported);
    tcase_add_test(t, the_end_of_a_ranks_socket_is_reported);
    tcase_add_test(t, space_in_the_socket_is_reported_while_it_is_watched_for);
    tcase_add_test(t, a_closed_line_closes_at_once_and_reports_nothing_more);
    tcase_add_test(t, it_may_be_closed_in_its_callback);
    tcase_add_test(t, a_descriptor_that_cannot_be_watched_is_closed);
    suite_add_tcase(s, t);
    return s;
}
