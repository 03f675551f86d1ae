/* A query of NCCL's RAS, over real sockets. The server is a mock: it answers with recordings that
 * follow NCCL's documented schema, or as no NCCL would. */
#include "launcher/diagnosis/ras_query.h"
#include "tests/support/cases.h"
#include "tests/support/suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO "SERVER PROTOCOL 2\nOK\nOK\n"

static int listener = -1;
static char address[32];
static struct ras_query *q;
static uint64_t now_ms; /* virtual */
static int n_freed;
static char recording[65536];

static void set_up(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(listener, 8), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&a, &n), 0);
    snprintf(address, sizeof address, "localhost:%u", (unsigned)ntohs(a.sin_port));
    now_ms = 5000;
    n_freed = 0;
}

static void tear_down(void)
{
    ras_query_destroy(q);
    q = NULL;
    if (listener >= 0)
        close(listener);
}

static int rank_of(void *arg, const char *host, pid_t pid)
{
    (void)arg;
    return strcmp(host, "127.0.0.1") == 0 && pid >= 4711 && pid < 4714 ? (int)pid - 4711 : -1;
}

static void on_free(void *arg)
{
    (void)arg;
    n_freed++;
}

static void begin(void)
{
    const struct ras_query_opts opts = {.address = address, .rank_of = rank_of, .on_free = on_free};
    ck_assert_int_eq(ras_query_begin(&opts, now_ms, &q), 0);
}

/* The server takes the connection, and reads all requests. */
static int accept_query(void)
{
    static const char expected[] = "CLIENT PROTOCOL 2\nTIMEOUT 2\nSET FORMAT json\nSTATUS\n";
    char text[256];
    size_t n = 0;
    ck_assert(ras_query_look(q, now_ms));
    int fd = accept(listener, NULL, NULL);
    ck_assert_int_ge(fd, 0);
    while (n < sizeof expected - 1) {
        struct pollfd in = {.fd = fd, .events = POLLIN};
        if (poll(&in, 1, 1) == 0) { /* one that was made just now sends at the next look */
            ck_assert(ras_query_look(q, now_ms));
            continue;
        }
        ssize_t got = read(fd, text + n, sizeof text - n);
        ck_assert_int_gt(got, 0);
        n += (size_t)got;
    }
    ck_assert_mem_eq(text, expected, sizeof expected - 1);
    return fd;
}

static void say(int fd, const char *text)
{
    for (size_t n = strlen(text); n > 0;) {
        ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
        ck_assert_int_gt(sent, 0);
        text += sent;
        n -= (size_t)sent;
    }
}

/* Until the query is over, in as much real time as that takes. */
static const char *outcome(void)
{
    static char text[4096];
    for (int i = 0; ras_query_look(q, now_ms); i++) {
        ck_assert_int_lt(i, 60000);
        poll(NULL, 0, 1);
    }
    FILE *out = fmemopen(text, sizeof text, "w");
    fputc('\0', out);
    rewind(out);
    ras_query_print(q, out);
    fclose(out);
    return text;
}

static const char *read_recording(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/ras", getenv("TEST_DATA"));
    cases_read(path, name, recording, sizeof recording);
    return recording;
}

static void answer(const char *text)
{
    int fd = accept_query();
    say(fd, HELLO);
    say(fd, text);
    close(fd);
}

/* The first answer was taken: the query rests, and then asks again. */
static void await_rest(void)
{
    while (ras_query_report(q) == NULL) {
        ck_assert(ras_query_look(q, now_ms));
        poll(NULL, 0, 1);
    }
    struct pollfd next = {.fd = listener, .events = POLLIN};
    now_ms += RAS_APART_MS - 1;
    ck_assert(ras_query_look(q, now_ms));
    ck_assert_int_eq(poll(&next, 1, 0), 0);
    now_ms++;
}

START_TEST(a_rank_that_two_answers_show_lags)
{
    begin();
    int fd = accept_query();
    say(fd, HELLO);
    say(fd, read_recording("lagging.json"));
    ck_assert(ras_query_look(q, now_ms)); /* its end has not come */
    close(fd);
    await_rest();
    answer(recording);
    ck_assert_ptr_nonnull(
        strstr(outcome(), "rank 1 (pid 4712) lags: it has started 40 AllReduce, others 41"));
    ck_assert_uint_eq(ras_query_report(q)->apart_ms, RAS_APART_MS);
    ras_query_destroy(q);
    q = NULL;
    ck_assert_int_eq(n_freed, 1);
}
END_TEST

START_TEST(a_rank_that_has_caught_up_does_not_lag)
{
    begin();
    answer(read_recording("lagging.json"));
    await_rest();
    *strstr(strstr(recording, "4712"), "40") = '5';
    answer(recording);
    ck_assert_ptr_nonnull(strstr(outcome(), "; no rank lags: they start collectives"));
}
END_TEST

START_TEST(without_a_second_answer_a_rank_may_lag)
{
    begin();
    answer(read_recording("lagging.json"));
    await_rest();
    int fd = accept_query();
    say(fd, HELLO "{");
    close(fd);
    ck_assert_ptr_nonnull(strstr(outcome(), "rank 1 (pid 4712) may lag: it has started 40"));
    ck_assert_ptr_nonnull(strstr(ras_query_trouble(q), "its answer is not JSON"));
}
END_TEST

START_TEST(an_answer_may_arrive_byte_by_byte)
{
    begin();
    int fd = accept_query();
    for (const char *c = HELLO; *c != '\0'; c++) {
        ck_assert_int_eq(send(fd, c, 1, 0), 1);
        ck_assert(ras_query_look(q, now_ms));
    }
    say(fd, read_recording("equal.json"));
    close(fd);
    ck_assert_ptr_nonnull(strstr(outcome(), "no rank lags"));
}
END_TEST

