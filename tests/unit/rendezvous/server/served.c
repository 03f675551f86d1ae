#include "served.h"

#include "common/clock.h"
#include "common/error.h"
#include "rendezvous/net/address.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <ifaddrs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct served {
    uv_loop_t loop;
    uv_async_t stop;
    uv_async_t look; /* makes the loop report its number of clients */
    struct server *server;
    uint16_t port;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char refused[4096]; /* all texts so far, a line each */
    uint32_t n_clients;
};

static void on_refused(void *arg, const char *text)
{
    struct served *s = arg;
    pthread_mutex_lock(&s->lock);
    size_t used = strlen(s->refused);
    snprintf(s->refused + used, sizeof s->refused - used, "%s\n", text);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void on_look(uv_async_t *async)
{
    struct served *s = async->data;
    pthread_mutex_lock(&s->lock);
    s->n_clients = server_n_clients(s->server);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void on_stop(uv_async_t *async)
{
    struct served *s = async->data;
    uv_close((uv_handle_t *)&s->stop, NULL);
    uv_close((uv_handle_t *)&s->look, NULL);
    server_close(s->server, NULL, NULL);
}

static void *serve(void *arg)
{
    struct served *s = arg;
    uv_run(&s->loop, UV_RUN_DEFAULT);
    return NULL;
}

struct served *served_start(const struct server_opts *given)
{
    struct server_opts opts = given != NULL ? *given : (struct server_opts){0};
    struct co_error err = {0};
    struct served *s = calloc(1, sizeof *s);
    ck_assert_ptr_nonnull(s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    opts.on_refused = on_refused;
    opts.arg = s;
    signal(SIGPIPE, SIG_IGN); /* as server.h asks */
    uv_loop_init(&s->loop);
    uv_async_init(&s->loop, &s->stop, on_stop);
    uv_async_init(&s->loop, &s->look, on_look);
    s->stop.data = s->look.data = s;
    ck_assert_msg(server_start(&s->loop, &opts, &s->server, &err) == 0, "%s", err.text);
    s->port = server_port(s->server);
    ck_assert_int_eq(pthread_create(&s->thread, NULL, serve, s), 0);
    return s;
}

void served_stop(struct served *s)
{
    uv_async_send(&s->stop);
    pthread_join(s->thread, NULL);
    ck_assert_int_eq(uv_loop_close(&s->loop), 0); /* no open handle remains */
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}

uint16_t served_port(const struct served *s)
{
    return s->port;
}

/* Gives the server's thread a moment to continue; returns false when the deadline has passed. */
static bool wait_for_change(struct served *s, uint64_t deadline_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 10000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&s->changed, &s->lock, &until);
    return co_left_ms(deadline_ms) > 0;
}

void served_await_refused(struct served *s, const char *text)
{
    uint64_t deadline_ms = co_deadline_ms(SERVED_DEADLINE_MS);
    pthread_mutex_lock(&s->lock);
    while (strstr(s->refused, text) == NULL)
        ck_assert_msg(wait_for_change(s, deadline_ms), "nothing of '%s' among: %s", text,
                      s->refused);
    pthread_mutex_unlock(&s->lock);
}

void served_await_n_clients(struct served *s, uint32_t n)
{
    uint64_t deadline_ms = co_deadline_ms(SERVED_DEADLINE_MS);
    pthread_mutex_lock(&s->lock);
    do {
        uv_async_send(&s->look);
        ck_assert_msg(wait_for_change(s, deadline_ms), "%u clients, not %u", s->n_clients, n);
    } while (s->n_clients != n);
    pthread_mutex_unlock(&s->lock);
}

/* --- raw clients --- */

int raw_connect(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

int raw_connect_at(const struct sockaddr_storage *to)
{
    int fd = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len =
        to->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)to, len), 0);
    return fd;
}

bool find_own_address(struct sockaddr_storage *ret)
{
    struct ifaddrs *list;
    bool found = false;
    ck_assert_int_eq(getifaddrs(&list), 0);
    for (struct ifaddrs *i = list; i != NULL && !found; i = i->ifa_next) {
        if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET)
            continue;
        *ret = (struct sockaddr_storage){0};
        memcpy(ret, i->ifa_addr, sizeof(struct sockaddr_in));
        found = !address_is_loopback(ret);
    }
    freeifaddrs(list);
    return found;
}

static void await(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};
    ck_assert_msg(poll(&p, 1, SERVED_DEADLINE_MS) == 1, "nothing happens on the connection");
}

void raw_send(int fd, const void *bytes, size_t n)
{
    for (size_t sent = 0; sent < n;) {
        await(fd, POLLOUT);
        ssize_t rc = send(fd, (const char *)bytes + sent, n - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        ck_assert_msg(rc > 0 || errno == EAGAIN, "send: %s", strerror(errno));
        sent += rc > 0 ? (size_t)rc : 0;
    }
}

static size_t parse_hex(const char *hex, uint8_t *bytes, size_t size)
{
    size_t n = 0;
    for (; *hex != '\0'; hex += 2) {
        while (*hex == ' ')
            hex++;
        unsigned byte;
        ck_assert_int_eq(sscanf(hex, "%2x", &byte), 1);
        ck_assert_uint_lt(n, size);
        bytes[n++] = (uint8_t)byte;
    }
    return n;
}

void raw_send_hex(int fd, const char *hex)
{
    uint8_t bytes[256];
    raw_send(fd, bytes, parse_hex(hex, bytes, sizeof bytes));
}

void raw_receive(int fd, void *bytes, size_t n)
{
    for (size_t got = 0; got < n;) {
        await(fd, POLLIN);
        ssize_t rc = recv(fd, (char *)bytes + got, n - got, 0);
        ck_assert_msg(rc > 0, "the connection ended after %zu of %zu bytes", got, n);
        got += (size_t)rc;
    }
}

void raw_expect_hex(int fd, const char *hex)
{
    uint8_t expected[256], bytes[256];
    size_t n = parse_hex(hex, expected, sizeof expected);
    raw_receive(fd, bytes, n);
    ck_assert_mem_eq(bytes, expected, n);
}

void raw_expect_end(int fd)
{
    char byte;
    await(fd, POLLIN);
    ssize_t rc = recv(fd, &byte, 1, 0);
    ck_assert_msg(rc == 0 || (rc < 0 && errno == ECONNRESET), "the connection goes on");
}

bool raw_is_silent(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}
