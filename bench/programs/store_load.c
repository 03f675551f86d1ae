/* store_load.c - load a key-value server and measure how it performs.
 *
 *     store_load PROTOCOL PORT turns CLIENTS SECONDS   each client: set, get, add, set, get, ...
 *     store_load PROTOCOL PORT pipeline SETS           one client, sets without waiting
 *     store_load PROTOCOL PORT join CLIENTS            the first phase of ranks.h
 *     store_load PROTOCOL PORT ranks CLIENTS BARRIERS GETS   all phases, a line each: see there
 *     store_load PROTOCOL PORT latency IDLE GETS       gets of one client, IDLE others are silent
 *     store_load PROTOCOL PORT hold CLIENTS            stay connected until stdin ends
 *     store_load PROTOCOL PORT fill KEYS               set KEYS keys
 *
 * PROTOCOL is tcpstore, redis or nothing. PORT is a number, or several with commas, which clients
 * use in turn. All on 127.0.0.1. Prints a line of names and values. */
#include "ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_EVENTS = 512 };

static int make_epoll(void)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0)
        load_die("epoll_create1: %s", strerror(errno));
    return fd;
}

static void watch(int epoll, int op, int fd, uint32_t events, unsigned i)
{
    struct epoll_event e = {.events = events, .data.u32 = i};
    if (epoll_ctl(epoll, op, fd, &e) < 0)
        load_die("epoll_ctl: %s", strerror(errno));
}

static void *allocate(size_t n, size_t size)
{
    void *memory = calloc(n, size);
    if (memory == NULL)
        load_die("no memory");
    return memory;
}

/* --- turns --- */

struct turner {
    int fd;
    struct load_message message[2];
    int turn;
    size_t n_missing; /* bytes of the reply; unused if the reply is a line */
};

static void turner_send(struct turner *t)
{
    t->n_missing = t->message[t->turn].reply_bytes;
    load_send(t->fd, t->message[t->turn].bytes, t->message[t->turn].len);
}

/* Returns whether the reply is complete. */
static bool turner_receive(struct turner *t)
{
    char reply[LOAD_MESSAGE_BYTES];
    ssize_t n = recv(t->fd, reply, sizeof reply, 0);
    if (n <= 0)
        load_die("recv: %s", n == 0 ? "the server closed the connection" : strerror(errno));
    if (t->message[t->turn].reply_bytes == 0)
        return reply[n - 1] == '\n';
    if ((size_t)n > t->n_missing)
        load_die("the server answered %zd bytes, %zu were due", n, t->n_missing);
    t->n_missing -= (size_t)n;
    return t->n_missing == 0;
}

static void turner_begin(struct turner *t, const struct load_target *target, unsigned i)
{
    char key[32];
    t->fd = target->protocol == LOAD_NOTHING ? load_connect(target, i) : load_hello(target, i);
    snprintf(key, sizeof key, "/key/%06u", i);
    load_put_set(&t->message[0], target->protocol, key);
    load_put_get(&t->message[0], target->protocol, key);
    snprintf(key, sizeof key, "/add/%06u", i);
    load_put_add(&t->message[1], target->protocol, key);
}

void load_turns(const struct load_target *target, unsigned n_clients, double seconds)
{
    struct turner *turners = allocate(n_clients, sizeof *turners);
    struct epoll_event events[MAX_EVENTS];
    uint64_t n_requests = 0;
    int epoll = make_epoll();
    for (unsigned i = 0; i < n_clients; i++) {
        turner_begin(&turners[i], target, i);
        watch(epoll, EPOLL_CTL_ADD, turners[i].fd, EPOLLIN, i);
    }
    const uint64_t begin = load_now_ns(), end = begin + (uint64_t)(seconds * 1e9);
    uint64_t now = begin;
    for (unsigned i = 0; i < n_clients; i++)
        turner_send(&turners[i]);
    while (now < end) {
        int n = epoll_wait(epoll, events, MAX_EVENTS, 10000);
        if (n <= 0)
            load_die("no reply within 10 s");
        for (int e = 0; e < n; e++) {
            struct turner *t = &turners[events[e].data.u32];
            if (!turner_receive(t))
                continue;
            n_requests += t->turn == 0 ? 2 : 1;
            t->turn = 1 - t->turn;
            turner_send(t);
        }
        now = load_now_ns();
    }
    double took = (double)(now - begin) * 1e-9;
    printf("requests %llu seconds %.4f per_s %.0f\n", (unsigned long long)n_requests, took,
           (double)n_requests / took);
    free(turners);
}

/* --- pipeline --- */

enum { PIPELINE_KEYS = 1000 };

