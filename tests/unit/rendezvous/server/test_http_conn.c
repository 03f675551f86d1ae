/* HTTP on the store's port, by real connections. */
#include "common/error.h"
#include "rendezvous/net/allow.h"
#include "rendezvous/server/http.h"
#include "served.h"
#include "tests/support/suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct server_opts with_http = {.http = true, .version = "1.2.3"};

static void say(int fd, const char *text)
{
    raw_send(fd, text, strlen(text));
}

static void get(int fd, const char *path)
{
    char text[128];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    say(fd, text);
}

/* Read one reply: its head goes to `head`, its body to `body`. returns the status */
static int hear(int fd, char head[1024], char body[16384])
{
    size_t n = 0;
    do {
        ck_assert_uint_lt(n, 1023);
        raw_receive(fd, head + n++, 1);
        head[n] = '\0';
    } while (strstr(head, "\r\n\r\n") == NULL);
    int status;
    size_t len;
    const char *length = strstr(head, "Content-Length: ");
    ck_assert_ptr_nonnull(length);
    ck_assert_int_eq(sscanf(head, "HTTP/1.1 %d ", &status), 1);
    ck_assert_int_eq(sscanf(length, "Content-Length: %zu\r\n", &len), 1);
    ck_assert_uint_lt(len, 16384);
    raw_receive(fd, body, len);
    body[len] = '\0';
    return status;
}

static void expect(int fd, int status, const char *in_body)
{
    char head[1024], body[16384];
    int got = hear(fd, head, body);
    ck_assert_msg(got == status, "%s%s", head, body);
    ck_assert_msg(strstr(body, in_body) != NULL, "no '%s' in %s", in_body, body);
}

static int connect_store(struct served *s)
{
    int fd = raw_connect(served_port(s));
    raw_send_hex(fd, "00 ce f7 85 3c 0d 01 02 03 04");
    return fd;
}

START_TEST(pages_and_the_store_are_served_on_one_port)
{
    struct served *s = served_start(&with_http);
    int store = connect_store(s);
    raw_expect_hex(store, "01 02 03 04");
    raw_send_hex(store, "01 0100000000000000 6b 0100000000000000 31 07");
    raw_expect_hex(store, "0100000000000000");
    int fd = raw_connect(served_port(s));
    get(fd, "/healthz");
    expect(fd, 200, "ok\n");
    get(fd, "/metrics"); /* on the same connection */
    expect(fd, 200, "ddp_rendezvous_requests_total{op=\"SET\"} 1\n");
    get(fd, "/status?x");
    expect(fd, 200, "\"version\": \"1.2.3\"");
    get(fd, "/metrics");
    expect(fd, 200, "ddp_rendezvous_clients 1\n");
    get(fd, "/metrics");
    expect(fd, 200, "ddp_rendezvous_http_requests_total 5\n");
    int another = raw_connect(served_port(s));
    get(another, "/metrics"); /* an HTTP client does not count, from its first request */
    expect(another, 200, "ddp_rendezvous_clients 1\n");
    close(another);
    get(fd, "/keys");
    expect(fd, 404, "404 Not Found");
    get(fd, "/healthz"); /* the server does not hang up after a wrong path */
    expect(fd, 200, "ok\n");
    close(fd);
    close(store);
    served_stop(s);
}
END_TEST

START_TEST(requests_may_arrive_in_pieces_or_all_at_once)
{
    static const char request[] = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    struct served *s = served_start(&with_http);
    int fd = raw_connect(served_port(s));
    for (size_t i = 0; i < sizeof request - 1; i++)
        raw_send(fd, request + i, 1);
    expect(fd, 200, "ok\n");
    say(fd, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"
            "HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /ignored");
    expect(fd, 200, "ok\n");
    expect(fd, 404, "404");
    char head[200] = "";
    for (size_t i = 0; strstr(head, "\r\n\r\n") == NULL; i++)
        raw_receive(fd, head + i, 1);
    ck_assert_ptr_nonnull(strstr(head, "HTTP/1.1 200 OK\r\n"));
    ck_assert_ptr_nonnull(strstr(head, "Content-Length: 3\r\n"));
    raw_expect_end(fd); /* no body to HEAD */
    close(fd);
    served_stop(s);
}
END_TEST

START_TEST(a_client_that_only_closed_its_half_gets_its_page)
{
    struct served *s = served_start(&with_http);
    int fd = raw_connect(served_port(s));
    get(fd, "/healthz");
    shutdown(fd, SHUT_WR);
    expect(fd, 200, "ok\n");
    raw_expect_end(fd);
    close(fd);
    served_stop(s);
}
END_TEST

