/* A query of torch's worker server, over real sockets. The server is a mock. */
#include "launcher/torch/torch_query.h"
#include "launcher/torch/torch_trace.h"

#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define OK        "HTTP/1.1 200 OK\r\nContent-Length: "
#define NOT_FOUND "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
#define ENTRY(number)                                                                              \
    "{\"entries\":[{\"process_group\":[\"0\",\"default_pg\"],\"collective_seq_id\":" #number "}]}"

static char dir[] = "/tmp/test_torch_query_XXXXXX";
static char path[64];
static int listener = -1;
static struct torch_query *q;
static uint64_t now_ms; /* virtual */

static void set_up(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(dir + sizeof dir - 7, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/torch.1", dir);
    strcpy(a.sun_path, path);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(listener, 8), 0);
    now_ms = 5000;
    ck_assert_int_eq(torch_query_begin(path, true, now_ms, &q), 0);
}

static void tear_down(void)
{
    torch_query_destroy(q);
    q = NULL;
    if (listener >= 0)
        close(listener);
    unlink(path);
    rmdir(dir);
}

/* The server takes the next connection, and reads the request for a page. */
static int take_request(const char *page)
{
    char text[256], expected[128];
    snprintf(expected, sizeof expected, "POST /handler/%s HTTP/1.1\r\n", page);
    ck_assert(torch_query_look(q, now_ms));
    int fd = accept(listener, NULL, NULL);
    ck_assert_int_ge(fd, 0);
    ck_assert(torch_query_look(q, now_ms));
    const ssize_t n = read(fd, text, sizeof text - 1);
    ck_assert_int_gt(n, 4);
    text[n] = '\0';
    ck_assert_int_eq(strncmp(text, expected, strlen(expected)), 0);
    ck_assert_str_eq(text + n - 4, "\r\n\r\n");
    return fd;
}

static bool answer(const char *page, const char *text)
{
    int fd = take_request(page);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    const bool may_come = torch_query_look(q, now_ms);
    close(fd);
    return may_come;
}

START_TEST(all_pages_are_asked_for)
{
    ck_assert(
        answer("dump_traceback", OK "45\r\n\r\nCurrent thread\n  <no Python frame>\n\nThread 1\n"));
    ck_assert(answer("fr_trace_json", OK "72\r\n\r\n" ENTRY(7)));
    ck_assert(!answer("dump_nccl_trace_json", NOT_FOUND));
    ck_assert(!torch_query_look(q, now_ms));
    char *stack = torch_query_take_stack(q);
    ck_assert_str_eq(stack, "Thread 1\n");
    free(stack);
    struct torch_trace *trace = torch_query_take_trace(q);
    ck_assert_ptr_nonnull(trace);
    ck_assert_uint_eq(torch_trace_total(trace), 7);
    free(trace);
    ck_assert_ptr_null(torch_query_take_stack(q));
    ck_assert_ptr_null(torch_query_take_trace(q));
}
END_TEST

START_TEST(the_calls_alone_may_be_asked_for)
{
    torch_query_destroy(q);
    ck_assert_int_eq(torch_query_begin(path, false, now_ms, &q), 0);
    ck_assert(answer("fr_trace_json", OK "72\r\n\r\n" ENTRY(7)));
    ck_assert(!answer("dump_nccl_trace_json", NOT_FOUND));
}
END_TEST

START_TEST(a_reply_may_arrive_in_parts)
{
    int fd = take_request("dump_traceback");
    ck_assert_int_eq(write(fd, OK "4\r\n\r\nab", strlen(OK) + 7), (ssize_t)strlen(OK) + 7);
    ck_assert(torch_query_look(q, now_ms));
    ck_assert_int_eq(write(fd, "cd", 2), 2);
    ck_assert(torch_query_look(q, now_ms));
    close(fd);
    char *stack = torch_query_take_stack(q);
    ck_assert_str_eq(stack, "abcd");
    free(stack);
}
END_TEST

START_TEST(bad_replies_are_left_out)
{
    ck_assert(answer("dump_traceback", "what?\r\n\r\n"));
    ck_assert(answer("fr_trace_json", OK "1\r\n\r\nx"));
    ck_assert(!answer("dump_nccl_trace_json", "HTTP/1.1 500 Error\r\nContent-Length: 1\r\n\r\nx"));
    ck_assert_ptr_null(torch_query_take_stack(q));
    struct torch_trace *trace = torch_query_take_trace(q);
    ck_assert(trace == NULL || trace->n == 0);
    free(trace);
}
END_TEST

START_TEST(the_wait_for_a_silent_server_ends)
{
    int fd = take_request("dump_traceback");
    ck_assert(torch_query_look(q, now_ms + TORCH_QUERY_MS - 1));
    ck_assert(!torch_query_look(q, now_ms + TORCH_QUERY_MS));
    ck_assert(!torch_query_look(q, now_ms + TORCH_QUERY_MS + 1));
    close(fd);
}
END_TEST

START_TEST(what_has_arrived_before_the_deadline_is_kept)
{
    ck_assert(answer("dump_traceback", OK "1\r\n\r\na"));
    ck_assert(!torch_query_look(q, now_ms + TORCH_QUERY_MS));
    char *stack = torch_query_take_stack(q);
    ck_assert_str_eq(stack, "a");
    free(stack);
}
END_TEST

START_TEST(the_wait_for_a_process_that_has_ended_ends)
{
    close(listener);
    listener = -1;
    int n = 0;
    while (torch_query_look(q, now_ms))
        ck_assert_int_lt(n++, 10);
    ck_assert_ptr_null(torch_query_take_stack(q));
}
END_TEST

START_TEST(a_path_that_is_too_long_is_refused)
{
    char name[256];
    struct torch_query *other = NULL;
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    ck_assert_int_eq(torch_query_begin(name, true, 0, &other), -ENAMETOOLONG);
    ck_assert_ptr_null(other);
    ck_assert(!torch_query_look(NULL, 0));
    torch_query_end(NULL);
    torch_query_destroy(NULL);
}
END_TEST

TEST_SUITE(torch_query)
{
    Suite *suite = suite_create("torch_query");
    TCase *c = tcase_create("torch_query");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, all_pages_are_asked_for);
    tcase_add_test(c, the_calls_alone_may_be_asked_for);
    tcase_add_test(c, a_reply_may_arrive_in_parts);
    tcase_add_test(c, bad_replies_are_left_out);
    tcase_add_test(c, the_wait_for_a_silent_server_ends);
    tcase_add_test(c, what_has_arrived_before_the_deadline_is_kept);
    tcase_add_test(c, the_wait_for_a_process_that_has_ended_ends);
    tcase_add_test(c, a_path_that_is_too_long_is_refused);
    suite_add_tcase(suite, c);
    return suite;
}
