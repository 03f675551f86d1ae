#include "master_ip.h"

#include "common/error.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/resolve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <uv.h>

struct search {
    uv_timer_t timer;
    struct resolve *question; /* NULL: answered */
    const char *host;
    char *ip;
    int code;
    struct co_error *err;
};

static void on_done(void *arg, int code, const char *text, const struct sockaddr_storage *addresses,
                    size_t n)
{
    struct search *s = arg;
    s->question = NULL;
    s->code = code;
    uv_close((uv_handle_t *)&s->timer, NULL);
    if (code < 0) {
        co_fail(s->err, code, "%s", text);
        return;
    }
    size_t i = 0;
    while (i < n && addresses[i].ss_family != AF_INET)
        i++;
    address_print_host(&addresses[i < n ? i : 0], s->ip, INET6_ADDRSTRLEN);
}

static void on_timeout(uv_timer_t *timer)
{
    struct search *s = timer->data;
    resolve_cancel(s->question);
    uv_close((uv_handle_t *)timer, NULL);
    s->code = co_fail(s->err, -EAGAIN, "no address of '%.200s' was found within %d ms", s->host,
                      MASTER_IP_WAIT_MS);
}

/* A name is resolved in an event loop of its own, so that no other event of the node comes
 * between. */
int master_ip_find(const char *host, char ret_ip[INET6_ADDRSTRLEN], struct co_error *err)
{
    struct search s = {.host = host, .ip = ret_ip, .err = err};
    struct in6_addr address;
    uv_loop_t loop;
    if (inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1) {
        snprintf(ret_ip, INET6_ADDRSTRLEN, "%s", host);
        return 0;
    }
    int rc = uv_loop_init(&loop);
    if (rc < 0)
        return co_fail(err, rc, "cannot make an event loop: %s", uv_strerror(rc));
    uv_timer_init(&loop, &s.timer);
    s.timer.data = &s;
    uv_timer_start(&s.timer, on_timeout, MASTER_IP_WAIT_MS, 0);
    s.code = resolve_start(&loop, host, 0, on_done, &s, &s.question, err);
    if (s.code < 0)
        uv_close((uv_handle_t *)&s.timer, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    return s.code;
}
