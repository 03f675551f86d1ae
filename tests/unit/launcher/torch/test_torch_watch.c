/* When ranks have called their last collectives. The server is a mock. */
#include "launcher/torch/torch_watch.h"

#include "launcher/torch/torch_query.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const uint64_t second_ns = 1000000000;

static char dir[] = "/tmp/test_torch_watch_XXXXXX";
static char path[64];
static int listener;
static struct torch_watch *w;
static uint64_t now_ms, now_ns; /* virtual */

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
    w = torch_watch_create(2);
    ck_assert_ptr_nonnull(w);
    now_ms = 100000;
    now_ns = 5000 * second_ns;
}

static void tear_down(void)
{
    torch_watch_destroy(w);
    close(listener);
    unlink(path);
    rmdir(dir);
}

static void pass(uint64_t s)
{
    now_ms += s * 1000;
    now_ns += s * second_ns;
}

/* The server takes the next connection, and answers it; the watch reads that. */
static void answer(const char *status, const char *body)
{
    char text[512];
    int fd = accept(listener, NULL, NULL);
    ck_assert_int_ge(fd, 0);
    const int n = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s",
                           status, strlen(body), body);
    ck_assert_int_eq(write(fd, text, (size_t)n), n);
    torch_watch_look(w, now_ms, now_ns);
    close(fd);
}

/* Rank 1 answers that its call of this number was made then. */
static void ask(int number, uint64_t created_ns)
{
    char body[256];
    torch_watch_ask(w, 1, path, now_ms);
    ck_assert(torch_watch_is_busy(w));
    torch_watch_look(w, now_ms, now_ns);
    snprintf(body, sizeof body,
             "{\"entries\":[{\"process_group\":[\"0\",\"default_pg\"],\"collective_seq_id\":%d,"
             "\"time_created_ns\":%llu}]}",
             number, (unsigned long long)created_ns);
    answer("200 OK", body);
    answer("404 Not Found", "");
    ck_assert(!torch_watch_is_busy(w));
}

START_TEST(the_time_of_the_last_call_is_known)
{
    ck_assert_uint_eq(torch_watch_moved_ms(w, 1), 0);
    ask(7, now_ns - 20 * second_ns);
    ck_assert_uint_eq(torch_watch_moved_ms(w, 1), now_ms - 20000);
    ck_assert_uint_eq(torch_watch_moved_ms(w, 0), 0);
    pass(10);
    ask(7, now_ns - 30 * second_ns);
    ck_assert_uint_eq(torch_watch_moved_ms(w, 1), now_ms - 30000);
    pass(10);
    ask(8, now_ns - second_ns);
    ck_assert_uint_eq(torch_watch_moved_ms(w, 1), now_ms - 1000);
    torch_watch_renew(w);
    ck_assert_uint_eq(torch_watch_moved_ms(w, 1), 0);
}
END_TEST

START_TEST(a_clock_that_is_set_does_not_hide_calls)
{
    ask(7, now_ns - second_ns);
    const uint64_t answered_ms = now_ms;
    pass(10);
    ask(8, 1); /* as if in 1970 */
    ck_assert_uint_eq(torch_watch_moved_ms(w, 1), answered_ms);
}
END_TEST

START_TEST(a_clock_that_is_set_does_not_make_calls)
{
    ask(7, now_ns + 1000 * second_ns);
    const uint64_t moved_ms = now_ms;
    ck_assert_uint_eq(torch_watch_moved_ms(w, 1), moved_ms);
    pass(10);
    ask(7, now_ns + 1000 * second_ns);
    ck_assert_uint_eq(torch_watch_moved_ms(w, 1), moved_ms);
}
END_TEST

START_TEST(ranks_without_a_call_or_an_answer_have_no_time)
{
    ask(0, now_ns);
    ck_assert_uint_eq(torch_watch_moved_ms(w, 1), 0);
    torch_watch_ask(w, 1, path, now_ms);
    torch_watch_look(w, now_ms, now_ns);
    pass(TORCH_QUERY_MS / 1000 + 1);
    torch_watch_look(w, now_ms, now_ns);
    ck_assert(!torch_watch_is_busy(w));
    ck_assert_uint_eq(torch_watch_moved_ms(w, 1), 0);
    torch_watch_ask(w, 0, "/nonexistent", now_ms);
    torch_watch_look(w, now_ms, now_ns);
    ck_assert(!torch_watch_is_busy(w));
}
END_TEST

TEST_SUITE(torch_watch)
{
    Suite *suite = suite_create("torch_watch");
    TCase *c = tcase_create("torch_watch");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, the_time_of_the_last_call_is_known);
    tcase_add_test(c, a_clock_that_is_set_does_not_hide_calls);
    tcase_add_test(c, a_clock_that_is_set_does_not_make_calls);
    tcase_add_test(c, ranks_without_a_call_or_an_answer_have_no_time);
    suite_add_tcase(suite, c);
    return suite;
}
