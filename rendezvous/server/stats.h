/* stats.h - a server in figures, as Prometheus and as JSON has them.
 *
 * Pure: the server fills the struct in (server_get_stats). */
#ifndef DDP_RENDEZVOUS_SERVER_STATS_H
#define DDP_RENDEZVOUS_SERVER_STATS_H

#include "rendezvous/store/wire.h"

#include <stdint.h>

struct co_buf;

struct stats {
    const char *version; /* of the program; borrowed */
    uint64_t uptime_ms;
    uint32_t n_clients; /* connected now, to the store */
    uint32_t max_clients;
    uint64_t n_connections; /* accepted so far, of all protocols */
    uint64_t n_refused;     /* of those: not let in, or closed for bad bytes or a limit */
    uint64_t n_keys;
    uint64_t n_store_bytes, max_store_bytes;   /* keys, values, and what is kept about them */
    uint64_t n_buffer_bytes, max_buffer_bytes; /* requests and replies on their way */
    uint64_t n_requests[WIRE_N_OPS];           /* done so far */
    uint64_t n_http_requests;
};

/* Append to `out`.
 *
 * more      members of the JSON object that others add, each behind a comma; NULL: none
 * returns   0, -ENOMEM */
int stats_print_prometheus(const struct stats *s, struct co_buf *out); /* text format 0.0.4 */
int stats_print_json(const struct stats *s, const struct co_buf *more, struct co_buf *out);

#endif
