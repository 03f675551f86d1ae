#include "common/error.h"
#include "rendezvous/store/wire.h"
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

static const char *const hello = "00 ce f7 85 3c";
static const char *const get_num_keys = "07";
static const char *const set_k = "01 0100000000000000 6b 0100000000000000 31";
static const char *const wait_k = "06 0100000000000000 0100000000000000 6b";

static int connect_c(struct served *s)
{
    int fd = raw_connect(served_port(s));
    raw_send_hex(fd, hello);
    return fd;
}

static void expect_n_keys(int fd, uint64_t n)
{
    uint8_t bytes[8];
    raw_send_hex(fd, get_num_keys);
    raw_receive(fd, bytes, sizeof bytes);
    ck_assert_uint_eq(wire_get_u64(bytes), n);
}

START_TEST(a_request_is_answered)
{
    struct served *s = served_start(NULL);
    int fd = raw_connect(served_port(s));
    raw_send_hex(fd, "00 ce f7 85 3c 0d 25 4c 00 00");
    raw_expect_hex(fd, "25 4c 00 00");
    raw_send_hex(fd, set_k);
    expect_n_keys(fd, 1);
    close(fd);
    served_await_n_clients(s, 0);
    served_stop(s);
}
END_TEST

START_TEST(garbage_closes_only_its_own_connection)
{
    struct served *s = served_start(NULL);
    int good = connect_c(s);
    expect_n_keys(good, 0);
    int bad = raw_connect(served_port(s));
    raw_send_hex(bad, "47 45 54 20 2f 20 48 54 54 50"); /* GET / HTTP */
    raw_expect_end(bad);
    served_await_refused(s, "client 127.0.0.1:");
    served_await_refused(s, "unknown opcode 71");
    expect_n_keys(good, 0);
    close(bad);
    close(good);
    served_stop(s);
}
END_TEST

START_TEST(replies_before_garbage_are_sent)
{
    struct served *s = served_start(NULL);
    int fd = raw_connect(served_port(s));
    raw_send_hex(fd, "00 ce f7 85 3c 0d 01 02 03 04 ff");
    raw_expect_hex(fd, "01 02 03 04");
    raw_expect_end(fd);
    close(fd);
    served_stop(s);
}
END_TEST

START_TEST(a_client_that_only_closed_its_half_gets_its_replies)
{
    struct served *s = served_start(NULL);
    int fd = raw_connect(served_port(s));
    raw_send_hex(fd, "00 ce f7 85 3c 0d 01 02 03 04");
    shutdown(fd, SHUT_WR);
    raw_expect_hex(fd, "01 02 03 04");
    raw_expect_end(fd);
    close(fd);
    served_stop(s);
}
END_TEST

START_TEST(three_hundred_waiters_are_woken_by_one_set)
{
    enum { N = 300 };
    struct served *s = served_start(NULL);
    int fds[N];
    for (int i = 0; i < N; i++) {
        fds[i] = connect_c(s);
        raw_send_hex(fds[i], "0d 01 00 00 00"); /* PING: with its answer the server has seen us */
        raw_send_hex(fds[i], wait_k);
    }
    for (int i = 0; i < N; i++)
        raw_expect_hex(fds[i], "01 00 00 00");
    int setter = connect_c(s);
    raw_send_hex(setter, set_k);
    for (int i = 0; i < N; i++)
        raw_expect_hex(fds[i], "00");
    for (int i = 0; i < N; i++)
        close(fds[i]);
    close(setter);
    served_await_n_clients(s, 0);
    served_stop(s);
}
END_TEST

START_TEST(a_client_that_dies_in_mid_request_stores_nothing)
{
    struct served *s = served_start(NULL);
    int dies = connect_c(s);
    raw_send_hex(dies, "01 0100000000000000 6b 0400000000000000 31");
    int waits = connect_c(s);
    raw_send_hex(waits, wait_k);
    close(dies);
    close(waits);
    served_await_n_clients(s, 0);
    int fd = connect_c(s);
    expect_n_keys(fd, 0);
    raw_send_hex(fd, set_k); /* no waiting client is left to wake */
    expect_n_keys(fd, 1);
    close(fd);
    served_stop(s);
}
END_TEST

