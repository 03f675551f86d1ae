/* Where a server listens, and which peers it accepts. */
#include "common/clock.h"
#include "common/error.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/allow.h"
#include "served.h"
#include "tests/support/suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static uv_loop_t loop;
static struct server *server;
static struct co_error err;

static void set_up(void)
{
    uv_loop_init(&loop);
    ck_assert_int_eq(server_create(&loop, &(struct server_opts){0}, &server, &err), 0);
}

static void tear_down(void)
{
    server_close(server, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0); /* no open handle remains */
}

/* The store's number of keys, by a client of this address. */
static uint64_t ask_n_keys(const struct sockaddr_storage *at, const char *first_hex)
{
    int fd = raw_connect_at(at);
    raw_send_hex(fd, first_hex);
    raw_send_hex(fd, "07");
    uint8_t answer[8];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t deadline_ms = co_deadline_ms(SERVED_DEADLINE_MS);
    while (poll(&p, 1, 1) == 0 && co_left_ms(deadline_ms) > 0)
        uv_run(&loop, UV_RUN_NOWAIT);
    raw_receive(fd, answer, sizeof answer);
    close(fd);
    return answer[0];
}

START_TEST(several_addresses_lead_to_one_store)
{
    struct sockaddr_storage first, second;
    ck_assert_int_eq(server_port(server), 0);
    ck_assert_int_eq(server_listen(server, "127.0.0.1", 0, &first, &err), 0);
    ck_assert_int_eq(server_listen(server, "127.0.0.2", 0, &second, &err), 0);
    ck_assert_uint_eq(server_port(server), address_port(&first));
    ask_n_keys(&first, "00 ce f7 85 3c 01 0100000000000000 6b 0100000000000000 31");
    ck_assert_uint_eq(ask_n_keys(&second, "00 ce f7 85 3c"), 1);
}
END_TEST

START_TEST(a_failed_listener_does_not_stop_the_others)
{
    struct sockaddr_storage bound;
    char text[32];
    ck_assert_int_eq(server_listen(server, "127.0.0.1", 0, &bound, &err), 0);
    snprintf(text, sizeof text, "port %u", address_port(&bound));
    ck_assert_int_eq(server_listen(server, "127.0.0.1", address_port(&bound), NULL, &err),
                     -EADDRINUSE);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
    ck_assert_int_eq(server_listen(server, "node7", 0, NULL, &err), -EINVAL);
    ck_assert_uint_eq(ask_n_keys(&bound, "00 ce f7 85 3c"), 0);
}
END_TEST

START_TEST(an_inherited_listening_socket_is_taken_over)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_storage bound;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&any, sizeof any), 0);
    ck_assert_int_eq(server_adopt(server, fd, NULL, &err), -EINVAL); /* does not listen yet */
    ck_assert_ptr_nonnull(strstr(err.text, "is not a listening TCP socket"));
    ck_assert_int_eq(listen(fd, 5), 0);
    ck_assert_msg(server_adopt(server, fd, &bound, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(ask_n_keys(&bound, "00 ce f7 85 3c"), 0);

    int pipes[2];
    ck_assert_int_eq(pipe(pipes), 0);
    ck_assert_int_eq(server_adopt(server, pipes[0], NULL, &err), -EINVAL);
    ck_assert_int_ne(fcntl(pipes[0], F_GETFD), -1); /* it stays ours */
    ck_assert_int_eq(server_adopt(server, 4000, NULL, &err), -EINVAL);
    close(pipes[0]);
    close(pipes[1]);
}
END_TEST

/* --- accepted peers --- */

/* A client at an address of this machine's own network card, of a server with this list. */
static void meet(struct served *s, struct sockaddr_storage *at, bool is_served)
{
    ((struct sockaddr_in *)at)->sin_port = htons(served_port(s));
    int fd = raw_connect_at(at);
    raw_send_hex(fd, "00 ce f7 85 3c 07");
    if (is_served) {
        raw_expect_hex(fd, "0000000000000000");
    } else {
        raw_expect_end(fd);
        served_await_refused(s, "refused: its address is not in --allow");
    }
    close(fd);
    served_stop(s);
}

START_TEST(other_addresses_are_served_unless_a_list_omits_them)
{
    struct sockaddr_storage own;
    struct allow_list list = {0};
    struct server_opts opts = {.bind_addr = "0.0.0.0"};
    if (!find_own_address(&own)) {
        printf("skipped: this machine has loopback addresses only\n");
        return;
    }
    meet(served_start(&opts), &own, true);
    opts.allow = &list;
    ck_assert_int_eq(allow_add(&list, "203.0.113.0/24", NULL), 0);
    meet(served_start(&opts), &own, false);
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &((struct sockaddr_in *)&own)->sin_addr, text, sizeof text);
    ck_assert_int_eq(allow_add(&list, text, NULL), 0);
    meet(served_start(&opts), &own, true);
}
END_TEST