START_TEST(bad_requests_are_answered_before_the_end)
{
    static const char *const requests[][2] = {
        {"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "405"},
        {"DELETE /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "405"},
        {"GET /healthz\r\n\r\n", "400"},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"},
    };
    struct served *s = served_start(&with_http);
    int store = connect_store(s);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        int fd = raw_connect(served_port(s));
        say(fd, requests[i][0]);
        expect(fd, atoi(requests[i][1]), requests[i][1]);
        raw_expect_end(fd);
        close(fd);
    }
    raw_expect_hex(store, "01 02 03 04");
    raw_send_hex(store, "07");
    raw_expect_hex(store, "0000000000000000");
    close(store);
    served_stop(s);
}
END_TEST

START_TEST(an_endless_head_gets_an_error)
{
    struct served *s = served_start(&with_http);
    int fd = raw_connect(served_port(s));
    static char head[3 * HTTP_MAX_HEAD_BYTES];
    memset(head, 'x', sizeof head);
    memcpy(head, "GET /", 5);
    raw_send(fd, head, sizeof head); /* more than the server reads: the reply still arrives */
    expect(fd, 431, "431");
    raw_expect_end(fd);
    close(fd);
    served_stop(s);
}
END_TEST

START_TEST(the_first_bytes_may_arrive_alone)
{
    struct served *s = served_start(&with_http);
    int fd = raw_connect(served_port(s));
    say(fd, "D"); /* of DELETE, or of DDP1 */
    served_await_n_clients(s, 1);
    say(fd, "ELETE / HTTP/1.1\r\nHost: x\r\n\r\n");
    expect(fd, 405, "405");
    close(fd);
    int old = raw_connect(served_port(s));
    raw_send_hex(old, "00"); /* a SET of torch 1.13 */
    served_await_n_clients(s, 1);
    raw_send_hex(old, "0100000000000000 6b 0100000000000000 31 06");
    raw_expect_hex(old, "0100000000000000");
    close(old);
    served_stop(s);
}
END_TEST

START_TEST(a_client_without_a_protocol_times_out)
{
    struct server_opts opts = with_http;
    opts.mid_frame_ms = 100;
    struct served *s = served_start(&opts);
    int silent = raw_connect(served_port(s)); /* may be a second one of torch 1.13 */
    int undecided = raw_connect(served_port(s));
    say(undecided, "DDP");
    raw_expect_end(undecided);
    served_await_refused(
        s, "timed out after 100 ms waiting for the rest of a request: received 3 bytes");
    ck_assert(raw_is_silent(silent));
    close(silent);
    close(undecided);
    served_stop(s);
}
END_TEST

START_TEST(without_a_store_the_first_byte_has_a_deadline)
{
    struct server_opts opts = with_http;
    opts.no_store = true;
    opts.mid_frame_ms = 100;
    struct served *s = served_start(&opts);
    int silent = raw_connect(served_port(s));
    raw_expect_end(silent);
    served_await_refused(s, "timed out after 100 ms waiting for the first bytes");
    int slow = raw_connect(served_port(s)); /* each byte is in time, all of them are not */
    struct pollfd p = {.fd = slow, .events = POLLIN};
    for (const char *at = "DDP"; poll(&p, 1, 10) == 0; at += *at != '\0')
        send(slow, at, *at != '\0', MSG_NOSIGNAL);
    raw_expect_end(slow);
    close(silent);
    close(slow);
    served_stop(s);
}
END_TEST

START_TEST(a_silent_connection_makes_way_for_a_new_one)
{
    enum { N = 3 + 16 }; /* clients, and connections that may be something else */
    struct server_opts opts = with_http;
    opts.max_clients = 3;
    struct served *s = served_start(&opts);
    int fds[N];
    int store = connect_store(s);
    raw_expect_hex(store, "01 02 03 04");
    for (int i = 1; i < N; i++)
        fds[i] = raw_connect(served_port(s));
    served_await_n_clients(s, N);
    for (int i = 1; i < N; i++)
        ck_assert(raw_is_silent(fds[i]));
    int late = connect_store(s);
    raw_expect_hex(late, "01 02 03 04");
    raw_expect_end(fds[1]);
    served_await_refused(s, "closed: it has sent nothing, and 19 connections are open");
    ck_assert(raw_is_silent(fds[2])); /* it may be the second one of a client of torch 1.13 */
    for (int i = 1; i < N; i++)
        close(fds[i]);
    close(store);
    close(late);
    served_stop(s);
}
END_TEST

/* "key" is what the pages need. */
static bool has_key(void *arg, const char *text, size_t len)
{
    (void)arg;
    return len == 3 && memcmp(text, "key", 3) == 0;
}

static void ask(int fd, const char *path, const char *field, int status)
{
    char text[256];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, field);
    say(fd, text);
    expect(fd, status, "");
    close(fd);
}

