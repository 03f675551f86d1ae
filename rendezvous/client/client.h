/* client.h - the caller's end of a TCPStore: blocking calls with deadlines, on a socket of its own.
 *
 * Speaks the newest of the protocol's three dialects (torch 2.2 and later, and our own server).
 * Keys go out as given: torch puts a '/' in front of its own. Not thread-safe. After -EPROTO,
 * -EPIPE or a -ETIMEDOUT in mid-reply the connection is dead and every call fails. */
#ifndef DDP_RENDEZVOUS_CLIENT_CLIENT_H
#define DDP_RENDEZVOUS_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct store_client; /* opaque */

/* Connect and shake hands; tries again while the connection is refused, until deadline_ms of
 * common/clock.h.
 *
 * host      a name or a numeric address
 * returns   0, -ETIMEDOUT (the text has the last reason), -EPROTO (no TCPStore there), -EINVAL,
 *           -errno */
int client_connect(const char *host, uint16_t port, uint64_t deadline_ms,
                   struct store_client **ret_client, struct co_error *err);

/* The same, but if no process serves there now, the call returns that: -ECONNREFUSED and similar
 * errors. */
int client_connect_once(const char *host, uint16_t port, uint64_t deadline_ms,
                        struct store_client **ret_client, struct co_error *err);

/* As client_connect_once(), to a store that wants to hear a word first. */
int client_connect_by_word(const char *host, uint16_t port, const void *word, size_t word_len,
                           uint64_t deadline_ms, struct store_client **ret_client,
                           struct co_error *err);
void client_close(struct store_client *c); /* NULL is fine */

/* The two ends of the connection: by what address this machine reaches the store, and the store's.
 * A family of 0: not known. */
struct sockaddr_storage;
void client_addresses(const struct store_client *c, struct sockaddr_storage *ret_local,
                      struct sockaddr_storage *ret_peer);

/* returns of all: 0; -ETIMEDOUT; -EPIPE the server went away; -EPROTO; -ENOMEM */
int client_set(struct store_client *c, const void *key, size_t key_len, const void *value,
               size_t value_len, uint64_t deadline_ms, struct co_error *err);

/* Wait for the key, then read it. ret_value is malloc'ed with a NUL after its last byte, owned by
 * the caller. A wait that times out is canceled; the connection stays usable. */
int client_get(struct store_client *c, const void *key, size_t key_len, uint64_t deadline_ms,
               uint8_t **ret_value, size_t *ret_len, struct co_error *err);

/* Read the key if it is there by now.
 * returns   as all; -ENOENT it is not */
int client_get_now(struct store_client *c, const void *key, size_t key_len, uint64_t deadline_ms,
                   uint8_t **ret_value, size_t *ret_len, struct co_error *err);
int client_add(struct store_client *c, const void *key, size_t key_len, int64_t delta,
               uint64_t deadline_ms, int64_t *ret_value, struct co_error *err);
int client_wait(struct store_client *c, const void *key, size_t key_len, uint64_t deadline_ms,
                struct co_error *err);

/* Whether a wait for the key would be over. A set has no reply, and a check after it on the same
 * connection confirms that it was done: a store that refuses one closes the connection. */
int client_check(struct store_client *c, const void *key, size_t key_len, uint64_t deadline_ms,
                 bool *ret_there, struct co_error *err);

/* ret_deleted: 1 if it was there */
int client_delete(struct store_client *c, const void *key, size_t key_len, uint64_t deadline_ms,
                  int64_t *ret_deleted, struct co_error *err);

/* The keys of a store, sorted by their bytes. */
struct client_keys {
    size_t n;
    struct client_key {
        const uint8_t *at; /* in `bytes` */
        size_t len;
    } * keys;
    uint8_t *bytes;
};

/* List all keys, but not queues. Torch's servers can do this since 2.10; older ones close, which is
 * -EPIPE, and the connection is dead.
 *
 * ret_keys   client_keys_fini() them
 * returns    as all; -EPROTO also more than a GiB or 2^24 keys */
int client_list_keys(struct store_client *c, uint64_t deadline_ms, struct client_keys *ret_keys,
                     struct co_error *err);
void client_keys_fini(struct client_keys *k);

#endif
