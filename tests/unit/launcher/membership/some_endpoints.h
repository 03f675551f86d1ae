/* some_endpoints.h - several endpoints under test, in one process and on one loop, and descendants
 * that have their port. */
#ifndef DDP_TESTS_UNIT_LAUNCHER_MEMBERSHIP_SOME_ENDPOINTS_H
#define DDP_TESTS_UNIT_LAUNCHER_MEMBERSHIP_SOME_ENDPOINTS_H

#include "launcher/membership/endpoint.h"

#include "common/error.h"
#include "launcher/job/job_spec.h"
#include "rendezvous/channel/seal.h"
#include "tests/support/suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The cases of those files of test_endpoint that have no main(), with the fixture below. */
TCase *endpoint_port_cases(void);
TCase *port_probe_cases(void);
TCase *self_probe_cases(void);

enum { MAX_NODES = 12, DEADLINE_MS = 20000 };

struct node { /* a TEST DOUBLE of what launcher/node/node_roster.c makes of an endpoint */
    struct job_spec spec;
    struct endpoint *endpoint; /* NULL: closed */
    int n_up, n_down, n_notes, exit_code;
    bool is_welcome, is_refused, is_rejected;
    char text[1500], note[1500];
};

static uv_loop_t loop;
static struct node nodes[MAX_NODES];
static struct seal_key keys[2];
static struct co_error err;
static uint16_t port;

/* --- nodes --- */

static inline void on_up(void *arg, bool is_here)
{
    struct node *n = arg;
    ck_assert(is_here == endpoint_is_here(n->endpoint));
    n->n_up++;
    uv_stop(&loop); /* here and below: AWAIT() looks again, before the loop sleeps */
}

static inline void on_message(void *arg, const struct message *m)
{
    struct node *n = arg;
    n->is_welcome |= m->type == MESSAGE_WELCOME;
    n->is_refused |= m->type == MESSAGE_REFUSED;
    uv_stop(&loop);
}

static inline void on_down(void *arg, const char *text, int exit_code, bool rejected)
{
    struct node *n = arg;
    n->n_down++;
    n->exit_code = exit_code;
    n->is_rejected = rejected;
    snprintf(n->text, sizeof n->text, "%s", text);
    uv_stop(&loop);
}

static inline void on_note(void *arg, enum co_severity severity, const char *text)
{
    (void)severity;
    struct node *n = arg;
    n->n_notes++;
    snprintf(n->note, sizeof n->note, "%s", text);
    uv_stop(&loop);
}

static inline struct node *make(int i, const char *host, enum job_host who)
{
    struct node *n = &nodes[i];
    n->spec = (struct job_spec){
        .n_local = 1,
        .run_id = "job7",
        .world = {.has_others = true,
                  .min_nodes = MAX_NODES,
                  .max_nodes = MAX_NODES,
                  .start_timeout_ms = 600000,
                  .rejoin_timeout_ms = 600000,
                  .node_rank = MESSAGE_NO_RANK,
                  .endpoint_host = (char *)host,
                  .endpoint_port = port,
                  .host = who},
    };
    return n;
}

static inline void begin(struct node *n)
{
    const struct roster_link_callbacks callbacks = {
        .on_up = on_up, .on_message = on_message, .on_down = on_down, .on_note = on_note, .arg = n};
    if (n->endpoint == NULL)
        ck_assert_int_eq(endpoint_open(&loop, &n->spec, &callbacks, &n->endpoint, &err), 0);
    endpoint_connect(n->endpoint);
}

static inline void end(struct node *n)
{
    if (n->endpoint != NULL)
        endpoint_close(n->endpoint);
    n->endpoint = NULL;
}

