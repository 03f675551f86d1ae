#include "good_client.h"

#include "rendezvous/store/wire.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    KEY_BYTES = 16, /* random: no client guesses it or matches ours by chance */
    VALUE_BYTES = 16,
    DEADLINE_S = 60,
};

struct good_client {
    int fd;
    pthread_t thread;
    atomic_bool stops;
    uint8_t key[KEY_BYTES], counter[KEY_BYTES];
    clockid_t server_clock; /* its processor time; CLOCK_MONOTONIC without its pid */
    struct good_result result;
};

/* --- one request --- */

struct request {
    uint8_t bytes[128];
    size_t len;
};

static void put(struct request *r, const void *bytes, size_t len)
{
    memcpy(r->bytes + r->len, bytes, len);
    r->len += len;
}

static void put_u64(struct request *r, uint64_t value)
{
    uint8_t bytes[8];
    wire_put_u64(bytes, value);
    put(r, bytes, sizeof bytes);
}

static void put_string(struct request *r, const void *bytes, size_t len)
{
    put_u64(r, len);
    put(r, bytes, len);
}

static double now_ms(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void keep_max(double *max, double value)
{
    *max = value > *max ? value : *max;
}

/* Send the request, take its reply and compare. */
static bool exchange(struct good_client *g, const struct request *r, const void *reply, size_t len)
{
    uint8_t got[64];
    size_t n_got = 0;
    double began_ms = now_ms(CLOCK_MONOTONIC);
    double busy_before_ms = now_ms(g->server_clock);
    if (send(g->fd, r->bytes, r->len, MSG_NOSIGNAL) != (ssize_t)r->len)
        return false;
    while (n_got < len) {
        ssize_t n = recv(g->fd, got + n_got, len - n_got, 0);
        if (n <= 0)
            return false;
        n_got += (size_t)n;
    }
    keep_max(&g->result.max_ms, now_ms(CLOCK_MONOTONIC) - began_ms);
    keep_max(&g->result.max_busy_ms, now_ms(g->server_clock) - busy_before_ms);
    g->result.n_requests++;
    return memcmp(got, reply, len) == 0;
}

/* --- a round of them --- */

static bool set_and_get(struct good_client *g, uint64_t round)
{
    uint8_t reply[8 + VALUE_BYTES];
    struct request r = {{WIRE_SET}, 1}; /* no reply: the GET's comes when both are done */
    wire_put_u64(reply, VALUE_BYTES);
    wire_put_u64(reply + 8, round);
    wire_put_u64(reply + 16, ~round);
    put_string(&r, g->key, KEY_BYTES);
    put(&r, reply, sizeof reply);
    put(&r, (const uint8_t[]){WIRE_GET}, 1);
    put_string(&r, g->key, KEY_BYTES);
    return exchange(g, &r, reply, sizeof reply);
}

static bool count(struct good_client *g, uint64_t round)
{
    uint8_t sum[8];
    struct request r = {{WIRE_ADD}, 1};
    put_string(&r, g->counter, KEY_BYTES);
    put_u64(&r, 1);
    wire_put_u64(sum, round + 1);
    return exchange(g, &r, sum, sizeof sum);
}

static bool wait_for_both(struct good_client *g)
{
    struct request r = {{WIRE_WAIT}, 1};
    put_u64(&r, 2);
    put_string(&r, g->key, KEY_BYTES);
    put_string(&r, g->counter, KEY_BYTES);
    return exchange(g, &r, (const uint8_t[]){WIRE_STOP_WAITING}, 1);
}

static void *talk(void *arg)
{
    const struct timespec pause = {.tv_nsec = 500000}; /* else it would be a flood itself */
    struct good_client *g = arg;
    for (uint64_t round = 0; !atomic_load(&g->stops) && g->result.trouble == NULL; round++) {
        if (!set_and_get(g, round))
            g->result.trouble = "the answer to a SET and a GET";
        else if (!count(g, round))
            g->result.trouble = "the answer to an ADD";
        else if (!wait_for_both(g))
            g->result.trouble = "the answer to a WAIT";
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/* --- begin and end --- */

static int connect_to(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval deadline = {.tv_sec = DEADLINE_S};
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof deadline);
    return fd;
}

struct good_client *good_client_start(uint16_t port, uint64_t seed, pid_t server_pid)
{
    static const uint8_t hello[] = {WIRE_VALIDATE, 0xce, 0xf7, 0x85, 0x3c};
    struct good_client *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    if (server_pid == 0 || clock_getcpuclockid(server_pid, &g->server_clock) != 0)
        g->server_clock = CLOCK_MONOTONIC;
    memcpy(g->key, "a good key", 10);
    memcpy(g->counter, "a good sum", 10);
    memcpy(g->key + 10, &seed, KEY_BYTES - 10);
    memcpy(g->counter + 10, &seed, KEY_BYTES - 10);
    g->fd = connect_to(port);
    if (g->fd < 0 || send(g->fd, hello, sizeof hello, MSG_NOSIGNAL) < 0 ||
        pthread_create(&g->thread, NULL, talk, g) != 0) {
        free(g);
        return NULL;
    }
    return g;
}

struct good_result good_client_stop(struct good_client *g)
{
    atomic_store(&g->stops, true);
    pthread_join(g->thread, NULL);
    struct good_result result = g->result;
    close(g->fd);
    free(g);
    return result;
}
