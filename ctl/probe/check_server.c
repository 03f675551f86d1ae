/* check_server.c - the end of check_net.h that answers: a thread that accepts, and one for each
 * connection. */
#include "check_net.h"
#include "check_stream.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/listener.h"
#include "common/scope.h"
#include "common/secret.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

enum {
    BACKLOG = 1024,
    MESSAGE_BYTES = 8,
    GREETING_MS = 250, /* where others wait for its seat, a connection has so long to begin */
};

struct seat { /* of a connection */
    struct check_server *server;
    int fd;                 /* -1: it is free */
    uint64_t greeted_by_ms; /* CO_NEVER_MS: it has sent the secret, or is being closed */
};

struct check_server {
    uint8_t secret[CHECK_SECRET_BYTES];
    struct co_listener listener; /* the acceptor's */
    int stop_fd;
    pthread_t acceptor;
    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t left;   /* a connection has ended */
    struct seat seats[CHECK_CONNECTIONS_MAX];
    size_t n_taken;
    bool is_closing;
};

/* --- a connection --- */

/* This and the next function do not end by themselves: closing the server cuts them off. */
static void echo(int fd)
{
    uint8_t message[MESSAGE_BYTES];
    while (check_stream_receive(fd, message, sizeof message, CO_NEVER_MS) == 0 &&
           check_stream_send(fd, message, sizeof message, CO_NEVER_MS) == 0) {
    }
}

static void swallow(int fd, uint8_t *chunk)
{
    uint64_t n_bytes;
    if (check_stream_drain(fd, chunk, CO_NEVER_MS, &n_bytes) < 0)
        return;
    n_bytes = htole64(n_bytes);
    check_stream_send(fd, &n_bytes, sizeof n_bytes, CO_NEVER_MS);
}

static void keep_seat(struct seat *seat)
{
    pthread_mutex_lock(&seat->server->mutex);
    seat->greeted_by_ms = CO_NEVER_MS;
    pthread_mutex_unlock(&seat->server->mutex);
}

static void client_serve(struct seat *seat)
{
    const struct check_server *s = seat->server;
    const int fd = seat->fd;
    uint8_t hello[CHECK_SECRET_BYTES + 1];
    co_autofree uint8_t *chunk = NULL;
    check_stream_be_patient(fd, CHECK_IDLE_MS);
    if (check_stream_receive(fd, hello, sizeof hello, co_deadline_ms(CHECK_IDLE_MS)) < 0 ||
        !co_is_same_secret(s->secret, hello, sizeof s->secret))
        return;
    keep_seat(seat);
    if (check_stream_send(fd, "k", 1, CO_NEVER_MS) < 0)
        return;
    char what = (char)hello[CHECK_SECRET_BYTES];
    if (what == 's' || what == 'g')
        chunk = calloc(1, CHECK_CHUNK_BYTES);
    if (what == 'p')
        echo(fd);
    else if (what == 's' && chunk != NULL)
        swallow(fd, chunk);
    else if (what == 'g' && chunk != NULL)
        check_stream_pour(fd, chunk, CHECK_STREAM_MS, CO_NEVER_MS);
}

static void *run_connection(void *arg)
{
    struct seat *seat = arg;
    struct check_server *s = seat->server;
    client_serve(seat);
    pthread_mutex_lock(&s->mutex);
    close(seat->fd); /* under the lock: closing the server shuts down what is open */
    seat->fd = -1;
    seat->greeted_by_ms = CO_NEVER_MS;
    s->n_taken--;
    pthread_cond_broadcast(&s->left);
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* --- all of them --- */

/* Processes that do not know the secret must not hold all seats: close the connections whose time
 * is over.
 *
 * returns   when the next one's is */
static uint64_t close_silent(struct check_server *s)
{
    const uint64_t now_ms = co_now_ms();
    uint64_t next_ms = CO_NEVER_MS;
    for (size_t i = 0; i < CHECK_CONNECTIONS_MAX; i++) {
        struct seat *seat = &s->seats[i];
        if (seat->greeted_by_ms <= now_ms) {
            shutdown(seat->fd, SHUT_RDWR);
            seat->greeted_by_ms = CO_NEVER_MS;
        }
        if (seat->greeted_by_ms < next_ms)
            next_ms = seat->greeted_by_ms;
    }
    return next_ms;
}

/* A connection ends, or the time of one is over. */
static void await_seat(struct check_server *s)
{
    const uint64_t until_ms = close_silent(s);
    if (until_ms == CO_NEVER_MS) {
        pthread_cond_wait(&s->left, &s->mutex);
        return;
    }
    const struct timespec until = {.tv_sec = (time_t)(until_ms / 1000),
                                   .tv_nsec = (long)(until_ms % 1000 * 1000000)};
    pthread_cond_clockwait(&s->left, &s->mutex, CLOCK_MONOTONIC, &until); /* as co_now_ms() */
}

/* returns   NULL: the server is being closed */
static struct seat *take_seat(struct check_server *s, int fd)
{
    struct seat *seat = NULL;
    pthread_mutex_lock(&s->mutex);
    while (!s->is_closing && s->n_taken == CHECK_CONNECTIONS_MAX)
        await_seat(s);
    for (size_t i = 0; !s->is_closing && seat == NULL; i++)
        if (s->seats[i].fd < 0)
            seat = &s->seats[i];
    if (seat != NULL) {
        *seat = (struct seat){.server = s, .fd = fd, .greeted_by_ms = co_deadline_ms(GREETING_MS)};
        s->n_taken++;
    }
    pthread_mutex_unlock(&s->mutex);
    return seat;
}

static void client_begin(struct check_server *s, int fd)
{
    pthread_t thread;
    pthread_attr_t attr;
    struct seat *seat = take_seat(s, fd);
    if (seat == NULL) {
        close(fd);
        return;
    }
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attr, run_connection, seat) != 0)
        run_connection(seat); /* then one after the other */
    pthread_attr_destroy(&attr);
}

