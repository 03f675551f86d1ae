/* hostile.c - conversations that no client should have with a store, next to an honest client.
 *
 *     hostile PORT CONVERSATIONS [SEED [SERVER_PID]]
 *
 * Holds many conversations at a time (those of plan.h) with the store on 127.0.0.1, and prints the
 * results of these and of the honest client as one line of JSON. Exit status: 0, 1 the honest
 * client got a wrong reply or none, 2 usage, 3 an error of its own. */
#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "good_client.h"
#include "plan.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum {
    N_SLOTS = 200, /* conversations at a time */
    EVENTS = 64,
    PATIENCE = 1000, /* one that cannot send ends when so many others have begun */
    QUIET_MS = 1000,
    READ_BYTES = 1 << 20,
    LOWER_PRIORITY = 5,
};

struct talk {
    struct plan plan;
    int fd; /* -1: none */
    bool done_sending;
    uint64_t ends_at; /* when so many conversations have begun */
};

struct hostile {
    uint16_t port;
    uint64_t seed, n_wanted;
    int epoll_fd;
    struct talk talks[N_SLOTS];
    int n_open;
    uint64_t n_begun, n_of_kind[PLAN_N_KINDS];
    uint64_t n_dropped; /* by the server */
    uint64_t n_bytes_sent, n_bytes_read;
};