START_TEST(a_large_value_may_arrive_in_pieces)
{
    enum { N = 20 << 20 };
    struct served *s = served_start(NULL);
    uint8_t *value = malloc(N);
    uint8_t *back = malloc(N);
    ck_assert(value != NULL && back != NULL);
    for (size_t i = 0; i < N; i++)
        value[i] = (uint8_t)(i * 2654435761u >> 13);
    int fd = connect_c(s);
    uint8_t head[18] = {WIRE_SET};
    wire_put_u64(head + 1, 1);
    head[9] = 'k';
    wire_put_u64(head + 10, N);
    raw_send(fd, head, sizeof head);
    raw_send(fd, value, N);
    raw_send_hex(fd, "03 0100000000000000 6b");
    uint8_t len[8];
    raw_receive(fd, len, sizeof len);
    ck_assert_uint_eq(wire_get_u64(len), N);
    raw_receive(fd, back, N);
    ck_assert(memcmp(value, back, N) == 0);
    free(value);
    free(back);
    close(fd);
    served_stop(s);
}
END_TEST

/* How many GETs a client that reads nothing can send before the server stops listening to it. */
static size_t send_until_stopped(int fd, const uint8_t *get, size_t len, size_t most)
{
    size_t n = 0;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    uint8_t many[100 * 10];
    for (size_t i = 0; i < 100; i++)
        memcpy(many + i * len, get, len);
    size_t offset = 0;
    while (n < most && poll(&p, 1, 1000) == 1) {
        ssize_t rc = send(fd, many + offset, 100 * len - offset, MSG_DONTWAIT | MSG_NOSIGNAL);
        ck_assert_msg(rc > 0 || errno == EAGAIN, "send: %s", strerror(errno));
        n += rc > 0 ? (size_t)rc : 0;
        offset = (offset + (rc > 0 ? (size_t)rc : 0)) % (100 * len);
    }
    return n;
}

START_TEST(a_client_that_does_not_read_is_paused_and_loses_nothing)
{
    enum {
        VALUE = 1000,
        MOST = 100 << 20 /* of requests; their answers would be ten GiB */
    };
    struct served *s = served_start(NULL);
    uint8_t set[18 + VALUE] = {WIRE_SET};
    wire_put_u64(set + 1, 1);
    set[9] = 'k';
    wire_put_u64(set + 10, VALUE);
    memset(set + 18, 'v', VALUE);
    int other = connect_c(s);
    raw_send(other, set, sizeof set);
    expect_n_keys(other, 1);

    int fd = connect_c(s);
    const uint8_t get[10] = {WIRE_GET, 1, 0, 0, 0, 0, 0, 0, 0, 'k'};
    size_t n_sent = send_until_stopped(fd, get, sizeof get, MOST);
    ck_assert_uint_lt(n_sent, MOST);
    expect_n_keys(other, 1); /* the others do not notice */

    uint8_t reply[8 + VALUE];
    for (size_t i = 0; i < n_sent / sizeof get; i++) {
        raw_receive(fd, reply, sizeof reply);
        ck_assert_uint_eq(wire_get_u64(reply), VALUE);
        ck_assert(reply[8] == 'v' && reply[7 + VALUE] == 'v');
    }
    close(fd);
    close(other);
    served_stop(s);
}
END_TEST

START_TEST(the_client_that_holds_most_memory_is_closed)
{
    struct server_opts opts = {.max_bytes = 8 << 20};
    struct served *s = served_start(&opts);
    int small = connect_c(s);
    raw_send_hex(small, "01 0100000000000000 6b 0400000000000000 31");
    int large = connect_c(s);
    uint8_t head[18] = {WIRE_SET};
    wire_put_u64(head + 1, 1);
    head[9] = 'k';
    wire_put_u64(head + 10, 60 << 20);
    raw_send(large, head, sizeof head);
    static const uint8_t zeros[1 << 20];
    struct pollfd p = {.fd = large, .events = POLLOUT};
    for (int i = 0; i < 60; i++) {
        if (poll(&p, 1, SERVED_DEADLINE_MS) != 1 ||
            send(large, zeros, sizeof zeros, MSG_NOSIGNAL) < 0)
            break;
    }
    served_await_refused(s, "bytes unsent or incomplete");
    raw_send_hex(small, "32 33 34");
    expect_n_keys(small, 1);
    close(large);
    close(small);
    served_stop(s);
}
END_TEST