/* As member.h does, except for the intervals. */
static inline void say_hello(struct node *n)
{
    const struct message m = {
        .type = MESSAGE_HELLO,
        .generation = MESSAGE_NO_GENERATION,
        .hello = {.instance = {(uint8_t)(n - nodes + 1)},
                  .run_id = n->spec.run_id,
                  .name = "node",
                  .node_rank = MESSAGE_NO_RANK,
                  .n_local = 1,
                  .resumes = MESSAGE_NO_GENERATION,
                  .terms = {.min_nodes = MAX_NODES,
                            .max_nodes = MAX_NODES,
                            .start_timeout_ms = 600000,
                            .rejoin_timeout_ms = 600000}},
    };
    endpoint_send(n->endpoint, &m);
}

/* --- the loop --- */

static inline void on_deadline(uv_timer_t *timer)
{
    (void)timer;
    ck_abort_msg("nothing happened in time");
}

/* Its memory may go afterwards. */
static inline void close_now(uv_handle_t *handle)
{
    uv_close(handle, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
}

/* Run the loop until that holds. */
#define AWAIT(condition)                                                                           \
    do {                                                                                           \
        uv_timer_t deadline;                                                                       \
        uv_timer_init(&loop, &deadline);                                                           \
        uv_timer_start(&deadline, on_deadline, DEADLINE_MS, 0);                                    \
        while (!(condition))                                                                       \
            uv_run(&loop, UV_RUN_ONCE);                                                            \
        close_now((uv_handle_t *)&deadline);                                                       \
    } while (0)

static inline void set_up(void)
{
    memset(nodes, 0, sizeof nodes);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(seal_key_init(&keys[0], "0123456789abcdef0123456789abcdef", 32, &err), 0);
    ck_assert_int_eq(seal_key_init(&keys[1], "fedcba9876543210fedcba9876543210", 32, &err), 0);
    /* a port that is free now */
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    port = ntohs(a.sin_port);
    close(fd);
}

static inline void tear_down(void)
{
    for (int i = 0; i < MAX_NODES; i++)
        end(&nodes[i]);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* A program that has the port and is not a ddprun: a TEST DOUBLE. It answers with `reply`, or
 * closes at once if that is NULL. */
struct descendant {
    uv_tcp_t tcp;
    const char *reply;
    int n_came;
};

static inline void free_handle(uv_handle_t *handle)
{
    free(handle);
}

static inline void on_descendant(uv_stream_t *listener, int status)
{
    struct descendant *s = (struct descendant *)listener;
    uv_tcp_t *conn = malloc(sizeof *conn);
    ck_assert_int_eq(status, 0);
    uv_tcp_init(&loop, conn);
    ck_assert_int_eq(uv_accept(listener, (uv_stream_t *)conn), 0);
    s->n_came++;
    if (s->reply != NULL) {
        uv_buf_t buf = uv_buf_init((char *)s->reply, (unsigned)strlen(s->reply));
        uv_try_write((uv_stream_t *)conn, &buf, 1);
    }
    uv_close((uv_handle_t *)conn, free_handle);
}

static inline void begin_descendant(struct descendant *s, const char *reply)
{
    struct sockaddr_in a;
    *s = (struct descendant){.reply = reply};
    uv_ip4_addr("127.0.0.1", port, &a);
    uv_tcp_init(&loop, &s->tcp);
    ck_assert_int_eq(uv_tcp_bind(&s->tcp, (struct sockaddr *)&a, 0), 0);
    ck_assert_int_eq(uv_listen((uv_stream_t *)&s->tcp, 16, on_descendant), 0);
}

static inline int listen_at_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    return fd;
}

/* Accepts the next connection when its whole greeting has arrived. */
static inline int accept_greeting(int listener, uint8_t greeting[SEAL_GREETING_BYTES])
{
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0)
        uv_run(&loop, UV_RUN_NOWAIT);
    for (size_t len = 0; len < SEAL_GREETING_BYTES;) {
        ssize_t n = read(fd, greeting + len, SEAL_GREETING_BYTES - len);
        len += n > 0 ? (size_t)n : 0;
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    return fd;
}

#endif
