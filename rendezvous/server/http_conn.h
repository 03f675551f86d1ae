/* http_conn.h - connections of probes and scrapers: libuv around http.h.
 *
 * Few are kept at a time, each holds a few KiB at most, and a slow one is dropped for the next one:
 * they share a port with the store, and must cost it nothing. */
#ifndef DDP_RENDEZVOUS_SERVER_HTTP_CONN_H
#define DDP_RENDEZVOUS_SERVER_HTTP_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct co_buf;
struct http_conn; /* opaque */
struct http_request;

/* What the connections of a server share. Filled by the server, used by http_conn.c. */
struct http_host {
    uv_loop_t *loop;
    uint32_t n_open, max_open;
    uint32_t n_conns;                  /* including those in mid-close */
    struct http_conn *oldest, *newest; /* by when they were last answered */
    uint64_t n_requests;               /* answered so far, including with errors */

    /* Append the requested page to body.
     * is_trusted   as http_conn_start() got it
     * returns      0 with its type in *ret_type (static text); -ENOENT; -EACCES; -ENOMEM;
     *              -EAGAIN: not now; -EXDEV: not for this host, body has the reason */
    int (*on_page)(struct http_host *h, const struct http_request *r, bool is_trusted,
                   struct co_buf *body, const char **ret_type);
    /* A connection is gone, and n_conns smaller. */
    void (*on_gone)(struct http_host *h);
};

/* Take over a connected socket, from which these bytes were read already. It closes itself; what
 * cannot be served for want of memory is closed at once.
 *
 * is_trusted   for on_page */
void http_conn_start(struct http_host *h, int fd, bool is_trusted, const uint8_t *bytes,
                     size_t len);

void http_conn_close_all(struct http_host *h);

#endif
