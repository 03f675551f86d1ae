/* A store that a rank serves: a client that sends the secret word can use the whole store, any
 * other client nothing. */
#include "common/clock.h"
#include "common/error.h"
#include "rendezvous/client/client.h"
#include "tests/support/suite.h"
#include "worker-runtime/interfaces/net_address.h"
#include "worker-runtime/join/store_host.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DEADLINE_MS = 60000, UNANSWERED_MS = 500 };

static const uint8_t word[STORE_HOST_WORD_BYTES] = "the word of this job, 32 bytes!";
static struct store_host *host;
static uint16_t port;
static struct co_error err;

static void set_up(void)
{
    const struct net_address any = {.family = AF_INET, .bytes = {127, 0, 0, 1}};
    port = 0;
    ck_assert_int_eq(store_host_open(&any, &port, word, 4, &host, &err), 0);
}

static void tear_down(void)
{
    store_host_close(host);
}

static struct store_client *enter(void)
{
    struct store_client *c;
    ck_assert_msg(client_connect_by_word("127.0.0.1", port, word, sizeof word,
                                         co_deadline_ms(DEADLINE_MS), &c, &err) == 0,
                  "%s", err.text);
    return c;
}

static void set(struct store_client *c, const char *key, const char *value)
{
    ck_assert_int_eq(
        client_set(c, key, strlen(key), value, strlen(value), co_deadline_ms(DEADLINE_MS), &err),
        0);
}

static void expect(struct store_client *c, const char *key, const char *value)
{
    uint8_t *heard;
    size_t n;
    ck_assert_msg(client_get(c, key, strlen(key), co_deadline_ms(DEADLINE_MS), &heard, &n, &err) ==
                      0,
                  "%s", err.text);
    ck_assert_str_eq((char *)heard, value);
    free(heard);
}

START_TEST(ranks_exchange_stored_values)
{
    struct store_client *a = enter(), *b = enter();
    int64_t number;
    set(a, "key", "value");
    expect(a, "key", "value");
    expect(b, "key", "value");
    ck_assert_int_eq(client_add(b, "n", 1, 3, co_deadline_ms(DEADLINE_MS), &number, &err), 0);
    ck_assert_int_eq(client_add(a, "n", 1, 4, co_deadline_ms(DEADLINE_MS), &number, &err), 0);
    ck_assert_int_eq(number, 7);
    client_close(a);
    client_close(b);
}
END_TEST

static void *store_later(void *arg)
{
    struct store_client *c = arg;
    set(c, "late", "here");
    return NULL;
}

START_TEST(a_wait_ends_when_another_rank_sets_the_key)
{
    struct store_client *a = enter(), *b = enter();
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, store_later, b), 0);
    expect(a, "late", "here");
    pthread_join(thread, NULL);
    client_close(a);
    client_close(b);
}
END_TEST

/* More than fits into the sockets on its way. */
START_TEST(large_values_are_stored)
{
    enum { N = 8 << 20 };
    struct store_client *a = enter();
    uint8_t *large = malloc(N), *heard;
    size_t n;
    ck_assert_ptr_nonnull(large);
    for (size_t i = 0; i < N; i++)
        large[i] = (uint8_t)(i * 7 >> 3);
    ck_assert_int_eq(client_set(a, "large", 5, large, N, co_deadline_ms(DEADLINE_MS), &err), 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(client_get(a, "large", 5, co_deadline_ms(DEADLINE_MS), &heard, &n, &err),
                         0);
        ck_assert_uint_eq(n, N);
        ck_assert(memcmp(heard, large, N) == 0);
        free(heard);
    }
    free(large);
    client_close(a);
}
END_TEST

static int unproven_peer(void)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void expect_end(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char byte;
    ck_assert_int_eq(poll(&p, 1, DEADLINE_MS), 1);
    ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
    close(fd);
}

START_TEST(a_wrong_secret_closes_the_connection_without_an_answer)
{
    static const char *const words[] = {"x he word of this job, 32 bytes!!",
                                        "the word of this job, 32 bytes!?",
                                        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const int fd = unproven_peer();
        ck_assert_int_eq(send(fd, words[i], strlen(words[i]), MSG_NOSIGNAL),
                         (ssize_t)strlen(words[i]));
        expect_end(fd);
    }
    struct store_client *c;
    /* a greeting without a word is shorter than one: nothing comes back */
    ck_assert_int_lt(
        client_connect_once("127.0.0.1", port, co_deadline_ms(UNANSWERED_MS), &c, &err), 0);
    client_close(enter()); /* the store still serves other clients */
}
END_TEST

/* Else 32 times 256 guesses were all that it takes. The host takes care of its guests in one
 * thread: what came before another guest's answer was looked at before. */
