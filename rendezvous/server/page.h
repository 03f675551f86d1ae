/* page.h - the pages of a server (server.h): its figures, as Prometheus and as JSON have them, and
 * the printing for figures of others. Pure.
 *
 * After a failure nothing is printed any more, so that a caller looks once, at the end. */
#ifndef DDP_RENDEZVOUS_SERVER_PAGE_H
#define DDP_RENDEZVOUS_SERVER_PAGE_H

#include "rendezvous/store/wire.h"

#include <stddef.h>
#include <stdint.h>

struct co_buf;

struct page {
    struct co_buf *out; /* borrowed */
    int rc;             /* 0; -ENOMEM: the first failure */
};

void page_append(struct page *p, const char *text, size_t len);

/* At most 511 bytes: what is longer is cut. */
__attribute__((format(printf, 2, 3))) void page_print(struct page *p, const char *format, ...);

/* Prometheus: what a metric is, and that with its only value. Names have "ddp_rendezvous_" put in
 * front. type: "gauge", "counter" */
void page_metric_head(struct page *p, const char *name, const char *type, const char *help);
void page_metric(struct page *p, const char *name, const char *type, const char *help,
                 uint64_t value);

struct stats {
    const char *version; /* of the program; borrowed */
    uint64_t uptime_ms;
    uint32_t n_clients; /* connected now, to the store */
    uint32_t max_clients;
    uint64_t n_connections; /* accepted so far, of all protocols */
    uint64_t n_refused;     /* of those: refused, or closed for bad bytes or a limit */
    uint64_t n_keys;
    uint64_t n_store_bytes, max_store_bytes;   /* keys, values, and what is kept about them */
    uint64_t n_buffer_bytes, max_buffer_bytes; /* requests and replies on their way */
    uint64_t n_requests[WIRE_N_OPS];           /* done so far */
    uint64_t n_http_requests;
};

/* Append a server's figures to `out`.
 *
 * more      members of the JSON object that others add, each after a comma; NULL: none
 * returns   0, -ENOMEM */
int page_stats_prometheus(const struct stats *s, struct co_buf *out); /* text format 0.0.4 */
int page_stats_json(const struct stats *s, const struct co_buf *more, struct co_buf *out);

#endif