/* Writes everything and reads replies meanwhile, until n_due reply bytes have arrived. */
static void pump(int fd, const uint8_t *bytes, size_t len, unsigned repeat, uint64_t n_due)
{
    static char replies[1 << 18];
    size_t at = 0;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    int epoll = make_epoll();
    watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT, 0);
    while (repeat > 0 || n_due > 0) {
        struct epoll_event e;
        ssize_t n;
        if (epoll_wait(epoll, &e, 1, 10000) <= 0)
            load_die("the server takes nothing and says nothing for 10 s");
        while (repeat > 0 && (n = send(fd, bytes + at, len - at, MSG_NOSIGNAL)) > 0) {
            at += (size_t)n;
            if (at == len) {
                at = 0;
                repeat--;
            }
        }
        if (repeat == 0)
            watch(epoll, EPOLL_CTL_MOD, fd, EPOLLIN, 0);
        while (n_due > 0 && (n = recv(fd, replies, sizeof replies, 0)) >= 0) {
            if (n == 0)
                load_die("the server closed the connection");
            n_due -= (uint64_t)n < n_due ? (uint64_t)n : n_due;
        }
    }
    close(epoll);
}

void load_pipeline(const struct load_target *target, unsigned n_sets)
{
    struct load_message m, last = {0};
    uint8_t *bytes = allocate(PIPELINE_KEYS, LOAD_MESSAGE_BYTES);
    size_t len = 0;
    uint64_t n_due = 0;
    int fd = load_hello(target, 0);
    for (unsigned i = 0; i < PIPELINE_KEYS; i++) {
        char key[32];
        m = (struct load_message){0};
        snprintf(key, sizeof key, "/pipe/%04u", i);
        load_put_set(&m, target->protocol, key);
        memcpy(bytes + len, m.bytes, m.len);
        len += m.len;
        n_due += m.reply_bytes;
    }
    const unsigned repeat = n_sets / PIPELINE_KEYS;
    load_put_get(&last, target->protocol, "/pipe/0000");
    uint64_t begin = load_now_ns();
    pump(fd, bytes, len, repeat, n_due * repeat);
    pump(fd, last.bytes, last.len, 1, last.reply_bytes); /* its reply follows all others */
    double took = (double)(load_now_ns() - begin) * 1e-9;
    printf("requests %u seconds %.4f per_s %.0f\n", repeat * PIPELINE_KEYS, took,
           (double)repeat * PIPELINE_KEYS / took);
    free(bytes);
}

/* --- join, ranks --- */

enum { MAX_CONNECTING = 512 }; /* more at a time would measure an overflow of the backlog */

struct crowd {
    const struct load_target *target;
    struct ranks ranks;
    int *fds;
    unsigned n_begun, n_connected;
    int epoll;
};

static void crowd_send(struct crowd *c, unsigned i, const struct load_message *m)
{
    load_send(c->fds[i], m->bytes, m->len);
}

static void connect_some(struct crowd *c)
{
    while (c->n_begun < c->ranks.n && c->n_begun - c->n_connected < MAX_CONNECTING) {
        const unsigned i = c->n_begun++;
        c->fds[i] = load_connect_begin(c->target, i);
        watch(c->epoll, EPOLL_CTL_ADD, c->fds[i], EPOLLOUT, i);
    }
}

static void on_connected(struct crowd *c, unsigned i)
{
    struct load_message m = {0};
    c->n_connected++;
    watch(c->epoll, EPOLL_CTL_MOD, c->fds[i], EPOLLIN, i);
    ranks_begin(&c->ranks, i, &m);
    crowd_send(c, i, &m);
}

static void on_reply(struct crowd *c, unsigned i)
{
    struct load_message m = {0};
    uint8_t reply[LOAD_MESSAGE_BYTES];
    ssize_t n = recv(c->fds[i], reply, sizeof reply, 0);
    if (n <= 0)
        load_die("recv: %s", n == 0 ? "the server closed the connection" : strerror(errno));
    if (ranks_receive(&c->ranks, i, reply, (size_t)n, &m))
        crowd_send(c, i, &m);
}

static void run_phase(struct crowd *c)
{
    struct epoll_event events[MAX_EVENTS];
    for (unsigned i = 0; i < c->n_connected; i++) {
        struct load_message m = {0};
        ranks_begin(&c->ranks, i, &m);
        crowd_send(c, i, &m);
    }
    while (c->ranks.n_done < c->ranks.n) {
        connect_some(c);
        int n = epoll_wait(c->epoll, events, MAX_EVENTS, 60000);
        if (n <= 0)
            load_die("nothing comes for 60 s; %u of %u are done", c->ranks.n_done, c->ranks.n);
        for (int e = 0; e < n; e++)
            (events[e].events & EPOLLOUT ? on_connected : on_reply)(c, events[e].data.u32);
    }
}

static struct crowd make_crowd(const struct load_target *target, unsigned n, unsigned n_barriers,
                               unsigned n_gets)
{
    struct crowd c = {.target = target, .fds = allocate(n, sizeof *c.fds), .epoll = make_epoll()};
    if (target->protocol != LOAD_TCPSTORE)
        load_die("join and ranks speak tcpstore only");
    ranks_init(&c.ranks, n, n_barriers, n_gets);
    return c;
}