static void end(struct hostile *h, struct talk *t)
{
    if (t->plan.resets) {
        struct linger at_once = {.l_onoff = 1};
        setsockopt(t->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    close(t->fd);
    plan_fini(&t->plan);
    t->fd = -1;
    h->n_open--;
}

static void drop(struct hostile *h, struct talk *t)
{
    h->n_dropped++;
    end(h, t);
}

static int watch(struct hostile *h, struct talk *t, int how)
{
    struct epoll_event event = {.data.ptr = t};
    event.events = (t->plan.reads ? EPOLLIN : 0u) | (t->done_sending ? 0u : EPOLLOUT);
    return epoll_ctl(h->epoll_fd, how, t->fd, &event);
}

static int begin(struct hostile *h, struct talk *t)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(h->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int rc = plan_init(&t->plan, h->seed, h->n_begun);
    if (rc < 0)
        return rc;
    t->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    t->done_sending = false;
    t->ends_at = h->n_begun + PATIENCE;
    if (t->fd < 0 ||
        (connect(t->fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS) ||
        watch(h, t, EPOLL_CTL_ADD) < 0)
        return -errno;
    h->n_begun++;
    h->n_of_kind[t->plan.kind]++;
    h->n_open++;
    return 0;
}

static void send_some(struct hostile *h, struct talk *t)
{
    struct co_buf *bytes = &t->plan.bytes;
    size_t len = co_buf_len(bytes) < t->plan.piece_bytes ? co_buf_len(bytes) : t->plan.piece_bytes;
    ssize_t n = len > 0 ? send(t->fd, co_buf_bytes(bytes), len, MSG_NOSIGNAL) : 0;
    if (n < 0) {
        if (errno != EAGAIN)
            drop(h, t);
        return;
    }
    h->n_bytes_sent += (uint64_t)n;
    co_buf_consume(bytes, (size_t)n);
    if (co_buf_len(bytes) > 0)
        return;
    t->done_sending = true;
    t->ends_at = h->n_begun + t->plan.hold;
    if (watch(h, t, EPOLL_CTL_MOD) < 0)
        drop(h, t);
}

static void read_some(struct hostile *h, struct talk *t)
{
    static uint8_t ignored[READ_BYTES];
    ssize_t n = recv(t->fd, ignored, sizeof ignored, 0);
    if (n > 0)
        h->n_bytes_read += (uint64_t)n;
    else if (n == 0 || errno != EAGAIN)
        drop(h, t);
}

static void handle(struct hostile *h, const struct epoll_event *event)
{
    struct talk *t = event->data.ptr;
    if (event->events & (EPOLLERR | EPOLLHUP)) {
        drop(h, t);
        return;
    }
    if (event->events & EPOLLIN)
        read_some(h, t);
    if (t->fd >= 0 && event->events & EPOLLOUT)
        send_some(h, t);
}

static bool is_over(const struct hostile *h, const struct talk *t)
{
    bool is_last = h->n_begun == h->n_wanted;
    return h->n_begun >= t->ends_at || (is_last && t->done_sending);
}

/* Conversations that hold their connections end when their time has come; when all slots are taken,
 * the oldest ends early, since no other one could begin; and at the end all of them end. */
static void end_holders(struct hostile *h)
{
    struct talk *oldest = NULL;
    for (int i = 0; i < N_SLOTS; i++) {
        struct talk *t = &h->talks[i];
        if (t->fd < 0)
            continue;
        if (is_over(h, t))
            end(h, t);
        else if (t->done_sending && (oldest == NULL || t->ends_at < oldest->ends_at))
            oldest = t;
    }
    if (h->n_open == N_SLOTS && oldest != NULL)
        end(h, oldest);
}

/* Nothing more happens: the server no longer reads from any of them. */
static void end_all(struct hostile *h)
{
    for (int i = 0; i < N_SLOTS; i++)
        if (h->talks[i].fd >= 0)
            end(h, &h->talks[i]);
}

static int fill(struct hostile *h)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < N_SLOTS && h->n_begun < h->n_wanted; i++)
        if (h->talks[i].fd < 0)
            rc = begin(h, &h->talks[i]);
    return rc;
}

static int run(struct hostile *h)
{
    struct epoll_event events[EVENTS];
    while (h->n_begun < h->n_wanted || h->n_open > 0) {
        int rc = fill(h);
        if (rc < 0)
            return rc;
        int n = epoll_wait(h->epoll_fd, events, EVENTS, QUIET_MS);
        if (n < 0)
            return -errno;
        for (int i = 0; i < n; i++)
            handle(h, &events[i]);
        end_holders(h);
        if (n == 0)
            end_all(h);
    }
    return 0;
}

static void print_results(const struct hostile *h, const struct good_result *good)
{
    printf("{\"conversations\": %lu, \"dropped\": %lu, \"bytes_sent\": %lu, \"bytes_read\": %lu, ",
           h->n_begun, h->n_dropped, h->n_bytes_sent, h->n_bytes_read);
    for (int i = 0; i < PLAN_N_KINDS; i++)
        printf("\"%s\": %lu, ", plan_names[i], h->n_of_kind[i]);
    printf("\"good_requests\": %lu, \"good_max_ms\": %.1f, \"good_max_busy_ms\": %.1f}\n",
           good->n_requests, good->max_ms, good->max_busy_ms);
}

int main(int argc, char **argv)
{
    struct co_error err = {0};
    int64_t port, n_wanted, seed = 1, server_pid = 0;
    if (argc < 3 || argc > 5 || co_parse_int("PORT", argv[1], 1, 65535, &port, &err) < 0 ||
        co_parse_int("CONVERSATIONS", argv[2], 1, INT64_MAX, &n_wanted, &err) < 0 ||
        (argc > 3 && co_parse_int("SEED", argv[3], 0, INT64_MAX, &seed, &err) < 0) ||
        (argc > 4 && co_parse_int("SERVER_PID", argv[4], 1, INT32_MAX, &server_pid, &err) < 0)) {
        fprintf(stderr, "usage: hostile PORT CONVERSATIONS [SEED [SERVER_PID]]\n%s\n", err.text);
        return 2;
    }
    static struct hostile h;
    h = (struct hostile){
        .port = (uint16_t)port, .seed = (uint64_t)seed, .n_wanted = (uint64_t)n_wanted};
    for (int i = 0; i < N_SLOTS; i++)
        h.talks[i].fd = -1;
    co_autoclose_fd int epoll_fd = h.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct good_client *good = good_client_start(h.port, h.seed, (pid_t)server_pid);
    if (epoll_fd < 0 || good == NULL) {
        fprintf(stderr, "hostile: cannot begin: %s\n", strerror(errno));
        return 3;
    }
    /* of this thread only: the honest one shall wait for the server, not for us */
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + LOWER_PRIORITY);
    int rc = run(&h);
    struct good_result result = good_client_stop(good);
    print_results(&h, &result);
    if (rc < 0)
        fprintf(stderr, "hostile: stopped after %lu conversations: %s\n", h.n_begun, strerror(-rc));
    if (result.trouble != NULL)
        fprintf(stderr, "hostile: the honest client waited in vain or got something else: %s\n",
                result.trouble);
    return rc < 0 ? 3 : result.trouble != NULL;
}