static void *run_acceptor(void *arg)
{
    struct check_server *s = arg;
    struct pollfd polls[2] = {[1] = {.fd = s->stop_fd, .events = POLLIN}};
    while (polls[1].revents == 0) {
        polls[0] = co_listener_poll(&s->listener);
        if (poll(polls, 2, co_listener_wait_ms(&s->listener, -1)) <= 0 || polls[0].revents == 0)
            continue;
        int fd = co_listener_accept(&s->listener, SOCK_CLOEXEC);
        if (fd >= 0)
            client_begin(s, fd);
    }
    return NULL;
}

/* Listen on both families, if there are two. returns a descriptor, or -errno */
static int listen_at_any_port(uint16_t *ret_port)
{
    struct sockaddr_storage address = {.ss_family = AF_INET6}; /* ::, and port 0 */
    socklen_t len = sizeof(struct sockaddr_in6);
    const int none = 0;
    co_autoclose_fd int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &none, sizeof none);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, len) < 0) {
        if (fd >= 0)
            close(fd);
        address = (struct sockaddr_storage){.ss_family = AF_INET};
        len = sizeof(struct sockaddr_in);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || bind(fd, (const struct sockaddr *)&address, len) < 0)
            return -errno;
    }
    len = sizeof address;
    if (listen(fd, BACKLOG) < 0 || getsockname(fd, (struct sockaddr *)&address, &len) < 0)
        return -errno;
    *ret_port = ntohs(address.ss_family == AF_INET
                          ? ((const struct sockaddr_in *)(const void *)&address)->sin_port
                          : ((const struct sockaddr_in6 *)(const void *)&address)->sin6_port);
    return co_take_fd(&fd);
}

static void free_server(struct check_server *s)
{
    co_close_at(&s->listener.fd);
    co_close_at(&s->stop_fd);
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->left);
    free(s);
}

int check_server_open(const uint8_t secret[CHECK_SECRET_BYTES], struct check_server **ret,
                      uint16_t *ret_port, struct co_error *err)
{
    struct check_server *s = calloc(1, sizeof *s);
    if (s == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    memcpy(s->secret, secret, sizeof s->secret);
    for (size_t i = 0; i < CHECK_CONNECTIONS_MAX; i++)
        s->seats[i] = (struct seat){.fd = -1, .greeted_by_ms = CO_NEVER_MS};
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->left, NULL);
    s->stop_fd = eventfd(0, EFD_CLOEXEC);
    s->listener.fd = listen_at_any_port(ret_port);
    int rc = s->listener.fd < 0 ? s->listener.fd : s->stop_fd < 0 ? -errno : 0;
    if (rc == 0)
        rc = -pthread_create(&s->acceptor, NULL, run_acceptor, s);
    if (rc < 0) {
        free_server(s);
        return co_fail(err, rc, "cannot listen on any port: %s", strerror(-rc));
    }
    *ret = s;
    return 0;
}

void check_server_close(struct check_server *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->mutex);
    s->is_closing = true;
    for (size_t i = 0; i < CHECK_CONNECTIONS_MAX; i++)
        if (s->seats[i].fd >= 0)
            shutdown(s->seats[i].fd, SHUT_RDWR);
    pthread_cond_broadcast(&s->left);
    pthread_mutex_unlock(&s->mutex);
    eventfd_write(s->stop_fd, 1);
    pthread_join(s->acceptor, NULL);
    pthread_mutex_lock(&s->mutex);
    while (s->n_taken > 0)
        pthread_cond_wait(&s->left, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
    free_server(s);
}