void load_join(const struct load_target *target, unsigned n_clients)
{
    struct crowd c = make_crowd(target, n_clients, 0, 0);
    run_phase(&c);
    double took = (double)(load_now_ns() - c.ranks.begun_ns) * 1e-9;
    printf("requests %u seconds %.4f per_s %.0f\n", n_clients, took, (double)n_clients / took);
}

void load_ranks(const struct load_target *target, unsigned n, unsigned n_barriers, unsigned n_gets)
{
    struct crowd c = make_crowd(target, n, n_barriers, n_gets);
    do
        run_phase(&c);
    while (ranks_next_phase(&c.ranks));
}

/* --- latency, memory --- */

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void load_latency(const struct load_target *target, unsigned n_idle, unsigned n_gets)
{
    uint32_t *took_ns = allocate(n_gets, sizeof *took_ns);
    struct load_message set = {0}, get = {0};
    for (unsigned i = 0; i < n_idle; i++)
        load_hello(target, i); /* silent until the end of the program */
    int fd = load_hello(target, 0);
    load_put_set(&set, target->protocol, "/latency");
    load_ask(fd, &set);
    load_put_get(&get, target->protocol, "/latency");
    for (unsigned i = 0; i < n_gets; i++) {
        uint64_t begin = load_now_ns();
        load_ask(fd, &get);
        took_ns[i] = (uint32_t)(load_now_ns() - begin);
    }
    qsort(took_ns, n_gets, sizeof *took_ns, compare);
    printf("p50_us %.1f p99_us %.1f max_us %.1f\n", took_ns[n_gets / 2] * 1e-3,
           took_ns[n_gets - n_gets / 100 - 1] * 1e-3, took_ns[n_gets - 1] * 1e-3);
    free(took_ns);
}

void load_hold(const struct load_target *target, unsigned n_clients)
{
    char c;
    for (unsigned i = 0; i < n_clients; i++)
        load_hello(target, i);
    printf("clients %u\n", n_clients);
    fflush(stdout);
    while (read(STDIN_FILENO, &c, 1) > 0)
        ;
}

void load_fill(const struct load_target *target, unsigned n_keys)
{
    struct load_message m, get = {0};
    char key[32] = "";
    int fd = load_hello(target, 0);
    for (unsigned i = 0; i < n_keys; i++) {
        m = (struct load_message){0};
        snprintf(key, sizeof key, "/fill/%010u", i);
        load_put_set(&m, target->protocol, key);
        if (m.reply_bytes > 0)
            load_ask(fd, &m);
        else
            load_send(fd, m.bytes, m.len);
    }
    load_put_get(&get, target->protocol, key);
    load_ask(fd, &get);
    printf("keys %u key_bytes %zu value_bytes %d\n", n_keys, strlen(key), LOAD_VALUE_BYTES);
}

/* --- the command line --- */

/* returns   how many there are */
static unsigned read_ports(char *text, uint16_t ports[LOAD_PORTS])
{
    unsigned n = 0;
    for (const char *port = strtok(text, ","); port != NULL; port = strtok(NULL, ",")) {
        if (n == LOAD_PORTS)
            load_die("more than %d ports", LOAD_PORTS);
        ports[n++] = (uint16_t)load_number(port, 1, UINT16_MAX);
    }
    if (n == 0)
        load_die("no port");
    return n;
}

static enum load_protocol protocol_of(const char *text)
{
    static const char *const names[] = {"tcpstore", "redis", "nothing"};
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0)
            return (enum load_protocol)i;
    load_die("'%s' is no protocol; tcpstore, redis and nothing are", text);
}

int main(int argc, char **argv)
{
    if (argc < 5)
        load_die("usage: store_load PROTOCOL PORT RUN NUMBER [NUMBER]");
    static uint16_t ports[LOAD_PORTS];
    const struct load_target target = {
        .protocol = protocol_of(argv[1]), .ports = ports, .n_ports = read_ports(argv[2], ports)};
    const char *run = argv[3];
    unsigned first = load_number(argv[4], 1, 100000000);
    load_allow_many_files();
    if (strcmp(run, "turns") == 0 && argc == 6)
        load_turns(&target, first, atof(argv[5]));
    else if (strcmp(run, "pipeline") == 0 && argc == 5)
        load_pipeline(&target, first);
    else if (strcmp(run, "join") == 0 && argc == 5)
        load_join(&target, first);
    else if (strcmp(run, "ranks") == 0 && argc == 7)
        load_ranks(&target, first, load_number(argv[5], 0, 100000),
                   load_number(argv[6], 0, 1 << 20));
    else if (strcmp(run, "latency") == 0 && argc == 6)
        load_latency(&target, first, load_number(argv[5], 1, 100000000));
    else if (strcmp(run, "hold") == 0 && argc == 5)
        load_hold(&target, first);
    else if (strcmp(run, "fill") == 0 && argc == 5)
        load_fill(&target, first);
    else
        load_die("'%s' is no run, or has another number of arguments", run);
    return 0;
}
