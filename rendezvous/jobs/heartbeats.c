#include "heartbeats.h"

#include "common/clock.h"
#include "common/whole.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LOOKS = 8, /* in silent_ms */
    LOOK_MIN_MS = 10,
    SILENT_LOOKS = 2, /* after each other: what came while this machine stood still is read */
};

struct host {
    uint8_t instance[MESSAGE_INSTANCE_BYTES];
    int fd;
    bool was_asked; /* a byte was written since it was heard last */
    uint32_t n_silent;
};

struct heartbeats {
    uv_timer_t timer;
    uint64_t silent_ms, looked_ms;
    void (*on_silent)(void *arg, const uint8_t *instance);
    void *arg;
    struct host *hosts; /* owned */
    uint32_t n, cap;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static uint64_t look_ms(const struct heartbeats *h)
{
    return h->silent_ms / LOOKS > LOOK_MIN_MS ? h->silent_ms / LOOKS : LOOK_MIN_MS;
}

static void close_host(struct heartbeats *h, uint32_t i)
{
    close(h->hosts[i].fd);
    h->hosts[i] = h->hosts[--h->n];
}

static uint64_t heard_before_ms(const struct host *host)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    if (getsockopt(host->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return 0;
    return info.tcpi_last_data_recv;
}

static bool has_unacked(const struct host *host)
{
    int n = 0;
    return ioctl(host->fd, SIOCOUTQ, &n) == 0 && n > 0;
}

/* In half of the time a byte is written, whose acknowledgment shows that the host lives. */
static bool is_silent(const struct heartbeats *h, struct host *host)
{
    const uint64_t before_ms = heard_before_ms(host);
    if (before_ms < h->silent_ms / 2) {
        host->was_asked = false;
    } else if (!host->was_asked) {
        host->was_asked = true;
        if (send(host->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            host->was_asked = false;
    }
    return before_ms >= h->silent_ms && host->was_asked && has_unacked(host);
}

/* The receiver may forget hosts, but adds none. */
static void look(struct heartbeats *h, bool is_late)
{
    for (uint32_t i = 0; i < h->n;) {
        struct host *host = &h->hosts[i];
        uint8_t instance[MESSAGE_INSTANCE_BYTES];
        const uint32_t n = h->n;
        if (!co_drain_socket(host->fd)) {
            close_host(h, i);
            continue;
        }
        host->n_silent = !is_silent(h, host) ? 0 : is_late ? 1 : host->n_silent + 1;
        if (host->n_silent >= SILENT_LOOKS) {
            memcpy(instance, host->instance, sizeof instance);
            h->on_silent(h->arg, instance);
        }
        i += h->n == n;
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct heartbeats *h = timer->data;
    const uint64_t now_ms = co_now_ms();
    const bool is_late = now_ms - h->looked_ms > 3 * look_ms(h);
    h->looked_ms = now_ms;
    look(h, is_late);
}

struct heartbeats *heartbeats_create(uv_loop_t *loop, uint64_t silent_ms,
                                     void (*on_silent)(void *arg, const uint8_t *instance),
                                     void *arg)
{
    struct heartbeats *h = calloc(1, sizeof *h);
    if (h == NULL)
        return NULL;
    h->silent_ms = silent_ms;
    h->on_silent = on_silent;
    h->arg = arg;
    h->timer.data = h;
    uv_timer_init(loop, &h->timer);
    return h;
}

void heartbeats_forget(struct heartbeats *h, const uint8_t instance[MESSAGE_INSTANCE_BYTES])
{
    for (uint32_t i = 0; i < h->n; i++)
        if (memcmp(h->hosts[i].instance, instance, MESSAGE_INSTANCE_BYTES) == 0) {
            close_host(h, i);
            return;
        }
}

static bool has_room(struct heartbeats *h)
{
    if (h->n < h->cap)
        return true;
    const uint32_t cap = h->cap == 0 ? 8 : 2 * h->cap;
    struct host *hosts = realloc(h->hosts, cap * sizeof *hosts);
    if (hosts == NULL)
        return false;
    h->hosts = hosts;
    h->cap = cap;
    return true;
}

int heartbeats_add(struct heartbeats *h, int fd, const uint8_t instance[MESSAGE_INSTANCE_BYTES])
{
    heartbeats_forget(h, instance);
    const int rc = h->n == HEARTBEATS_MAX ? -ENOSPC : has_room(h) ? 0 : -ENOMEM;
    if (rc < 0) {
        close(fd);
        return rc;
    }
    struct host *host = &h->hosts[h->n++];
    *host = (struct host){.fd = fd};
    memcpy(host->instance, instance, sizeof host->instance);
    if (!uv_is_active((uv_handle_t *)&h->timer)) {
        h->looked_ms = co_now_ms();
        uv_timer_start(&h->timer, on_timer, look_ms(h), look_ms(h));
    }
    return 0;
}

uint32_t heartbeats_n(const struct heartbeats *h)
{
    return h->n;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct heartbeats *h = handle->data;
    void (*on_closed)(void *arg) = h->on_closed;
    void *arg = h->on_closed_arg;
    free(h->hosts);
    free(h);
    on_closed(arg);
}

void heartbeats_close(struct heartbeats *h, void (*on_closed)(void *arg), void *arg)
{
    while (h->n > 0)
        close_host(h, h->n - 1);
    h->on_closed = on_closed;
    h->on_closed_arg = arg;
    uv_close((uv_handle_t *)&h->timer, on_timer_closed);
}