START_TEST(a_request_must_be_complete_in_time_but_a_client_may_be_idle)
{
    struct server_opts opts = {.mid_frame_ms = 100};
    struct served *s = served_start(&opts);
    int silent = raw_connect(served_port(s)); /* the second connection of a 1.13 client */
    int idle = connect_c(s);
    int slow = connect_c(s);
    raw_send_hex(slow, "01 0100000000000000 6b 0400000000000000 31");
    raw_expect_end(slow);
    served_await_refused(s, "timed out after 100 ms waiting for the rest of a request");
    int again = raw_connect(served_port(s));
    raw_send_hex(again, "00"); /* an opcode alone also begins a request */
    raw_expect_end(again);
    expect_n_keys(idle, 0);
    ck_assert(raw_is_silent(silent));
    raw_send_hex(silent, "06");
    raw_expect_hex(silent, "0000000000000000");
    close(silent);
    close(idle);
    close(slow);
    close(again);
    served_stop(s);
}
END_TEST

START_TEST(a_slow_request_has_the_same_timeout)
{
    struct server_opts opts = {.mid_frame_ms = 100};
    struct served *s = served_start(&opts);
    int fd = connect_c(s);
    raw_send_hex(fd, "01 0100000000000000 6b 0000800000000000"); /* a SET of 8 MiB */
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 10) == 0) /* a byte every 10 ms: the time runs from the first one */
        send(fd, "x", 1, MSG_NOSIGNAL);
    raw_expect_end(fd);
    served_await_refused(s, "timed out after 100 ms waiting for the rest of a request");
    close(fd);
    served_stop(s);
}
END_TEST

START_TEST(a_waiting_client_is_not_in_mid_request)
{
    struct server_opts opts = {.mid_frame_ms = 50};
    struct served *s = served_start(&opts);
    int waits = connect_c(s);
    raw_send_hex(waits, wait_k);
    int slow = connect_c(s);
    raw_send_hex(slow, "01");
    raw_expect_end(slow); /* longer than 50 ms have passed */
    raw_send_hex(slow = connect_c(s), set_k);
    raw_expect_hex(waits, "00");
    close(waits);
    close(slow);
    served_stop(s);
}
END_TEST

START_TEST(the_first_delete_of_an_old_client_is_answered)
{
    struct served *s = served_start(NULL);
    int fd = raw_connect(served_port(s));
    raw_send_hex(fd, "00 0200000000000000 2f6b 0200000000000000 7631");
    raw_send_hex(fd, "08 0200000000000000 2f6b");
    raw_expect_hex(fd, "0100000000000000");
    raw_send_hex(fd, "08 0200000000000000 2f6b");
    raw_expect_hex(fd, "0000000000000000");
    close(fd);
    served_stop(s);
}
END_TEST

START_TEST(clients_are_bounded)
{
    struct server_opts opts = {.max_clients = 2};
    struct served *s = served_start(&opts);
    int a = connect_c(s);
    int b = connect_c(s);
    expect_n_keys(a, 0);
    expect_n_keys(b, 0);
    int c = raw_connect(served_port(s));
    raw_expect_end(c);
    served_await_refused(s, "2 clients are connected");
    close(a);
    served_await_n_clients(s, 1);
    int d = connect_c(s);
    expect_n_keys(d, 0);
    close(b);
    close(c);
    close(d);
    served_stop(s);
}
END_TEST

START_TEST(closing_the_server_closes_all_connections)
{
    struct served *s = served_start(NULL);
    int waits = connect_c(s);
    expect_n_keys(waits, 0);
    raw_send_hex(waits, wait_k);
    int mid_request = connect_c(s);
    expect_n_keys(mid_request, 0);
    raw_send_hex(mid_request, "01 01");
    served_stop(s);
    raw_expect_end(waits);
    raw_expect_end(mid_request);
    close(waits);
    close(mid_request);
}
END_TEST

