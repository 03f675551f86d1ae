/* Both ends of a link on loopback, in one loop: how it is made, refused, lost and made again. The
 * clients are sockets of this process. What they are served is in test_relayed.c. */
#include "relay_ends.h"

#include "rendezvous/channel/seal.h"
#include "tests/support/suite.h"

enum { MAX_CLIENTS = 3 };

#define PING  "\15ping"           /* is answered with "ping" */
#define HELLO "\0\316\367\205\74" /* VALIDATE and its magic number */
#define SET   "\1\1\0\0\0\0\0\0\0k\1\0\0\0\0\0\0\0v"
#define WAIT  "\6\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0k"

static struct relay_port *port, *other;
static struct seal_key key, other_key;
static struct co_error err;

/* --- both ends --- */

static void open_hub(const struct seal_key *k)
{
    const struct relay_hub_opts o = hub_opts(k);
    ck_assert_int_eq(relay_hub_create(&loop, &o, &hub, &err), 0);
}

static struct relay_port *open_port(const struct seal_key *k, const char *run_id,
                                    uint32_t generation)
{
    struct relay_port *p;
    const struct relay_port_opts o = {.host = "127.0.0.1",
                                      .port = server_port(listener),
                                      .key = k,
                                      .run_id = run_id,
                                      .generation = generation,
                                      .max_clients = MAX_CLIENTS,
                                      .give_up_ms = 300,
                                      .on_refused = on_refused,
                                      .arg = refused[1]};
    ck_assert_msg(relay_port_open(&loop, &o, &p, &err) == 0, "%s", err.text);
    return p;
}

static void set_up(void)
{
    port = other = NULL;
    open_store();
    ck_assert_int_eq(seal_key_init(&key, "0123456789abcdef0123456789abcdef", 32, &err), 0);
    ck_assert_int_eq(seal_key_init(&other_key, "fedcba9876543210fedcba9876543210", 32, &err), 0);
}

static void tear_down(void)
{
    relay_port_close(port);
    relay_port_close(other);
    close_store();
}

/* --- clients --- */

