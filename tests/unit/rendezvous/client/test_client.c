#include "common/clock.h"
#include "common/error.h"
#include "rendezvous/client/client.h"
#include "tests/support/suite.h"
#include "tests/unit/rendezvous/server/served.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct co_error err;

static uint64_t soon(void)
{
    return co_deadline_ms(SERVED_DEADLINE_MS);
}

static struct store_client *connect_to(uint16_t port)
{
    struct store_client *c;
    ck_assert_msg(client_connect("127.0.0.1", port, soon(), &c, &err) == 0, "%s", err.text);
    return c;
}

static void assert_value(struct store_client *c, const char *key, const char *expected)
{
    uint8_t *value;
    size_t len;
    ck_assert_msg(client_get(c, key, strlen(key), soon(), &value, &len, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(len, strlen(expected));
    ck_assert_str_eq((char *)value, expected); /* a NUL follows */
    free(value);
}

START_TEST(a_stored_value_is_returned)
{
    struct served *s = served_start(NULL);
    struct store_client *c = connect_to(served_port(s));
    int64_t n;
    ck_assert_int_eq(client_set(c, "k", 1, "value", 5, soon(), &err), 0);
    assert_value(c, "k", "value");
    ck_assert_int_eq(client_set(c, "k", 1, "", 0, soon(), &err), 0);
    assert_value(c, "k", "");
    ck_assert_int_eq(client_add(c, "n", 1, 5, soon(), &n, &err), 0);
    ck_assert_int_eq(n, 5);
    ck_assert_int_eq(client_add(c, "n", 1, -7, soon(), &n, &err), 0);
    ck_assert_int_eq(n, -2);
    assert_value(c, "n", "-2");
    ck_assert_int_eq(client_wait(c, "n", 1, soon(), &err), 0);
    ck_assert_int_eq(client_delete(c, "n", 1, soon(), &n, &err), 0);
    ck_assert_int_eq(n, 1);
    ck_assert_int_eq(client_delete(c, "n", 1, soon(), &n, &err), 0);
    ck_assert_int_eq(n, 0);
    client_close(c);
    client_close(NULL);
    served_stop(s);
}
END_TEST

START_TEST(a_key_is_checked_without_waiting)
{
    struct served *s = served_start(NULL);
    struct store_client *c = connect_to(served_port(s));
    uint8_t *value;
    size_t len;
    bool is_there = true;
    ck_assert_int_eq(client_check(c, "k", 1, soon(), &is_there, &err), 0);
    ck_assert(!is_there);
    ck_assert_int_eq(client_get_now(c, "k", 1, soon(), &value, &len, &err), -ENOENT);
    ck_assert_str_eq(err.text, "no such key in the store: 'k'");
    ck_assert_int_eq(client_set(c, "k", 1, "value", 5, soon(), &err), 0);
    ck_assert_int_eq(client_check(c, "k", 1, soon(), &is_there, &err), 0);
    ck_assert(is_there);
    ck_assert_int_eq(client_get_now(c, "k", 1, soon(), &value, &len, &err), 0);
    ck_assert_uint_eq(len, 5);
    ck_assert_str_eq((char *)value, "value");
    free(value);
    client_close(c);
    served_stop(s);
}
END_TEST

static void assert_keys(struct store_client *c, size_t n, const char *const *expected)
{
    struct client_keys keys;
    ck_assert_msg(client_list_keys(c, soon(), &keys, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(keys.n, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(keys.keys[i].len == strlen(expected[i]) &&
                          memcmp(keys.keys[i].at, expected[i], keys.keys[i].len) == 0,
                      "key %zu is no '%s'", i, expected[i]);
    client_keys_fini(&keys);
}

START_TEST(keys_are_listed_in_order)
{
    struct served *s = served_start(NULL);
    struct store_client *c = connect_to(served_port(s));
    static const char *const keys[] = {"", "/a", "/a/b", "/b", "init/"};
    assert_keys(c, 0, NULL);
    for (size_t i = 0; i < 5; i++)
        ck_assert_int_eq(client_set(c, keys[4 - i], strlen(keys[4 - i]), "1", 1, soon(), &err), 0);
    assert_keys(c, 5, keys);
    assert_value(c, "/a", "1"); /* nothing of the list is left on the connection */

    struct client_keys many;
    for (int i = 0; i < 20000; i++) {
        char key[16];
        int len = snprintf(key, sizeof key, "key%05d", i);
        ck_assert_int_eq(client_set(c, key, (size_t)len, "", 0, soon(), &err), 0);
    }
    ck_assert_int_eq(client_list_keys(c, soon(), &many, &err), 0);
    ck_assert_uint_eq(many.n, 20005);
    client_keys_fini(&many);
    client_close(c);
    served_stop(s);
}
END_TEST

START_TEST(large_values_are_returned_completely)
{
    static const size_t sizes[] = {65535, 65536, 65537, 3 << 20, (8 << 20) + 1};
    struct served *s = served_start(NULL);
    struct store_client *c = connect_to(served_port(s));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *value = malloc(sizes[i]);
        uint8_t *back;
        size_t len;
        ck_assert_ptr_nonnull(value);
        for (size_t j = 0; j < sizes[i]; j++)
            value[j] = (uint8_t)(j * 2654435761u >> 11);
        ck_assert_int_eq(client_set(c, "k", 1, value, sizes[i], soon(), &err), 0);
        ck_assert_int_eq(client_get(c, "k", 1, soon(), &back, &len, &err), 0);
        ck_assert_uint_eq(len, sizes[i]);
        ck_assert(memcmp(value, back, len) == 0);
        ck_assert_uint_eq(back[len], 0);
        free(value);
        free(back);
    }
    client_close(c);
    served_stop(s);
}
END_TEST

START_TEST(a_wait_that_timed_out_leaves_the_connection_usable)
{
    struct served *s = served_start(NULL);
    struct store_client *c = connect_to(served_port(s));
    uint8_t *value;
    size_t len;
    for (uint64_t timeout_ms = 0; timeout_ms <= 20; timeout_ms += 20) {
        uint64_t deadline_ms = co_deadline_ms(timeout_ms);
        ck_assert_int_eq(client_get(c, "missing", 7, deadline_ms, &value, &len, &err), -ETIMEDOUT);
        ck_assert_str_eq(err.text, "timed out waiting for the key 'missing' in the store");
        ck_assert_int_eq(client_set(c, "missing", 7, "1", 1, soon(), &err), 0);
        assert_value(c, "missing", "1");
        int64_t n_deleted;
        ck_assert_int_eq(client_delete(c, "missing", 7, soon(), &n_deleted, &err), 0);
        ck_assert_int_eq(n_deleted, 1);
    }
    client_close(c);
    served_stop(s);
}
END_TEST

static void *get_late(void *arg)
{
    assert_value(arg, "late", "now");
    return NULL;
}

START_TEST(a_get_waits_for_its_key)
{
    struct served *s = served_start(NULL);
    struct store_client *waiter = connect_to(served_port(s));
    struct store_client *setter = connect_to(served_port(s));
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, get_late, waiter), 0);
    ck_assert_int_eq(client_set(setter, "late", 4, "now", 3, soon(), &err), 0);
    pthread_join(thread, NULL);
    client_close(waiter);
    client_close(setter);
    served_stop(s);
}
END_TEST

static void *connect_early(void *arg)
{
    uint16_t port = *(uint16_t *)arg;
    struct store_client *c = connect_to(port);
    ck_assert_int_eq(client_set(c, "k", 1, "v", 1, soon(), &err), 0);
    assert_value(c, "k", "v");
    client_close(c);
    return NULL;
}

START_TEST(connecting_waits_for_the_server)
{
    struct served *s = served_start(NULL);
    uint16_t port = served_port(s);
    served_stop(s); /* a port on which no process listens */
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, connect_early, &port), 0);
    s = served_start(&(struct server_opts){.port = port});
    pthread_join(thread, NULL);
    served_stop(s);
}
END_TEST

