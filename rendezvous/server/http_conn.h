/* http_conn.h - connections of probes and scrapers: libuv around http.h.
 *
 * Few are kept at a time, each holds a few KiB at most, and a slow one is dropped for the next one:
 * they share a port with the store, and must cost it nothing. */
#ifndef DDP_RENDEZVOUS_SERVER_HTTP_CONN_H
#define DDP_RENDEZVOUS_SERVER_HTTP_CONN_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct co_buf;
struct http_conn; /* opaque */

/* What the connections of a server share. Filled by the server, used by http_conn.c. */
struct http_host {
    uv_loop_t *loop;
    uint32_t n_open;
    uint32_t n_conns;                  /* including those in mid-close */
    struct http_conn *oldest, *newest; /* by when they were last answered */
    uint64_t n_requests;               /* answered so far, including with errors */

    /* Append the page at this path to body.
     * path      not terminated
     * returns   0 with its type in *ret_type (static text); -ENOENT; -ENOMEM */
    int (*on_page)(struct http_host *h, const char *path, size_t path_len, struct co_buf *body,
                   const char **ret_type);
    /* A connection is gone, and n_conns smaller. */
    void (*on_gone)(struct http_host *h);
};

/* Take over a connected socket, from which these bytes were read already. It closes itself; what
 * cannot be served for want of memory is closed at once. */
void http_conn_start(struct http_host *h, int fd, const uint8_t *bytes, size_t len);

void http_conn_close_all(struct http_host *h);

#endif