static void assert_start_fails(const struct server_opts *opts, int rc, const char *text)
{
    struct co_error err = {0};
    struct server *server = NULL;
    uv_loop_t loop;
    uv_loop_init(&loop);
    ck_assert_int_eq(server_start(&loop, opts, &server, &err), rc);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
    ck_assert_ptr_null(server);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

START_TEST(an_address_that_cannot_be_bound_is_named)
{
    struct served *s = served_start(NULL);
    char text[32];
    snprintf(text, sizeof text, "port %u", served_port(s));
    assert_start_fails(&(struct server_opts){.port = served_port(s)}, -EADDRINUSE, text);
    assert_start_fails(&(struct server_opts){.bind_addr = "localhost"}, -EINVAL,
                       "'localhost': not a numeric address");
    assert_start_fails(&(struct server_opts){.bind_addr = "192.0.2.1"}, -EADDRNOTAVAIL,
                       "192.0.2.1");
    assert_start_fails(&(struct server_opts){.max_value_bytes = 1000}, -EINVAL, "8 MiB");
    served_stop(s);
}
END_TEST

START_TEST(both_families_reach_a_server_on_any_address)
{
    struct server_opts opts = {.bind_addr = "::"};
    struct co_error err = {0};
    struct server *probe;
    uv_loop_t loop;
    uv_loop_init(&loop);
    bool has_ipv6 =
        server_start(&loop, &(struct server_opts){.bind_addr = "::1"}, &probe, &err) == 0;
    if (has_ipv6)
        server_close(probe, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    if (!has_ipv6) {
        printf("skipped: no IPv6 here: %s\n", err.text);
        return;
    }
    struct served *s = served_start(&opts);
    int v4 = connect_c(s);
    expect_n_keys(v4, 0);
    struct sockaddr_in6 to = {.sin6_family = AF_INET6,
                              .sin6_port = htons(served_port(s)),
                              .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int v6 = socket(AF_INET6, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(v6, (struct sockaddr *)&to, sizeof to), 0);
    raw_send_hex(v6, hello);
    expect_n_keys(v6, 0);
    close(v4);
    close(v6);
    served_stop(s);
}
END_TEST

START_TEST(processes_of_another_user_are_refused)
{
    if (geteuid() != 0) {
        printf("skipped: only root can become another user\n");
        return;
    }
    struct served *s = served_start(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (setuid(65534) != 0)
            _exit(2);
        int fd = raw_connect(served_port(s));
        raw_expect_end(fd);
        _exit(0);
    }
    served_await_refused(s, "belongs to user ID 65534, the store to user ID 0");
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    served_stop(s);
}
END_TEST

START_TEST(a_client_that_closes_before_it_is_identified_is_refused)
{
    /* the kernel would give it the uid of root */
    uv_loop_t loop;
    struct co_error err = {0};
    struct server *server;
    uv_loop_init(&loop);
    ck_assert_int_eq(server_start(&loop, &(struct server_opts){0}, &server, &err), 0);
    int fd = raw_connect(server_port(server));
    raw_send_hex(fd, hello);
    raw_send_hex(fd, set_k);
    close(fd);
    int good = raw_connect(server_port(server));
    raw_send_hex(good, hello);
    raw_send_hex(good, get_num_keys);
    struct pollfd p = {.fd = good, .events = POLLIN};
    for (int i = 0; i < SERVED_DEADLINE_MS && poll(&p, 1, 1) == 0; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    raw_expect_hex(good, "0000000000000000");
    close(good);
    server_close(server, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

TCase *served_case(void)
{
    TCase *tc = tcase_create("served");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, a_request_is_answered);
    tcase_add_test(tc, garbage_closes_only_its_own_connection);
    tcase_add_test(tc, replies_before_garbage_are_sent);
    tcase_add_test(tc, a_client_that_only_closed_its_half_gets_its_replies);
    tcase_add_test(tc, three_hundred_waiters_are_woken_by_one_set);
    tcase_add_test(tc, a_client_that_dies_in_mid_request_stores_nothing);
    tcase_add_test(tc, a_large_value_may_arrive_in_pieces);
    tcase_add_test(tc, a_client_that_does_not_read_is_paused_and_loses_nothing);
    tcase_add_test(tc, the_client_that_holds_most_memory_is_closed);
    tcase_add_test(tc, a_request_must_be_complete_in_time_but_a_client_may_be_idle);
    tcase_add_test(tc, a_slow_request_has_the_same_timeout);
    tcase_add_test(tc, a_waiting_client_is_not_in_mid_request);
    tcase_add_test(tc, the_first_delete_of_an_old_client_is_answered);
    tcase_add_test(tc, clients_are_bounded);
    tcase_add_test(tc, closing_the_server_closes_all_connections);
    tcase_add_test(tc, processes_of_another_user_are_refused);
    return tc;
}

TEST_SUITE(server)
{
    Suite *suite = suite_create("server");
    TCase *tc = tcase_create("server");
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, served_case());
    tcase_add_test(tc, an_address_that_cannot_be_bound_is_named);
    tcase_add_test(tc, both_families_reach_a_server_on_any_address);
    tcase_add_test(tc, a_client_that_closes_before_it_is_identified_is_refused);
    suite_add_tcase(suite, tc);
    return suite;
}
