#include "served.h"

#include "common/clock.h"
#include "common/error.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct served_front *served_front;

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
    s->n_clients = served_front != NULL ? served_front->n_clients() : server_n_clients(s->server);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void on_stop(uv_async_t *async)
{
    struct served *s = async->data;
    uv_close((uv_handle_t *)&s->stop, NULL);
    uv_close((uv_handle_t *)&s->look, NULL);
    if (served_front != NULL)
        served_front->close();
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
    s->port = served_front != NULL ? served_front->open(&s->loop, s->server, &opts)
                                   : server_port(s->server);
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