START_TEST(without_a_listener_nothing_is_printed)
{
    close(listener);
    listener = -1;
    begin();
    ck_assert_str_eq(outcome(), "");
    ck_assert_ptr_null(ras_query_report(q));
}
END_TEST

START_TEST(a_process_that_accepts_and_is_silent_is_left)
{
    begin();
    int silent = accept_query();
    now_ms += RAS_HELLO_MS;
    int fd = accept_query(); /* the next one */
    say(fd, HELLO);
    say(fd, read_recording("equal.json"));
    close(fd);
    ck_assert_ptr_nonnull(strstr(outcome(), "no rank lags"));
    close(silent);
}
END_TEST

START_TEST(silence_of_all_processes_is_reported)
{
    int fds[RAS_TRIES];
    begin();
    for (int i = 0; i < RAS_TRIES; i++) {
        fds[i] = accept_query();
        now_ms += RAS_HELLO_MS;
    }
    ck_assert_ptr_nonnull(strstr(outcome(), "no process answers NCCL's RAS at localhost:"));
    for (int i = 0; i < RAS_TRIES; i++)
        close(fds[i]);
}
END_TEST

START_TEST(an_answer_without_an_end_times_out)
{
    begin();
    int fd = accept_query();
    say(fd, HELLO "{");
    ck_assert(ras_query_look(q, now_ms));
    now_ms += RAS_TOTAL_MS;
    ck_assert_ptr_nonnull(strstr(outcome(), "timed out after 8 s waiting for NCCL's RAS"));
    close(fd);
}
END_TEST

START_TEST(the_answer_of_another_job_is_not_ours)
{
    begin();
    for (int i = 0; i < RAS_TRIES; i++) {
        int fd = accept_query();
        say(fd,
            HELLO "{\"communicators\": [{\"ranks\": [{\"pid\": 99, \"host\": \"127.0.0.1\"}]}]}");
        close(fd);
        struct pollfd next = {.fd = listener, .events = POLLIN};
        while (i < RAS_TRIES - 1 && poll(&next, 1, 1) == 0)
            ras_query_look(q, now_ms);
    }
    ck_assert_ptr_nonnull(
        strstr(outcome(), "belongs to another job: set NCCL_RAS_ADDR for each job"));
}
END_TEST

START_TEST(other_servers_are_recognized)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "no RAS of NCCL answers at localhost:"},
        {"HTTP/1.1 400 Bad Request\n\n\n\n", "no RAS of NCCL answers at localhost:"},
        {"SERVER PROTOCOL 2\nOK\n", "no RAS of NCCL answers at localhost:"},
        {"SERVER PROTOCOL 2\nOK\nERROR: Unknown command SET FORMAT\nNCCL version 2.27.3\n",
         "this NCCL reports no JSON: expected version 2.28.7 or later"},
        {HELLO, "its answer is not JSON"},
        {HELLO "{\"communicators\": [", "its answer is not JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin();
        int fd = accept_query();
        say(fd, cases[i].text);
        close(fd);
        ck_assert_msg(strstr(outcome(), cases[i].error) != NULL, "%s", cases[i].error);
        ras_query_destroy(q);
        q = NULL;
    }
}
END_TEST

START_TEST(an_answer_is_bounded)
{
    static char blanks[1 << 16];
    begin();
    int fd = accept_query();
    say(fd, HELLO);
    memset(blanks, ' ', sizeof blanks);
    for (size_t n = 0; n < 2 * (size_t)RAS_MAX_BYTES && ras_query_look(q, now_ms);) {
        ssize_t sent = send(fd, blanks, sizeof blanks, MSG_NOSIGNAL | MSG_DONTWAIT);
        n += sent > 0 ? (size_t)sent : 0;
    }
    ck_assert_ptr_nonnull(strstr(outcome(), "its answer has more than 4 MiB"));
    close(fd);
}
END_TEST

START_TEST(a_bad_address_is_refused)
{
    static const char *const bad[] = {"",
                                      "localhost",
                                      ":28028",
                                      "name:28028",
                                      "127.0.0.1:0",
                                      "127.0.0.1:65536",
                                      "127.0.0.1:x",
                                      "::1:28028x",
                                      "[::1]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct ras_query_opts opts = {.address = bad[i], .on_free = on_free};
        ck_assert_msg(ras_query_begin(&opts, now_ms, &q) == -EINVAL, "%s", bad[i]);
    }
    ck_assert_int_eq(n_freed, 0);
}
END_TEST

TEST_SUITE(ras_query)
{
    Suite *suite = suite_create("ras_query");
    TCase *tc = tcase_create("ras_query");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, a_rank_that_two_answers_show_lags);
    tcase_add_test(tc, a_rank_that_has_caught_up_does_not_lag);
    tcase_add_test(tc, without_a_second_answer_a_rank_may_lag);
    tcase_add_test(tc, an_answer_may_arrive_byte_by_byte);
    tcase_add_test(tc, without_a_listener_nothing_is_printed);
    tcase_add_test(tc, a_process_that_accepts_and_is_silent_is_left);
    tcase_add_test(tc, silence_of_all_processes_is_reported);
    tcase_add_test(tc, an_answer_without_an_end_times_out);
    tcase_add_test(tc, the_answer_of_another_job_is_not_ours);
    tcase_add_test(tc, other_servers_are_recognized);
    tcase_add_test(tc, an_answer_is_bounded);
    tcase_add_test(tc, a_bad_address_is_refused);
    suite_add_tcase(suite, tc);
    return suite;
}
