#include "etcd_sockets.h"

#include "common/clock.h"
#include "rendezvous/etcd/etcd_plugin.h"

#include <stdlib.h>

struct watch {
    struct watch *next;
    struct etcd_sockets *owner;
    uv_poll_t poll;
    int fd;
};

struct etcd_sockets {
    uv_loop_t *loop;
    struct etcd_socket_callbacks callbacks;
    uv_timer_t alarm;
    struct watch *first; /* one or two */
    bool closing;
    int n_handles;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static void destroy_if_closed(struct etcd_sockets *s)
{
    if (!s->closing || s->n_handles > 0)
        return;
    void (*on_closed)(void *arg) = s->on_closed;
    void *arg = s->on_closed_arg;
    free(s);
    on_closed(arg);
}

static void on_watch_closed(uv_handle_t *handle)
{
    struct watch *w = handle->data;
    struct etcd_sockets *s = w->owner;
    free(w);
    s->n_handles--;
    destroy_if_closed(s);
}

static void on_alarm_closed(uv_handle_t *handle)
{
    struct etcd_sockets *s = handle->data;
    s->n_handles--;
    destroy_if_closed(s);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct watch *w = poll->data;
    int ready = status < 0 ? ETCD_READABLE | ETCD_WRITABLE /* the read will return the error */
                           : (events & UV_READABLE ? ETCD_READABLE : 0) |
                                 (events & UV_WRITABLE ? ETCD_WRITABLE : 0);
    if (!w->owner->closing)
        w->owner->callbacks.on_ready(w->owner->callbacks.arg, w->fd, ready);
}

static void on_alarm(uv_timer_t *timer)
{
    struct etcd_sockets *s = timer->data;
    s->callbacks.on_alarm(s->callbacks.arg);
}

static struct watch *add_watch(struct etcd_sockets *s, int fd)
{
    struct watch *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    if (uv_poll_init(s->loop, &w->poll, fd) < 0) {
        free(w);
        return NULL;
    }
    w->poll.data = w;
    w->owner = s;
    w->fd = fd;
    w->next = s->first;
    s->first = w;
    s->n_handles++;
    return w;
}

static void drop_watch(struct watch **at)
{
    struct watch *w = *at;
    *at = w->next;
    uv_close((uv_handle_t *)&w->poll, on_watch_closed); /* which stops to look at the socket now */
}

void etcd_sockets_watch(struct etcd_sockets *s, int fd, int events)
{
    struct watch **at = &s->first;
    while (*at != NULL && (*at)->fd != fd)
        at = &(*at)->next;
    if (events == 0) {
        if (*at != NULL)
            drop_watch(at);
        return;
    }
    struct watch *w = *at != NULL ? *at : add_watch(s, fd);
    if (w != NULL)
        uv_poll_start(&w->poll,
                      (events & ETCD_READABLE ? UV_READABLE : 0) |
                          (events & ETCD_WRITABLE ? UV_WRITABLE : 0),
                      on_poll);
}

void etcd_sockets_set_alarm(struct etcd_sockets *s, uint64_t at_ms)
{
    uint64_t now_ms = co_now_ms();
    if (s->closing || at_ms == CO_NEVER_MS) {
        uv_timer_stop(&s->alarm);
        return;
    }
    uv_update_time(s->loop);
    uv_timer_start(&s->alarm, on_alarm, at_ms > now_ms ? at_ms - now_ms : 0, 0);
}

struct etcd_sockets *etcd_sockets_open(uv_loop_t *loop,
                                       const struct etcd_socket_callbacks *callbacks)
{
    struct etcd_sockets *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->loop = loop;
    s->callbacks = *callbacks;
    uv_timer_init(loop, &s->alarm);
    s->alarm.data = s;
    s->n_handles = 1;
    return s;
}

void etcd_sockets_close(struct etcd_sockets *s, void (*on_closed)(void *arg), void *arg)
{
    s->closing = true;
    s->on_closed = on_closed;
    s->on_closed_arg = arg;
    while (s->first != NULL)
        drop_watch(&s->first);
    uv_close((uv_handle_t *)&s->alarm, on_alarm_closed);
}
