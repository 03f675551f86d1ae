/* The job's socket, over a real one: good clients, slow ones, and too many. */
#include "common/error.h"
#include "common/tree.h"
#include "console/console.h"
#include "console/job_directory.h"
#include "console/job_request.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

enum { SOON_MS = 20, DEADLINE_MS = 60000, BIG_BYTES = 4 << 20 };

static uv_loop_t loop;
static struct console *console;
static char folder[64];
static struct console_client *held; /* waits for its answer */
static int n_requests, n_gone;
static bool holds, is_big;

static void on_request(void *arg, struct console_client *client, const struct job_request *r)
{
    char *text = NULL;
    ck_assert_ptr_eq(arg, &n_requests);
    n_requests++;
    if (holds) {
        held = client;
        return;
    }
    if (is_big) {
        text = malloc(BIG_BYTES + 1);
        memset(text, 'x', BIG_BYTES);
        text[BIG_BYTES] = '\0';
    } else {
        ck_assert_int_ge(asprintf(&text, "answer %d", (int)r->rank), 0);
    }
    console_answer(client, text);
}

static void on_gone(void *arg, struct console_client *client)
{
    (void)arg;
    ck_assert_ptr_eq(client, held);
    held = NULL;
    n_gone++;
}

static void open_console(uint64_t idle_ms)
{
    struct co_error err = {0};
    const struct console_opts opts = {
        .idle_ms = idle_ms, .on_request = on_request, .on_gone = on_gone, .arg = &n_requests};
    ck_assert_msg(console_open(&loop, folder, &opts, &console, &err) == 0, "%s", err.text);
}

static void set_up(void)
{
    n_requests = n_gone = 0;
    holds = is_big = false;
    held = NULL;
    console = NULL;
    signal(SIGPIPE, SIG_IGN);
    snprintf(folder, sizeof folder, "/tmp/ddprun-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

static void tear_down(void)
{
    console_close(console);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    co_tree_remove(folder);
}

static int connect_one(void)
{
    struct co_error err = {0};
    int fd = job_directory_connect(folder, JOB_DIRECTORY_OURS, &err);
    ck_assert_msg(fd >= 0, "%s", err.text);
    return fd;
}

static void say(int fd, const char *text)
{
    ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static void wake(uv_timer_t *timer)
{
    (void)timer;
}

/* Let the loop run until fd can be read, or was closed; fails when that never happens. */
static void await_readable(int fd)
{
    uv_timer_t timer;
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, wake, 1, 1);
    uint64_t end_ms = uv_now(&loop) + DEADLINE_MS;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 0) == 0) {
        uv_run(&loop, UV_RUN_ONCE);
        ck_assert_uint_lt(uv_now(&loop), end_ms);
    }
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
}

static void hear(int fd, const char *wanted)
{
    char got[256];
    size_t n = 0;
    while (n < strlen(wanted)) {
        await_readable(fd);
        ssize_t more = recv(fd, got + n, sizeof got - 1 - n, 0);
        ck_assert_int_gt(more, 0);
        n += (size_t)more;
    }
    got[n] = '\0';
    ck_assert_str_eq(got, wanted);
}

static void await_end(int fd)
{
    char byte;
    await_readable(fd);
    ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
    close(fd);
}

START_TEST(requests_are_answered_one_after_the_other)
{
    open_console(0);
    int fd = connect_one();
    say(fd, "status\n");
    hear(fd, "answer 0\n");
    say(fd, "logs 1 0\nlogs 2 0\nlogs");
    hear(fd, "answer 1\nanswer 2\n");
    say(fd, " 3 0\n");
    hear(fd, "answer 3\n");
    close(fd);
}
END_TEST

START_TEST(the_next_request_waits_for_a_late_answer)
{
    open_console(0);
    int fd = connect_one();
    holds = true;
    say(fd, "status\nlogs 2 0\n");
    while (held == NULL)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(n_requests, 1);
    holds = false;
    console_answer(held, strdup("late"));
    hear(fd, "late\nanswer 2\n");
    close(fd);
}
END_TEST

START_TEST(a_client_that_closes_while_it_waits_is_forgotten)
{
    open_console(0);
    int fd = connect_one();
    holds = true;
    say(fd, "status\n");
    while (held == NULL)
        uv_run(&loop, UV_RUN_ONCE);
    close(fd);
    while (n_gone == 0)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_ptr_null(held);
}
END_TEST

START_TEST(an_invalid_request_gets_an_error)
{
    open_console(0);
    int fd = connect_one();
    say(fd, "stop \"all\" 1\nstatus\n");
    hear(fd, "{\"v\":1,\"error\":\"invalid value '\\\"all\\\"' for stop: expected job or "
             "node\"}\nanswer 0\n");
    ck_assert_int_eq(n_requests, 1);
    close(fd);
}
END_TEST

