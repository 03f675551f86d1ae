#include "own_addresses.h"

#include "common/error.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/host_names.h"
#include "rendezvous/net/resolve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

/* returns whether it is one of IPv4 or IPv6 */
static bool convert(const struct sockaddr *from, struct message_address *to)
{
    *to = (struct message_address){0};
    if (from == NULL)
        return false;
    if (from->sa_family == AF_INET) {
        to->family = 4;
        memcpy(to->bytes, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    } else if (from->sa_family == AF_INET6) {
        to->family = 6;
        memcpy(to->bytes, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, 16);
    }
    return to->family != 0;
}

/* 169.254.0.0/16, fe80::/10 */
static bool is_link_local(const struct message_address *a)
{
    if (a->family == 4)
        return a->bytes[0] == 169 && a->bytes[1] == 254;
    return a->bytes[0] == 0xfe && (a->bytes[1] & 0xc0) == 0x80;
}

static bool is_known(const struct message_address *list, size_t n, const struct message_address *a)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&list[i], a, sizeof *a) == 0)
            return true;
    return false;
}

size_t own_addresses_find(struct message_address ret[MESSAGE_MAX_ADDRESSES])
{
    struct ifaddrs *all;
    size_t n = 0;
    if (getifaddrs(&all) < 0)
        return 0;
    for (int pass = 0; pass < 2; pass++) {
        for (const struct ifaddrs *i = all; i != NULL && n < MESSAGE_MAX_ADDRESSES;
             i = i->ifa_next) {
            struct message_address a;
            if ((i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0 ||
                !convert(i->ifa_addr, &a) || is_link_local(&a) != (pass == 1) ||
                is_known(ret, n, &a))
                continue;
            ret[n++] = a;
        }
    }
    freeifaddrs(all);
    return n;
}

static bool is_own_address(const char *text)
{
    struct message_address own[MESSAGE_MAX_ADDRESSES];
    struct sockaddr_storage address;
    if (address_parse(text, 0, &address) < 0)
        return false;
    if (address_is_loopback(&address))
        return true;
    struct in6_addr v6 = address_as_v6(&address);
    for (size_t n = own_addresses_find(own), i = 0; i < n; i++)
        if (own[i].family == 4
                ? IN6_IS_ADDR_V4MAPPED(&v6) && memcmp(v6.s6_addr + 12, own[i].bytes, 4) == 0
                : memcmp(&v6, own[i].bytes, sizeof v6) == 0)
            return true;
    return false;
}

bool own_addresses_have(const char *host)
{
    return host_names_are_own(host) || is_own_address(host);
}

/* --- the numeric address of MASTER_ADDR --- */

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
    s->code = co_fail(s->err, -EAGAIN, "timed out after %d ms waiting for the address of '%.200s'",
                      MASTER_IP_WAIT_MS, s->host);
}

/* A name is resolved in an event loop of its own, so that no other event of the node is handled
 * meanwhile. */
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

void own_name_find(const char *given, char ret[MESSAGE_NAME_BYTES])
{
    char host[MESSAGE_NAME_BYTES] = "";
    gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = '\0';
    snprintf(ret, MESSAGE_NAME_BYTES, "%s",
             given != NULL     ? given
             : host[0] != '\0' ? host
                               : "localhost");
}