START_TEST(right_and_wrong_parts_of_the_secret_get_the_same_answer)
{
    static const char *const parts[] = {"x", "t", "the word of this job, 32 bytes!",
                                        "the word of this job, 32 bytes?"};
    enum { N = sizeof parts / sizeof *parts };
    int fds[N];
    char byte;
    for (size_t i = 0; i < N; i++) {
        fds[i] = unproven_peer();
        ck_assert_int_eq(send(fds[i], parts[i], strlen(parts[i]), MSG_NOSIGNAL),
                         (ssize_t)strlen(parts[i]));
    }
    struct store_client *a = enter();
    for (int i = 0; i < 3; i++) {
        set(a, "key", "value");
        expect(a, "key", "value");
    }
    for (size_t i = 0; i < N; i++) {
        ck_assert_int_eq(recv(fds[i], &byte, 1, MSG_DONTWAIT), -1);
        ck_assert_int_eq(errno, EAGAIN);
        close(fds[i]);
    }
    client_close(a);
}
END_TEST

START_TEST(the_secret_may_arrive_in_pieces)
{
    static const uint8_t hello[] = {0, 0xce, 0xf7, 0x85, 0x3c, 12};
    const int fd = unproven_peer();
    uint8_t answer;
    for (size_t i = 0; i < sizeof word; i++)
        ck_assert_int_eq(send(fd, word + i, 1, MSG_NOSIGNAL), 1);
    ck_assert_int_eq(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    ck_assert_int_eq(recv(fd, &answer, 1, 0), 1);
    ck_assert_int_eq(answer, 1); /* the reply to a canceled wait */
    close(fd);
}
END_TEST

/* Those without a byte would not even be accepted for a while. */
START_TEST(many_silent_connections_do_not_block_ranks)
{
    enum { N = 100 };
    int fds[N];
    for (int i = 0; i < N; i++) {
        fds[i] = unproven_peer();
        ck_assert_int_eq(send(fds[i], word, 1, MSG_NOSIGNAL), 1);
    }
    struct store_client *a = enter();
    set(a, "key", "value");
    expect(a, "key", "value");
    expect_end(fds[0]); /* the first of too many */
    for (int i = 1; i < N; i++)
        close(fds[i]);
    client_close(a);
}
END_TEST

START_TEST(a_store_without_a_secret_serves_at_the_port_that_is_asked_for)
{
    const struct net_address all = {.family = AF_INET, .bytes = {127, 0, 0, 1}};
    struct store_host *other;
    struct store_client *c;
    for (int i = 0; i < 2; i++) { /* as the process of a restarted rank */
        store_host_close(host);
        ck_assert_msg(store_host_open(&all, &port, NULL, 4, &host, &err) == 0, "%s", err.text);
        ck_assert_int_eq(client_connect("127.0.0.1", port, co_deadline_ms(DEADLINE_MS), &c, &err),
                         0);
        set(c, "key", "value");
        expect(c, "key", "value");
        ck_assert_int_eq(store_host_open(&all, &port, NULL, 4, &other, &err), -EADDRINUSE);
        client_close(c);
    }
}
END_TEST

START_TEST(an_invalid_request_closes_the_connection)
{
    const int fd = unproven_peer();
    ck_assert_int_eq(send(fd, word, sizeof word, MSG_NOSIGNAL), sizeof word);
    ck_assert_int_eq(send(fd, "\xff\xff\xff\xff", 4, MSG_NOSIGNAL), 4);
    expect_end(fd);
    client_close(enter());
}
END_TEST

/* The host takes care of its guests in one thread: when `a` has been answered three times, it has
 * tried to take the late one. */
START_TEST(a_connection_without_a_free_descriptor_is_accepted_later)
{
    static const uint8_t hello[] = {0, 0xce, 0xf7, 0x85, 0x3c, 12};
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct store_client *a = enter();
    struct rlimit before;
    uint8_t answer;
    const int late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    const int next = dup(0); /* descriptors are given out lowest first */
    close(next);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)next, before.rlim_max}), 0);
    ck_assert_int_eq(connect(late, (const struct sockaddr *)&to, sizeof to), 0);
    for (int i = 0; i < 3; i++)
        set(a, "key", "value");
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    ck_assert_int_eq(send(late, word, sizeof word, MSG_NOSIGNAL), sizeof word);
    ck_assert_int_eq(send(late, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    ck_assert_int_eq(recv(late, &answer, 1, 0), 1);
    close(late);
    client_close(a);
}
END_TEST

TEST_SUITE(store_host)
{
    Suite *suite = suite_create("store_host");
    TCase *t = tcase_create("store_host");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, ranks_exchange_stored_values);
    tcase_add_test(t, a_wait_ends_when_another_rank_sets_the_key);
    tcase_add_test(t, large_values_are_stored);
    tcase_add_test(t, a_wrong_secret_closes_the_connection_without_an_answer);
    tcase_add_test(t, right_and_wrong_parts_of_the_secret_get_the_same_answer);
    tcase_add_test(t, the_secret_may_arrive_in_pieces);
    tcase_add_test(t, many_silent_connections_do_not_block_ranks);
    tcase_add_test(t, a_connection_without_a_free_descriptor_is_accepted_later);
    tcase_add_test(t, a_store_without_a_secret_serves_at_the_port_that_is_asked_for);
    tcase_add_test(t, an_invalid_request_closes_the_connection);
    suite_add_tcase(suite, t);
    return suite;
}