START_TEST(a_line_longer_than_any_request_ends_the_connection)
{
    char text[JOB_REQUEST_BYTES + 1];
    open_console(0);
    int fd = connect_one();
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    say(fd, text);
    await_end(fd);
    ck_assert_int_eq(n_requests, 0);
}
END_TEST

START_TEST(a_silent_client_is_dropped)
{
    open_console(SOON_MS);
    int silent = connect_one(), halting = connect_one();
    say(halting, "stat");
    await_end(silent);
    await_end(halting);
}
END_TEST

START_TEST(a_client_that_does_not_read_its_answer_is_dropped)
{
    open_console(SOON_MS);
    int fd = connect_one();
    is_big = true;
    say(fd, "status\n");
    char bytes[65536];
    size_t n = 0;
    ssize_t more;
    static uv_timer_t timer; /* nothing is read before the other side has ended the connection; the
                                loop closes it after this function */
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, wake, 1, 1);
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    uint64_t end_ms = uv_now(&loop) + DEADLINE_MS;
    while (poll(&p, 1, 0) == 0) {
        uv_run(&loop, UV_RUN_ONCE);
        ck_assert_uint_lt(uv_now(&loop), end_ms);
    }
    uv_close((uv_handle_t *)&timer, NULL);
    while ((more = recv(fd, bytes, sizeof bytes, 0)) > 0)
        n += (size_t)more;
    ck_assert_uint_lt(n, BIG_BYTES);
    close(fd);
}
END_TEST

START_TEST(a_long_answer_arrives_completely)
{
    open_console(0);
    int fd = connect_one();
    is_big = true;
    say(fd, "status\n");
    char bytes[65536];
    size_t n = 0;
    while (n < BIG_BYTES + 1) {
        await_readable(fd);
        ssize_t more = recv(fd, bytes, sizeof bytes, 0);
        ck_assert_int_gt(more, 0);
        n += (size_t)more;
    }
    ck_assert_uint_eq(n, BIG_BYTES + 1);
    close(fd);
}
END_TEST

START_TEST(clients_above_the_limit_wait_for_a_free_place)
{
    int fds[CONSOLE_MAX_CLIENTS];
    open_console(0);
    for (int i = 0; i < CONSOLE_MAX_CLIENTS; i++) {
        fds[i] = connect_one();
        say(fds[i], "status\n");
        hear(fds[i], "answer 0\n");
    }
    int late = connect_one();
    say(late, "logs 7 0\n");
    for (int i = 0; i < 100; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(n_requests, CONSOLE_MAX_CLIENTS);
    close(fds[3]);
    hear(late, "answer 7\n");
    close(late);
    for (int i = 0; i < CONSOLE_MAX_CLIENTS; i++)
        if (i != 3)
            close(fds[i]);
}
END_TEST

START_TEST(it_closes_with_clients_in_every_state)
{
    open_console(0);
    int silent = connect_one(), waits = connect_one(), slow = connect_one();
    is_big = true;
    say(slow, "status\n");
    while (n_requests < 1)
        uv_run(&loop, UV_RUN_ONCE);
    holds = true;
    say(waits, "status\n");
    while (n_requests < 2)
        uv_run(&loop, UV_RUN_ONCE);
    console_close(console);
    console = NULL;
    ck_assert_int_eq(n_gone, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(job_directory_connect(folder, JOB_DIRECTORY_OURS, NULL), -ECONNREFUSED);
    close(silent);
    close(waits);
    close(slow);
}
END_TEST

TEST_SUITE(console)
{
    Suite *suite = suite_create("console");
    TCase *tc = tcase_create("console");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, requests_are_answered_one_after_the_other);
    tcase_add_test(tc, the_next_request_waits_for_a_late_answer);
    tcase_add_test(tc, a_client_that_closes_while_it_waits_is_forgotten);
    tcase_add_test(tc, an_invalid_request_gets_an_error);
    tcase_add_test(tc, a_line_longer_than_any_request_ends_the_connection);
    tcase_add_test(tc, a_silent_client_is_dropped);
    tcase_add_test(tc, a_client_that_does_not_read_its_answer_is_dropped);
    tcase_add_test(tc, a_long_answer_arrives_completely);
    tcase_add_test(tc, clients_above_the_limit_wait_for_a_free_place);
    tcase_add_test(tc, it_closes_with_clients_in_every_state);
    suite_add_tcase(suite, tc);
    return suite;
}