START_TEST(pages_that_need_a_key_are_open_to_our_user_and_to_listed_addresses)
{
    struct allow_list list = {0};
    struct server_opts opts = with_http;
    opts.pages.is_key = has_key;
    struct served *s = served_start(&opts);
    ask(raw_connect(served_port(s)), "/status", "", 200);
    served_stop(s);
    ck_assert_int_eq(allow_add(&list, "127.0.0.0/8", NULL), 0);
    opts.allow = &list;
    s = served_start(&opts);
    ask(raw_connect(served_port(s)), "/status", "", 200);
    served_stop(s);
}
END_TEST

START_TEST(pages_are_for_clients_that_call_this_machine_by_its_name)
{
    static const struct {
        const char *path, *host, *field;
        int status;
        const char *body;
    } cases[] = {
        {"/status", "localhost:1", "", 200, "{"},
        {"/metrics", "127.0.0.1", "", 200, "# HELP"},
        {"/status", "[::1]:80", "", 200, "{"},
        {"/status", "Gate2.", "", 200, "{"},
        {"/status", "evil.example.org", "", 421,
         "421 Misdirected Request: 'evil.example.org' is not a name of this machine; use an "
         "address, or start it with --http-host evil.example.org\n"},
        {"/metrics", "a b", "", 421,
         "'?' is not a name of this machine; use an address, or start "
         "it with --http-host NAME\n"},
        {"/metrics", "evil.example.org", "Authorization: Bearer kez\r\n", 421, "421"},
        {"/metrics", "evil.example.org", "Authorization: Bearer key\r\n", 200, "# HELP"},
        {"/healthz", "evil.example.org", "", 200, "ok\n"},
        {"/nothing", "evil.example.org", "", 404, ""},
    };
    struct server_opts opts = with_http;
    opts.pages.is_key = has_key;
    opts.hosts = "gate1,gate2";
    opts.host_advice = "start it with --http-host";
    struct served *s = served_start(&opts);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        int fd = raw_connect(served_port(s));
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", cases[i].path,
                 cases[i].host, cases[i].field);
        say(fd, text);
        expect(fd, cases[i].status, cases[i].body);
        close(fd);
    }
    int fd = raw_connect(served_port(s));
    say(fd, "GET /status HTTP/1.0\r\n\r\n"); /* names no host, as no browser does */
    expect(fd, 200, "{");
    close(fd);
    served_stop(s);
    opts.host_advice = NULL;
    s = served_start(&opts);
    fd = raw_connect(served_port(s));
    say(fd, "GET /status HTTP/1.1\r\nHost: gate\r\n\r\n");
    expect(fd, 421, "'gate' is not a name of this machine; use an address\n");
    close(fd);
    served_stop(s);
}
END_TEST