START_TEST(connecting_without_a_server_times_out_with_the_reason)
{
    struct served *s = served_start(NULL);
    uint16_t port = served_port(s);
    served_stop(s);
    struct store_client *c;
    ck_assert_int_eq(client_connect("127.0.0.1", port, co_deadline_ms(30), &c, &err), -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot reach the store at 127.0.0.1 port "));
    ck_assert_ptr_nonnull(strstr(err.text, "Connection refused"));
    ck_assert_int_eq(client_connect_once("127.0.0.1", port, soon(), &c, &err), -ECONNREFUSED);
    ck_assert_msg(strstr(err.text, "Connection refused") != NULL, "%s", err.text);
    ck_assert_int_eq(client_connect("no such host.", port, co_deadline_ms(30), &c, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot resolve 'no such host.'"));
}
END_TEST

START_TEST(a_server_that_closes_is_detected)
{
    struct served *s = served_start(NULL);
    struct store_client *c = connect_to(served_port(s));
    served_stop(s);
    ck_assert_int_eq(client_wait(c, "k", 1, soon(), &err), -EPIPE);
    ck_assert_ptr_nonnull(strstr(err.text, "lost the connection to the store"));
    int64_t n;
    ck_assert_int_eq(client_add(c, "k", 1, 1, soon(), &n, &err), -EPIPE);
    ck_assert_ptr_nonnull(strstr(err.text, "was lost earlier"));
    client_close(c);
}
END_TEST

/* --- a double for servers that misbehave: answers each connection's bytes by a script --- */

struct script {
    int listener;
    uint16_t port;
    pthread_t thread;
    const struct exchange {
        size_t n_awaited;   /* so many bytes come first */
        const char *answer; /* hex; NULL: close */
    } * exchanges;
};

static void *act(void *arg)
{
    struct script *script = arg;
    int fd = accept(script->listener, NULL, NULL);
    ck_assert_int_ge(fd, 0);
    for (const struct exchange *e = script->exchanges; e->answer != NULL; e++) {
        uint8_t bytes[256];
        raw_receive(fd, bytes, e->n_awaited);
        raw_send_hex(fd, e->answer);
    }
    shutdown(fd, SHUT_WR);
    uint8_t rest;
    while (recv(fd, &rest, 1, 0) > 0)
        ;
    close(fd);
    return NULL;
}

static void script_start(struct script *script, const struct exchange *exchanges)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof any;
    script->exchanges = exchanges;
    script->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(script->listener, (struct sockaddr *)&any, sizeof any), 0);
    ck_assert_int_eq(listen(script->listener, 1), 0);
    ck_assert_int_eq(getsockname(script->listener, (struct sockaddr *)&any, &len), 0);
    script->port = ntohs(any.sin_port);
    ck_assert_int_eq(pthread_create(&script->thread, NULL, act, script), 0);
}

static void script_stop(struct script *script)
{
    pthread_join(script->thread, NULL);
    close(script->listener);
}

#define HELLO_ANSWER "01010101"
enum {
    HELLO = 9,   /* VALIDATE and four CANCEL_WAIT */
    WAIT_K = 18, /* for the key "k" */
    GET_K = 10,
    CANCEL = 1,
};

START_TEST(a_server_of_another_protocol_is_refused)
{
    struct script script;
    struct store_client *c;
    script_start(&script, (struct exchange[]){{HELLO, "48 54 54 50"}, {0}});
    ck_assert_int_eq(client_connect("127.0.0.1", script.port, soon(), &c, &err), -EPROTO);
    ck_assert_ptr_nonnull(strstr(err.text, "the program that listens there is not a TCPStore: byte "
                                           "0 of its answer is 72 instead of 1"));
    script_stop(&script);
}
END_TEST

START_TEST(a_server_that_closes_at_once_is_taken_for_an_old_one)
{
    struct script script;
    struct store_client *c;
    script_start(&script, (struct exchange[]){{HELLO, "01"}, {0}});
    ck_assert_int_eq(client_connect_once("127.0.0.1", script.port, soon(), &c, &err), -EPIPE);
    ck_assert_ptr_nonnull(strstr(err.text, "as stores of PyTorch before 2.2 do"));
    script_stop(&script);
}
END_TEST

START_TEST(an_answer_may_cross_its_cancellation)
{
    struct script script;
    script_start(&script, (struct exchange[]){{HELLO, HELLO_ANSWER},
                                              {WAIT_K + CANCEL, "00 01"},
                                              {WAIT_K, "00"},
                                              {GET_K, "0100000000000000 78"},
                                              {0}});
    struct store_client *c = connect_to(script.port);
    ck_assert_int_eq(client_wait(c, "k", 1, co_deadline_ms(20), &err), -ETIMEDOUT);
    assert_value(c, "k", "x");
    client_close(c);
    script_stop(&script);
}
END_TEST

static void assert_get_fails(const struct exchange *exchanges, int rc, const char *text)
{
    struct script script;
    uint8_t *value;
    size_t len;
    script_start(&script, exchanges);
    struct store_client *c = connect_to(script.port);
    ck_assert_int_eq(client_get(c, "k", 1, co_deadline_ms(300), &value, &len, &err), rc);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
    ck_assert_int_eq(client_get(c, "k", 1, soon(), &value, &len, &err), -EPIPE);
    client_close(c);
    script_stop(&script);
}

START_TEST(invalid_answers_end_the_connection)
{
    assert_get_fails((struct exchange[]){{HELLO, HELLO_ANSWER}, {WAIT_K, "02"}, {0}}, -EPROTO,
                     "invalid answer of the store to a wait: 2");
    assert_get_fails((struct exchange[]){{HELLO, HELLO_ANSWER}, {WAIT_K + CANCEL, "07"}, {0}},
                     -EPROTO, "invalid answer of the store to a canceled wait: 7");
    assert_get_fails(
        (struct exchange[]){
            {HELLO, HELLO_ANSWER}, {WAIT_K, "00"}, {GET_K, "0000000000010000"}, {0}},
        -EPROTO, "a value of 1099511627776 bytes");
    assert_get_fails(
        (struct exchange[]){
            {HELLO, HELLO_ANSWER}, {WAIT_K, "00"}, {GET_K, "ffffffffffffffff"}, {0}},
        -EPROTO, "a value of 18446744073709551615 bytes");
}
END_TEST

START_TEST(an_incomplete_answer_is_an_error)
{
    /* a GiB is promised, three bytes come: memory is not taken for a promise */
    assert_get_fails(
        (struct exchange[]){
            {HELLO, HELLO_ANSWER}, {WAIT_K, "00"}, {GET_K, "0000004000000000 010203"}, {0}},
        -EPIPE, "the store closed the connection");
}
END_TEST

static void assert_list_fails(const char *answer, int rc, const char *text)
{
    struct script script;
    struct client_keys keys;
    script_start(&script, (struct exchange[]){{HELLO, HELLO_ANSWER}, {1, answer}, {0}});
    struct store_client *c = connect_to(script.port);
    ck_assert_int_eq(client_list_keys(c, soon(), &keys, &err), rc);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
    ck_assert_int_eq(client_list_keys(c, soon(), &keys, &err), -EPIPE);
    client_close(c);
    script_stop(&script);
}

START_TEST(invalid_lists_end_the_connection)
{
    assert_list_fails("ffffffffffffffff", -EPROTO, "has 18446744073709551615 keys");
    assert_list_fails("0100000100000000", -EPROTO, "has 16777217 keys");
    assert_list_fails("0100000000000000 0000004000000000", -EPROTO, "exceed 1 GiB");
    assert_list_fails("0100000000000000 ffffffffffffffff", -EPROTO, "exceed 1 GiB");
    assert_list_fails("0200000000000000 0100000000000000 61", -EPIPE, "closed the connection");
    assert_list_fails("", -EPIPE, "closed the connection"); /* torch before 2.10 */
}
END_TEST

START_TEST(an_invalid_check_ends_the_connection)
{
    struct script script;
    bool is_there;
    enum { CHECK_K = 18 };
    script_start(&script, (struct exchange[]){{HELLO, HELLO_ANSWER}, {CHECK_K, "05"}, {0}});
    struct store_client *c = connect_to(script.port);
    ck_assert_int_eq(client_check(c, "k", 1, soon(), &is_there, &err), -EPROTO);
    ck_assert_str_eq(err.text, "invalid answer of the store to a check: 5");
    client_close(c);
    script_stop(&script);
}
END_TEST

TEST_SUITE(client)
{
    Suite *suite = suite_create("client");
    TCase *tc = tcase_create("client");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, a_stored_value_is_returned);
    tcase_add_test(tc, a_key_is_checked_without_waiting);
    tcase_add_test(tc, keys_are_listed_in_order);
    tcase_add_test(tc, large_values_are_returned_completely);
    tcase_add_test(tc, a_wait_that_timed_out_leaves_the_connection_usable);
    tcase_add_test(tc, a_get_waits_for_its_key);
    tcase_add_test(tc, connecting_waits_for_the_server);
    tcase_add_test(tc, connecting_without_a_server_times_out_with_the_reason);
    tcase_add_test(tc, a_server_that_closes_is_detected);
    tcase_add_test(tc, a_server_of_another_protocol_is_refused);
    tcase_add_test(tc, a_server_that_closes_at_once_is_taken_for_an_old_one);
    tcase_add_test(tc, an_answer_may_cross_its_cancellation);
    tcase_add_test(tc, invalid_answers_end_the_connection);
    tcase_add_test(tc, an_incomplete_answer_is_an_error);
    tcase_add_test(tc, invalid_lists_end_the_connection);
    tcase_add_test(tc, an_invalid_check_ends_the_connection);
    suite_add_tcase(suite, tc);
    return suite;
}
