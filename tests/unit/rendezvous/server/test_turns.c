/* Turns of the loop are taken one by one here, with everything sent before the first: so it is
 * certain what the server found when. */
#include "common/clock.h"
#include "common/error.h"
#include "rendezvous/server/page.h"
#include "rendezvous/store/wire.h"
#include "served.h"
#include "tests/support/suite.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    /* more than a client's share of a turn, and than the share of all late clients */
    N_MANY = 60000
};

static uv_loop_t loop;
static struct server *server;

static void set_up(void)
{
    struct co_error err = {0};
    signal(SIGPIPE, SIG_IGN);
    uv_loop_init(&loop);
    ck_assert_msg(server_start(&loop, &(struct server_opts){0}, &server, &err) == 0, "%s",
                  err.text);
}

static void tear_down(void)
{
    server_close(server, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static int n_readable(int fd)
{
    int n = 0;
    ck_assert_int_eq(ioctl(fd, FIONREAD, &n), 0);
    return n;
}

static void run_until_readable(int fd, int n)
{
    uint64_t deadline_ms = co_deadline_ms(SERVED_DEADLINE_MS);
    while (n_readable(fd) < n) {
        ck_assert_msg(co_left_ms(deadline_ms) > 0, "%d of %d bytes", n_readable(fd), n);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
}

/* Each is answered with one byte. */
static void send_cancel_waits(int fd, size_t n)
{
    uint8_t *bytes = malloc(n);
    ck_assert_ptr_nonnull(bytes);
    memset(bytes, WIRE_CANCEL_WAIT, n);
    raw_send_hex(fd, "00 ce f7 85 3c");
    raw_send(fd, bytes, n);
    free(bytes);
}

START_TEST(a_small_client_does_not_wait_for_a_large_one)
{
    int greedy = raw_connect(server_port(server));
    send_cancel_waits(greedy, N_MANY);
    int modest = raw_connect(server_port(server));
    send_cancel_waits(modest, 1);
    run_until_readable(modest, 1);
    ck_assert_int_lt(n_readable(greedy), N_MANY);
    run_until_readable(greedy, N_MANY); /* and nothing is lost */
    close(greedy);
    close(modest);
}
END_TEST

START_TEST(late_clients_take_turns)
{
    int first = raw_connect(server_port(server));
    int second = raw_connect(server_port(server));
    send_cancel_waits(first, N_MANY);
    send_cancel_waits(second, N_MANY);
    run_until_readable(first, N_MANY);
    ck_assert_int_gt(n_readable(second), N_MANY / 2);
    run_until_readable(second, N_MANY);
    close(first);
    close(second);
}
END_TEST

START_TEST(a_late_client_that_closes_leaves_the_queue)
{
    int gone = raw_connect(server_port(server));
    send_cancel_waits(gone, N_MANY);
    int stays = raw_connect(server_port(server));
    send_cancel_waits(stays, N_MANY);
    uv_run(&loop, UV_RUN_NOWAIT);
    uv_run(&loop, UV_RUN_NOWAIT);
    close(gone); /* with answers unread: a reset */
    run_until_readable(stays, N_MANY);
    uint64_t deadline_ms = co_deadline_ms(SERVED_DEADLINE_MS);
    while (server_n_clients(server) > 1) {
        ck_assert(co_left_ms(deadline_ms) > 0);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    close(stays);
}
END_TEST

START_TEST(new_clients_are_accepted_some_at_a_time)
{
    enum { N = 300 };
    int fds[N];
    for (int i = 0; i < N; i++) {
        fds[i] = raw_connect(server_port(server));
        send_cancel_waits(fds[i], 1);
    }
    uint32_t n_before = 0;
    for (int n_turns = 0; server_n_clients(server) < N; n_turns++) {
        ck_assert_int_lt(n_turns, N);
        uv_run(&loop, UV_RUN_NOWAIT);
        ck_assert_uint_lt(server_n_clients(server) - n_before, N / 2);
        n_before = server_n_clients(server);
    }
    for (int i = 0; i < N; i++) {
        run_until_readable(fds[i], 1);
        close(fds[i]);
    }
}
END_TEST

/* A value of which only the beginning comes. */
static void send_half_a_set(int fd, size_t n)
{
    uint8_t *bytes = calloc(1, 18 + n);
    ck_assert_ptr_nonnull(bytes);
    bytes[0] = WIRE_SET;
    wire_put_u64(bytes + 1, 1);
    wire_put_u64(bytes + 10, n + 1);
    raw_send_hex(fd, "00 ce f7 85 3c");
    raw_send(fd, bytes, 18 + n);
    free(bytes);
}

static void run_until_n_buffer_bytes(uint64_t least, uint64_t most)
{
    struct stats stats;
    uint64_t deadline_ms = co_deadline_ms(SERVED_DEADLINE_MS);
    do {
        ck_assert(co_left_ms(deadline_ms) > 0);
        uv_run(&loop, UV_RUN_NOWAIT);
        server_get_stats(server, &stats);
    } while (stats.n_buffer_bytes < least || stats.n_buffer_bytes > most);
}

START_TEST(pending_requests_are_dropped_with_their_client)
{
    enum { HALF = 50000 };
    struct stats before, stats;
    server_get_stats(server, &before);
    ck_assert_uint_eq(before.n_buffer_bytes, 0);
    int half = raw_connect(server_port(server));
    int late = raw_connect(server_port(server));
    int waits = raw_connect(server_port(server));
    send_half_a_set(half, HALF);
    raw_send_hex(waits,
                 "00 ce f7 85 3c 06 0200000000000000 0100000000000000 78 0100000000000000 79");
    send_cancel_waits(late, N_MANY);
    run_until_n_buffer_bytes(HALF, UINT64_MAX);
    run_until_readable(late, N_MANY);
    close(half);
    close(late);
    close(waits);
    run_until_n_buffer_bytes(0, 0);
    server_get_stats(server, &stats);
    ck_assert_uint_eq(stats.n_clients, 0);
    ck_assert_uint_eq(stats.n_store_bytes,
                      before.n_store_bytes); /* no name is waited for any more */
}
END_TEST

START_TEST(the_server_may_be_closed_while_a_client_is_late)
{
    int fd = raw_connect(server_port(server));
    send_cancel_waits(fd, N_MANY);
    uint64_t deadline_ms = co_deadline_ms(SERVED_DEADLINE_MS);
    while (n_readable(fd) == 0) {
        ck_assert(co_left_ms(deadline_ms) > 0);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    ck_assert_int_lt(n_readable(fd), N_MANY);
    close(fd);
}
END_TEST

TEST_SUITE(turns)
{
    Suite *suite = suite_create("turns");
    TCase *tc = tcase_create("turns");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, a_small_client_does_not_wait_for_a_large_one);
    tcase_add_test(tc, late_clients_take_turns);
    tcase_add_test(tc, a_late_client_that_closes_leaves_the_queue);
    tcase_add_test(tc, new_clients_are_accepted_some_at_a_time);
    tcase_add_test(tc, pending_requests_are_dropped_with_their_client);
    tcase_add_test(tc, the_server_may_be_closed_while_a_client_is_late);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    return suite;
}