START_TEST(our_own_processes_need_no_list)
{
    struct allow_list list = {0};
    struct server_opts opts = {.allow = &list};
    ck_assert_int_eq(allow_add(&list, "203.0.113.0/24", NULL), 0);
    struct served *s = served_start(&opts);
    int fd = raw_connect(served_port(s));
    raw_send_hex(fd, "00 ce f7 85 3c 07");
    raw_expect_hex(fd, "0000000000000000");
    close(fd);
    served_stop(s);
}
END_TEST

START_TEST(a_list_admits_other_users_of_this_machine)
{
    struct allow_list list = {0};
    struct server_opts opts = {.allow = &list};
    if (geteuid() != 0) {
        printf("skipped: only root can become another user\n");
        return;
    }
    ck_assert_int_eq(allow_add(&list, "127.0.0.0/8", NULL), 0);
    struct served *s = served_start(&opts);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (setuid(65534) != 0)
            _exit(2);
        int fd = raw_connect(served_port(s));
        raw_send_hex(fd, "00 ce f7 85 3c 07");
        raw_expect_hex(fd, "0000000000000000");
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    served_stop(s);
}
END_TEST

/* A client of another user, by an address of this machine that is not loopback. */
static void meet_as_another_user(const struct server_opts *opts, bool is_served)
{
    struct sockaddr_storage at;
    int status;
    if (geteuid() != 0 || !find_own_address(&at)) {
        printf("skipped: needs root, to become another user, and an address beside loopback\n");
        return;
    }
    struct served *s = served_start(opts);
    ((struct sockaddr_in *)&at)->sin_port = htons(served_port(s));
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (setuid(65534) != 0)
            _exit(2);
        int fd = raw_connect_at(&at);
        raw_send_hex(fd, "00 ce f7 85 3c 07");
        if (is_served)
            raw_expect_hex(fd, "0000000000000000");
        else
            raw_expect_end(fd);
        _exit(0);
    }
    if (!is_served)
        served_await_refused(s, "belongs to user ID 65534, the store to user ID 0");
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    served_stop(s);
}

START_TEST(other_users_are_refused_by_all_addresses_of_this_machine)
{
    struct allow_list list = {0};
    struct server_opts opts = {.bind_addr = "0.0.0.0"};
    struct sockaddr_storage own;
    meet_as_another_user(&opts, false);
    if (!find_own_address(&own))
        return;
    struct in6_addr host = address_as_v6(&own); /* a node of the job: its other users are not */
    ck_assert_int_eq(allow_set_hosts(&list, &host, 1), 0);
    opts.allow = &list;
    meet_as_another_user(&opts, false);
    allow_fini(&list);
    ck_assert_int_eq(allow_add(&list, "0.0.0.0/0", NULL), 0); /* by --allow */
    meet_as_another_user(&opts, true);
}
END_TEST

TEST_SUITE(listeners)
{
    Suite *suite = suite_create("listeners");
    TCase *tc = tcase_create("listeners");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, several_addresses_lead_to_one_store);
    tcase_add_test(tc, a_failed_listener_does_not_stop_the_others);
    tcase_add_test(tc, an_inherited_listening_socket_is_taken_over);
    TCase *allowed = tcase_create("allowed");
    tcase_set_timeout(allowed, 60);
    tcase_add_test(allowed, other_addresses_are_served_unless_a_list_omits_them);
    tcase_add_test(allowed, our_own_processes_need_no_list);
    tcase_add_test(allowed, other_users_are_refused_by_all_addresses_of_this_machine);
    tcase_add_test(allowed, a_list_admits_other_users_of_this_machine);
    suite_add_tcase(suite, tc);
    suite_add_tcase(suite, allowed);
    return suite;
}
