/* relay_ends.h - the store's end of a relay, in this process and on one loop, and sockets to it. */
#ifndef DDP_TESTS_UNIT_RENDEZVOUS_RELAYS_RELAY_ENDS_H
#define DDP_TESTS_UNIT_RENDEZVOUS_RELAYS_RELAY_ENDS_H

#include "common/clock.h"
#include "common/error.h"
#include "rendezvous/relays/relay_hub.h"
#include "rendezvous/relays/relay_port.h"
#include "rendezvous/server/server.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DEADLINE_MS = 20000, MAX_LINKS = 4 };

static uv_loop_t loop;
static struct server *store, *listener;
static struct relay_hub *hub;
static char refused[2][4096]; /* by the hub, by the ports: all texts, a line each */

/* --- the loop --- */

static inline void on_look(uv_timer_t *timer)
{
    (void)timer;
}

/* Run the loop until it is so: what a client of this process reads is not an event of the loop, so
 * it looks again and again. */
static inline void run_until(bool (*is_so)(const void *arg), const void *arg, const char *what)
{
    static uv_timer_t look;
    const uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
    uv_timer_init(&loop, &look);
    uv_timer_start(&look, on_look, 1, 1);
    while (!is_so(arg)) {
        ck_assert_msg(co_left_ms(deadline_ms) > 0, "%s did not happen; hub: %s; port: %s", what,
                      refused[0], refused[1]);
        uv_run(&loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&look, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
}

static inline void on_refused(void *arg, const char *text)
{
    char *all = arg;
    snprintf(all + strlen(all), sizeof refused[0] - strlen(all), "%s\n", text);
}

static inline bool is_reported(const void *arg)
{
    const char *text = arg;
    return strstr(refused[0], text) != NULL || strstr(refused[1], text) != NULL;
}

static inline void await_report(const char *text)
{
    run_until(is_reported, text, text);
}

/* --- the store's end --- */

static inline void on_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    (void)arg;
    relay_hub_adopt(hub, fd, bytes, len);
}

/* Of the job "job", in generation 3. */
static inline struct relay_hub_opts hub_opts(const struct seal_key *key)
{
    return (struct relay_hub_opts){.server = store,
                                   .key = key,
                                   .run_id = "job",
                                   .generation = 3,
                                   .max_links = MAX_LINKS,
                                   .max_clients = 100,
                                   .on_refused = on_refused,
                                   .arg = refused[0]};
}

/* A store, and a listener for links to it: without a hub they are not taken. */
static inline void open_store(void)
{
    const struct server_opts links = {
        .no_store = true, .on_control = on_control, .max_clients = 256};
    struct co_error err;
    signal(SIGPIPE, SIG_IGN);
    hub = NULL;
    refused[0][0] = refused[1][0] = '\0';
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(server_start(&loop, &(struct server_opts){0}, &store, &err), 0);
    ck_assert_int_eq(server_start(&loop, &links, &listener, &err), 0);
}

/* And the loop: what else runs on it is closed already. */
static inline void close_store(void)
{
    relay_hub_close(hub);
    if (listener != NULL)
        server_close(listener, NULL, NULL);
    server_close(store, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0); /* no open handle remains */
}

/* --- sockets --- */

static inline int connect_to(uint16_t number)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(number)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

struct awaited {
    int fd;
    size_t len; /* so many bytes are there; 0: the end */
};

static inline bool has_come(const void *arg)
{
    const struct awaited *a = arg;
    char bytes[64];
    const ssize_t n = recv(a->fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK);
    return a->len > 0 ? n >= (ssize_t)a->len
                      : n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

static inline void expect_end(int fd)
{
    run_until(has_come, &(struct awaited){fd, 0}, "the end of a connection");
    close(fd);
}

#endif