static void client_send(int fd, const char *bytes, size_t len)
{
    ck_assert_int_eq(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}
#define client_send_text(fd, text) client_send(fd, text, sizeof(text) - 1)

/* A client of torch 2.2 or later. */
static int connect_client(const struct relay_port *p)
{
    int fd = connect_to(relay_port_number(p));
    client_send_text(fd, HELLO);
    return fd;
}

static void expect_reply(int fd, const char *bytes, size_t len)
{
    char got[64];
    run_until(has_come, &(struct awaited){fd, len}, "a reply");
    ck_assert_int_eq(recv(fd, got, len, 0), (ssize_t)len);
    ck_assert_mem_eq(got, bytes, len);
}

static void expect_service(int fd)
{
    client_send_text(fd, PING);
    expect_reply(fd, "ping", 4);
}

/* --- the cases --- */

START_TEST(clients_of_a_node_share_a_link)
{
    open_hub(&key);
    port = open_port(&key, "job", 3);
    ck_assert_uint_eq(relay_hub_n_links(hub), 0); /* not before there is a client */
    int a = connect_client(port), b = connect_client(port);
    expect_service(a);
    expect_service(b);
    ck_assert_uint_eq(relay_hub_n_links(hub), 1);
    ck_assert_uint_eq(relay_hub_n_clients(hub), 2);
    ck_assert_str_eq(refused[0], "");
    ck_assert_str_eq(refused[1], "");
    close(a);
    close(b);
}
END_TEST

static bool may_sleep(const void *arg)
{
    (void)arg;
    return uv_backend_timeout(&loop) != 0;
}

START_TEST(ends_that_poll_sleep_when_nothing_comes)
{
    open_hub(&key);
    port = open_port(&key, "job", 3);
    int a = connect_client(port);
    for (int i = 0; i < 20; i++)
        expect_service(a); /* fast enough to be polled for, or not */
    run_until(may_sleep, NULL, "a loop that sleeps");
    client_send_text(a, WAIT);
    run_until(may_sleep, NULL, "a loop that sleeps");
    close(a);
}
END_TEST

START_TEST(relayed_and_direct_clients_wake_each_other)
{
    open_hub(NULL);
    port = open_port(NULL, "job", 3);
    other = open_port(NULL, "job", 3);
    int here = connect_to(server_port(store)), there = connect_client(port);
    int elsewhere = connect_client(other);
    client_send_text(here, HELLO WAIT);
    client_send_text(elsewhere, WAIT);
    expect_service(there);
    client_send_text(there, SET);
    expect_reply(here, "\0", 1);
    expect_reply(elsewhere, "\0", 1);
    ck_assert_uint_eq(relay_hub_n_links(hub), 2);
    close(here);
    close(there);
    close(elsewhere);
}
END_TEST

START_TEST(a_direct_client_wakes_a_relayed_one)
{
    open_hub(NULL);
    port = open_port(NULL, "job", 3);
    int here = connect_to(server_port(store)), there = connect_client(port);
    client_send_text(there, WAIT);
    expect_service(there); /* the store has the wait */
    client_send_text(here, HELLO SET);
    expect_reply(there, "\0", 1);
    close(here);
    close(there);
}
END_TEST

START_TEST(another_token_is_refused)
{
    open_hub(&key);
    port = open_port(&other_key, "job", 3);
    expect_end(connect_client(port));
    await_report("relay to 127.0.0.1 port ");
    await_report("token");
    ck_assert_uint_eq(relay_hub_n_links(hub), 0);
}
END_TEST

START_TEST(a_token_at_one_end_only_is_refused)
{
    open_hub(&key);
    port = open_port(NULL, "job", 3);
    expect_end(connect_client(port));
    await_report("token");
}
END_TEST

START_TEST(a_link_of_another_job_or_generation_is_refused)
{
    open_hub(&key);
    port = open_port(&key, "job 2", 3);
    other = open_port(&key, "job", 4);
    expect_end(connect_client(port));
    await_report("it is for another job, generation or version");
    expect_end(connect_client(other));
    ck_assert_uint_eq(relay_hub_n_links(hub), 0);
}
END_TEST

START_TEST(the_end_of_the_store_ends_clients_without_a_report)
{
    open_hub(&key);
    port = open_port(&key, "job", 3);
    int a = connect_client(port), waits = connect_client(port);
    client_send_text(waits, WAIT);
    expect_service(a);
    relay_hub_close(hub);
    hub = NULL;
    expect_end(a);
    expect_end(waits);
    ck_assert_uint_eq(relay_port_n_clients(port), 0);
    ck_assert_str_eq(refused[1], "");
}
END_TEST

START_TEST(a_lost_link_is_made_again_for_the_next_client)
{
    open_hub(&key);
    port = open_port(&key, "job", 3);
    int a = connect_client(port);
    expect_service(a);
    relay_hub_close(hub);
    open_hub(&key);
    expect_end(a);
    a = connect_client(port);
    expect_service(a);
    close(a);
}
END_TEST

START_TEST(clients_wait_for_the_link_until_its_deadline)
{
    const uint16_t number = server_port(listener);
    open_hub(&key);
    port = open_port(&key, "job", 3);
    server_close(listener, NULL, NULL);
    listener = NULL;
    uv_run(&loop, UV_RUN_NOWAIT);
    expect_end(connect_client(port));
    await_report("no connection for ");
    ck_assert_uint_ne(number, 0);
}
END_TEST

START_TEST(clients_of_a_node_are_bounded)
{
    int fds[MAX_CLIENTS];
    open_hub(&key);
    port = open_port(&key, "job", 3);
    for (int i = 0; i < MAX_CLIENTS; i++)
        expect_service(fds[i] = connect_client(port));
    expect_end(connect_client(port));
    await_report("3 clients are connected, the maximum");
    for (int i = 0; i < MAX_CLIENTS; i++) {
        expect_service(fds[i]);
        close(fds[i]);
    }
}
END_TEST

/* A greeting has come, and nothing more does. */
static int connect_unproven(void)
{
    static const uint8_t greeting[SEAL_GREETING_BYTES] = {
        'D', 'D', 'P', '1', RELAY_LINK_VERSION, RELAY_LINK_VERSION, 1};
    int fd = connect_to(server_port(listener));
    client_send(fd, (const char *)greeting, sizeof greeting);
    for (int i = 0; i < 3; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    return fd;
}

START_TEST(unproven_links_are_replaced_by_others)
{
    int fds[MAX_LINKS + 2];
    open_hub(&key);
    port = open_port(&key, "job", 3);
    int a = connect_client(port);
    expect_service(a);
    for (int i = 0; i < MAX_LINKS + 2; i++)
        fds[i] = connect_unproven();
    other = open_port(&key, "job", 3);
    int b = connect_client(other);
    expect_service(b);
    expect_service(a);
    ck_assert_uint_eq(relay_hub_n_links(hub), 2);
    close(a);
    close(b);
    for (int i = 0; i < MAX_LINKS + 2; i++)
        close(fds[i]);
}
END_TEST

START_TEST(a_control_connection_gets_an_answer_and_is_closed)
{
    static const uint8_t greeting[SEAL_GREETING_BYTES] = {'D', 'D', 'P', '1', 1, 9, 1};
    open_hub(NULL);
    int fd = connect_to(server_port(listener));
    client_send(fd, (const char *)greeting, sizeof greeting);
    run_until(has_come, &(struct awaited){fd, 1}, "an answer");
    close(fd);
    await_report("relay link from 127.0.0.1:");
}
END_TEST

/* What a link has stored stays, and what its clients wait for does not. */
START_TEST(a_lost_node_leaves_its_keys)
{
    open_hub(&key);
    port = open_port(&key, "job", 3);
    other = open_port(&key, "job", 3);
    int a = connect_client(port), b = connect_client(other);
    client_send_text(a, SET);
    expect_service(a);
    relay_port_close(port);
    port = NULL;
    expect_end(a);
    client_send_text(b, WAIT);
    expect_reply(b, "\0", 1);
    ck_assert_uint_eq(relay_hub_n_clients(hub), 1);
    close(b);
}
END_TEST

TEST_SUITE(relay_port)
{
    Suite *suite = suite_create("relay_port");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, clients_of_a_node_share_a_link);
    tcase_add_test(all, ends_that_poll_sleep_when_nothing_comes);
    tcase_add_test(all, relayed_and_direct_clients_wake_each_other);
    tcase_add_test(all, a_direct_client_wakes_a_relayed_one);
    tcase_add_test(all, another_token_is_refused);
    tcase_add_test(all, a_token_at_one_end_only_is_refused);
    tcase_add_test(all, a_link_of_another_job_or_generation_is_refused);
    tcase_add_test(all, the_end_of_the_store_ends_clients_without_a_report);
    tcase_add_test(all, a_lost_link_is_made_again_for_the_next_client);
    tcase_add_test(all, clients_wait_for_the_link_until_its_deadline);
    tcase_add_test(all, clients_of_a_node_are_bounded);
    tcase_add_test(all, unproven_links_are_replaced_by_others);
    tcase_add_test(all, a_control_connection_gets_an_answer_and_is_closed);
    tcase_add_test(all, a_lost_node_leaves_its_keys);
    suite_add_tcase(suite, all);
    return suite;
}
