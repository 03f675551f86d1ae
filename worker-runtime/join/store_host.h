/* store_host.h - a store that a rank serves to the peers in its job, from a thread of its own, if
 * the launcher provides none (pmi_store.h, env_store.h).
 *
 * The same keys and bytes as of ddprun's (store.h, session.h). It may be protected by a word that
 * only the job's ranks know: a connection that does not begin with it gets no answer. */
#ifndef DDP_WORKER_RUNTIME_JOIN_STORE_HOST_H
#define DDP_WORKER_RUNTIME_JOIN_STORE_HOST_H

#include <stdint.h>

struct co_error;
struct net_address;
struct store_host; /* opaque */

enum { STORE_HOST_WORD_BYTES = 32 };

/* Listen, and serve until store_host_close().
 *
 * address      where; one of the loopback interface stands for all
 * port         0: a free one, which is written there
 * word         of STORE_HOST_WORD_BYTES, copied; NULL: a connection needs none
 * n_clients    so many that know it are served at a time
 * returns      0, -ENOMEM, -errno */
int store_host_open(const struct net_address *address, uint16_t *port, const uint8_t *word,
                    unsigned n_clients, struct store_host **ret, struct co_error *err);

/* All guests are cut off. NULL is fine. */
void store_host_close(struct store_host *h);

#endif
