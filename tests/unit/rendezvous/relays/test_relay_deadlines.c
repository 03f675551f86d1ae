/* What ends a link whose other end is slow. The other end is a socket and a seal of this process,
 * which read and write only when the case does. Times are short, and each is waited for by its
 * report. */
#include "relay_ends.h"

#include "rendezvous/channel/seal.h"
#include "rendezvous/relay/relay_node.h"
#include "rendezvous/store/wire.h"
#include "tests/support/suite.h"

#include <stdlib.h>

enum {
    SHORT_MS = 100,
    N_CLIENTS = 80, /* whose windows are more than the kernel keeps for a connection */
    VALUE_BYTES = 200000,
    SMALL_BUFFER_BYTES = 4096,
    ANSWER_BYTES = 40, /* of the handshake, in the clear */
};

#define HELLO "\0\316\367\205\74" /* VALIDATE and its magic number */
#define SET   "\1\1\0\0\0\0\0\0\0k"
#define GET   "\3\1\0\0\0\0\0\0\0k"

/* An end in the clear. */
struct raw_end {
    int fd;
    struct seal *seal;
};

static struct relay_port *port;
static struct raw_end raw;

static void set_up(void)
{
    port = NULL;
    raw = (struct raw_end){.fd = -1};
    open_store();
}

static void tear_down(void)
{
    seal_destroy(raw.seal);
    close(raw.fd); /* or the other end would linger */
    relay_port_close(port);
    close_store();
}

static void open_hub(void)
{
    struct relay_hub_opts o = hub_opts(NULL);
    struct co_error err;
    o.open_ms = o.stall_ms = SHORT_MS;
    ck_assert_int_eq(relay_hub_create(&loop, &o, &hub, &err), 0);
}

/* --- the raw end --- */

/* The loop may have to read before the rest fits. */
static bool has_sent_all(const void *arg)
{
    const struct raw_end *e = arg;
    struct co_buf *out = seal_output(e->seal);
    const ssize_t n = send(e->fd, co_buf_bytes(out), co_buf_len(out), MSG_NOSIGNAL | MSG_DONTWAIT);
    co_buf_consume(out, n > 0 ? (size_t)n : 0);
    return co_buf_len(out) == 0;
}

static void send_all(void)
{
    run_until(has_sent_all, &raw, "sending");
}

static void send_frame(const void *frame, size_t len)
{
    struct co_error err;
    ck_assert_int_eq(seal_put(raw.seal, frame, len, &err), 0);
    send_all();
}

/* Its part of the handshake arrives, which has this length. */
static void shake_hands(size_t len)
{
    uint8_t bytes[SEAL_GREETING_BYTES];
    const uint8_t *frame;
    size_t n_used, frame_len;
    struct co_error err;
    run_until(has_come, &(struct awaited){raw.fd, len}, "the handshake");
    ck_assert_int_eq(recv(raw.fd, bytes, len, 0), (ssize_t)len);
    ck_assert_int_eq(seal_feed(raw.seal, bytes, len, &n_used, &frame, &frame_len, &err),
                     SEAL_OPENED);
}

/* A node's end, up to the handshake. */
static void connect_raw(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(server_port(listener))};
    const int size = SMALL_BUFFER_BYTES;
    struct co_error err;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    raw.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(raw.fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    ck_assert_int_eq(connect(raw.fd, (struct sockaddr *)&to, sizeof to), 0);
    ck_assert_int_eq(
        seal_create_node(NULL, RELAY_LINK_VERSION, RELAY_LINK_VERSION, &raw.seal, &err), 0);
    send_all();
    shake_hands(ANSWER_BYTES);
}

static void send_hello(void)
{
    uint8_t hello[RELAY_LINK_HELLO_BYTES];
    send_frame(hello, relay_link_hello(3, "job", hello));
}

static bool has_links(const void *arg)
{
    return relay_hub_n_links(hub) == *(const uint32_t *)arg;
}

static void await_links(uint32_t n)
{
    run_until(has_links, &n, "another number of links");
}

/* --- the hub --- */

START_TEST(a_link_that_does_not_state_its_job_is_ended)
{
    open_hub();
    connect_raw();
    await_report("timed out waiting for what it is for");
    expect_end(raw.fd);
    raw.fd = -1;
    ck_assert_uint_eq(relay_hub_n_links(hub), 0);
}
END_TEST

START_TEST(a_silent_link_that_has_stated_its_job_stays)
{
    open_hub();
    connect_raw();
    send_hello();
    await_links(1);
    const struct raw_end silent = raw;
    raw = (struct raw_end){.fd = -1};
    connect_raw();
    await_report("timed out waiting for what it is for"); /* it came later */
    ck_assert_uint_eq(relay_hub_n_links(hub), 1);
    seal_destroy(silent.seal);
    close(silent.fd);
    await_links(0);
}
END_TEST

