/* etcd_http.h - one request to etcd at a time, by libcurl's multi interface.
 *
 * A request's time is bounded, as is the size of its answer. No proxy, no redirection: a site's
 * proxy does not lead to its own etcd. */
#ifndef DDP_RENDEZVOUS_ETCD_ETCD_HTTP_H
#define DDP_RENDEZVOUS_ETCD_ETCD_HTTP_H

#include "etcd_plugin.h"

struct etcd_http; /* opaque */

struct etcd_http_callbacks {
    /* The request is over. status 0: there was no answer, and `text` has the reason; else `text` is
     * the answer, NUL-terminated after its len bytes. Lent for the call, in which the next request
     * may be made. */
    void (*on_done)(void *arg, int status, const char *text, size_t len);
    void *arg;
};

/* returns   0; -ENOMEM; -EINVAL: an option that this libcurl does not take */
int etcd_http_open(const struct etcd_config *config, const struct etcd_host *host,
                   const struct etcd_http_callbacks *callbacks, struct etcd_http **ret,
                   struct co_error *err);

/* POST. A pending request is dropped; on_done is not called for it.
 *
 * token     of a user; empty: none
 * body      copied
 * returns   0, -ENOMEM */
int etcd_http_post(struct etcd_http *h, const char *path, const char *token, const void *body,
                   size_t len, uint64_t timeout_ms);

void etcd_http_ready(struct etcd_http *h, int fd, int events);
void etcd_http_alarm(struct etcd_http *h);
uint64_t etcd_http_deadline_ms(const struct etcd_http *h); /* CO_NEVER_MS: no alarm */

/* The address by which etcd was reached last, in figures; "": never. */
const char *etcd_http_own_address(const struct etcd_http *h);

void etcd_http_close(struct etcd_http *h); /* NULL is fine */

#endif