START_TEST(pages_that_need_a_key_are_refused_to_others)
{
    struct server_opts opts = with_http;
    struct sockaddr_storage own;
    opts.pages.is_key = has_key;
    opts.bind_addr = "0.0.0.0";
    if (geteuid() != 0 || !find_own_address(&own)) {
        printf("skipped: needs root, to become another user, and an address beside loopback\n");
        return;
    }
    struct served *s = served_start(&opts);
    ((struct sockaddr_in *)&own)->sin_port = htons(served_port(s));
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (setuid(65534) != 0)
            _exit(2);
        static const struct {
            const char *path, *field;
            int status;
        } cases[] = {
            {"/status", "", 401},
            {"/metrics", "", 401},
            {"/metrics", "Authorization: Basic key\r\n", 401},
            {"/metrics", "Authorization: Bearer kez\r\n", 401},
            {"/metrics", "Authorization: Bearer\r\n", 401},
            {"/metrics", "authorization:  bearer  key \r\n", 200},
            {"/status", "Authorization: Bearer key\r\n", 200},
            {"/status", "Authorization: Bearer key\r\nAuthorization: Bearer no\r\n", 400},
            {"/healthz", "", 200},
            {"/nothing", "", 404},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            ask(raw_connect_at(&own), cases[i].path, cases[i].field, cases[i].status);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    served_stop(s);
}
END_TEST

START_TEST(channel_connections_are_refused_by_name)
{
    struct served *s = served_start(&with_http);
    int fd = raw_connect(served_port(s));
    say(fd, "DDP1....");
    raw_expect_end(fd);
    served_await_refused(s, "a control connection, but this port manages no jobs");
    close(fd);
    served_stop(s);
}
END_TEST

START_TEST(a_full_server_still_reports_its_state)
{
    struct server_opts opts = with_http;
    opts.max_clients = 1;
    struct served *s = served_start(&opts);
    int store = connect_store(s);
    raw_expect_hex(store, "01 02 03 04");
    int late = connect_store(s);
    raw_expect_end(late);
    served_await_refused(s, "refused: 1 clients are connected, the maximum");
    int fd = raw_connect(served_port(s));
    get(fd, "/metrics");
    expect(fd, 200, "ddp_rendezvous_refused_total 1\n");
    raw_send_hex(store, "07");
    raw_expect_hex(store, "0000000000000000");
    close(fd);
    close(late);
    close(store);
    served_stop(s);
}
END_TEST

START_TEST(an_idle_client_is_closed_for_a_new_one)
{
    enum { N = 64 };
    struct served *s = served_start(&with_http);
    int fds[N];
    for (int i = 0; i < N; i++) {
        fds[i] = raw_connect(served_port(s));
        get(fds[i], "/healthz");
        expect(fds[i], 200, "ok\n");
        say(fds[i], "GET /heal");
    }
    int late = raw_connect(served_port(s));
    get(late, "/healthz");
    expect(late, 200, "ok\n");
    raw_expect_end(fds[0]);
    say(fds[1], "thz HTTP/1.1\r\nHost: x\r\n\r\n");
    expect(fds[1], 200, "ok\n");
    int later = raw_connect(served_port(s));
    get(later, "/healthz");
    expect(later, 200, "ok\n");
    raw_expect_end(fds[2]); /* not fds[1], which was served meanwhile */
    ck_assert(raw_is_silent(fds[1]));
    for (int i = 0; i < N; i++)
        close(fds[i]);
    close(late);
    close(later);
    served_stop(s);
}
END_TEST

START_TEST(closing_the_server_closes_these_connections)
{
    struct served *s = served_start(&with_http);
    int idle = raw_connect(served_port(s));
    get(idle, "/healthz");
    expect(idle, 200, "ok\n");
    int half = raw_connect(served_port(s));
    say(half, "GET /heal");
    get(idle, "/healthz"); /* its answer shows that the server has also seen the other's bytes */
    expect(idle, 200, "ok\n");
    served_stop(s);
    raw_expect_end(idle);
    raw_expect_end(half);
    close(idle);
    close(half);
}
END_TEST

TEST_SUITE(http_conn)
{
    Suite *suite = suite_create("http_conn");
    TCase *tc = tcase_create("http_conn");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, pages_and_the_store_are_served_on_one_port);
    tcase_add_test(tc, requests_may_arrive_in_pieces_or_all_at_once);
    tcase_add_test(tc, a_client_that_only_closed_its_half_gets_its_page);
    tcase_add_test(tc, bad_requests_are_answered_before_the_end);
    tcase_add_test(tc, an_endless_head_gets_an_error);
    tcase_add_test(tc, the_first_bytes_may_arrive_alone);
    tcase_add_test(tc, a_client_without_a_protocol_times_out);
    tcase_add_test(tc, without_a_store_the_first_byte_has_a_deadline);
    tcase_add_test(tc, a_silent_connection_makes_way_for_a_new_one);
    tcase_add_test(tc, pages_that_need_a_key_are_open_to_our_user_and_to_listed_addresses);
    tcase_add_test(tc, pages_are_for_clients_that_call_this_machine_by_its_name);
    tcase_add_test(tc, pages_that_need_a_key_are_refused_to_others);
    tcase_add_test(tc, channel_connections_are_refused_by_name);
    tcase_add_test(tc, a_full_server_still_reports_its_state);
    tcase_add_test(tc, an_idle_client_is_closed_for_a_new_one);
    tcase_add_test(tc, closing_the_server_closes_these_connections);
    suite_add_tcase(suite, tc);
    return suite;
}