static void push(struct relay_client *c, const void *bytes, size_t len)
{
    ck_assert_int_eq(relay_client_push(c, bytes, len), 0);
}

static void push_set(struct relay_client *c)
{
    static const uint8_t value[VALUE_BYTES];
    uint8_t len[8];
    wire_put_u64(len, VALUE_BYTES);
    push(c, SET, sizeof SET - 1);
    push(c, len, sizeof len);
    push(c, value, sizeof value);
}

static void send_frames(struct relay_node *node)
{
    static struct relay_frame f;
    for (relay_node_put(node, &f); f.len > 0; relay_node_put(node, &f))
        send_frame(f.bytes, f.len);
}

START_TEST(a_node_that_does_not_read_its_link_is_dropped)
{
    const struct relay_node_limits limits = {
        .max_clients = N_CLIENTS, .window_bytes = RELAY_LINK_WINDOW_BYTES, .max_bytes = UINT64_MAX};
    struct relay_client *clients[N_CLIENTS];
    struct relay_node *node;
    struct co_error err;
    open_hub();
    connect_raw();
    send_hello();
    await_links(1);
    ck_assert_int_eq(relay_node_create(&limits, &node, &err), 0);
    for (int i = 0; i < N_CLIENTS; i++) {
        ck_assert_int_eq(relay_node_open(node, NULL, &clients[i], &err), 0);
        push(clients[i], HELLO, sizeof HELLO - 1);
    }
    push_set(clients[0]);
    send_frames(node);
    for (int i = 0; i < N_CLIENTS; i++)
        push(clients[i], GET, sizeof GET - 1);
    send_frames(node);
    await_report("the node does not read what is sent to it");
    ck_assert_uint_eq(relay_hub_n_links(hub), 0);
    ck_assert_uint_eq(relay_hub_n_clients(hub), 0);
    relay_node_destroy(node);
}
END_TEST

/* --- the port --- */

static int listen_raw(uint16_t *ret_number)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    const int size = SMALL_BUFFER_BYTES;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size); /* also of those that it accepts */
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *ret_number = ntohs(at.sin_port);
    return fd;
}

static bool has_accepted(const void *arg)
{
    raw.fd = accept4(*(const int *)arg, NULL, NULL, SOCK_CLOEXEC);
    return raw.fd >= 0;
}

/* A store's end, up to the handshake. */
static void accept_raw(int listening)
{
    struct co_error err;
    run_until(has_accepted, &listening, "a link");
    ck_assert_int_eq(
        seal_create_roster(NULL, 0, RELAY_LINK_VERSION, RELAY_LINK_VERSION, &raw.seal, &err), 0);
    shake_hands(SEAL_GREETING_BYTES);
    send_all();
}

/* All clients send as much as their windows take. */
static bool has_flooded(const void *arg)
{
    static const char bytes[16384];
    const int *fds = arg;
    for (int i = 0; i < N_CLIENTS; i++)
        (void)!send(fds[i], bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    return is_reported("the node with the store does not read what is sent to it");
}

START_TEST(a_port_whose_link_is_not_read_closes_its_clients)
{
    uint16_t number;
    int listening = listen_raw(&number), fds[N_CLIENTS];
    const struct relay_port_opts o = {.host = "127.0.0.1",
                                      .port = number,
                                      .run_id = "job",
                                      .generation = 3,
                                      .max_clients = N_CLIENTS,
                                      .stall_ms = SHORT_MS,
                                      .on_refused = on_refused,
                                      .arg = refused[1]};
    struct co_error err;
    ck_assert_int_eq(relay_port_open(&loop, &o, &port, &err), 0);
    for (int i = 0; i < N_CLIENTS; i++)
        fds[i] = connect_to(relay_port_number(port));
    accept_raw(listening);
    run_until(has_flooded, fds, "the end of the link");
    ck_assert_uint_eq(relay_port_n_clients(port), 0);
    for (int i = 0; i < N_CLIENTS; i++)
        expect_end(fds[i]);
    close(listening);
}
END_TEST

TEST_SUITE(relay_deadlines)
{
    Suite *suite = suite_create("relay_deadlines");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, a_link_that_does_not_state_its_job_is_ended);
    tcase_add_test(all, a_silent_link_that_has_stated_its_job_stays);
    tcase_add_test(all, a_node_that_does_not_read_its_link_is_dropped);
    tcase_add_test(all, a_port_whose_link_is_not_read_closes_its_clients);
    suite_add_tcase(suite, all);
    return suite;
}
