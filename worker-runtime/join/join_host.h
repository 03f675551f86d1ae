/* join_host.h - the broker of ranks that no ddprun started: local rank 0 holds it while all
 * join. */
#ifndef DDP_WORKER_RUNTIME_JOIN_JOIN_HOST_H
#define DDP_WORKER_RUNTIME_JOIN_JOIN_HOST_H

#include <stdbool.h>
#include <stdint.h>

struct co_error;
struct join_host; /* opaque */

/* Listen on an abstract socket and make the control segment that is handed out there.
 *
 * name       of the socket, without the leading NUL
 * ret_sock   local rank 0's own end, owned by the caller: it uses the broker as all other ranks do
 * returns    0; -EADDRINUSE another process holds the name: try again, until the deadline;
 *            -errno */
int join_host_create(const char *name, unsigned n_local, uint32_t generation,
                     struct join_host **ret, int *ret_sock, struct co_error *err);
void join_host_destroy(struct join_host *h); /* NULL is fine */

/* Wait until there is something to do, or `also` (a descriptor) can be read, at most timeout_ms,
 * and do it. Bad peers are dropped.
 *
 * returns   0, -errno */
int join_host_turn(struct join_host *h, int also, int timeout_ms, struct co_error *err);

/* Whether that rank has sent its hello. */
bool join_host_has_come(const struct join_host *h, unsigned local_rank);

/* Why the last peer that was sent away was sent away; "" if none was. */
const char *join_host_last_refusal(const struct join_host *h);

#endif
