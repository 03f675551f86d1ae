/* client_stream.h - a client's connection: bytes out and in, each wait with a deadline.
 *
 * Internal to the client (client.c, client_keys.c). Deadlines are those of common/clock.h. */
#ifndef DDP_RENDEZVOUS_CLIENT_CLIENT_STREAM_H
#define DDP_RENDEZVOUS_CLIENT_CLIENT_STREAM_H

#include "rendezvous/store/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct co_buf;
struct co_error;

struct store_client {
    int fd;
    int dead; /* 0, or -EPIPE: requests and replies are out of step */
};

/* Connect and shake hands with the first address that answers as a store does.
 *
 * word      sent before anything else; empty: nothing is sent
 * retry     try again while no address answers, until the deadline
 * returns   0, -ETIMEDOUT, -EPROTO, -EINVAL, -ENOMEM, -errno; the text has the last reason */
int stream_connect(const char *host, uint16_t port, struct wire_bytes word, uint64_t deadline_ms,
                   bool retry, struct store_client *ret_client, struct co_error *err);

/* Mark the stream as stopped in mid-message: what comes next on it is unknown.
 * returns   rc */
int stream_die(struct store_client *c, int rc);

/* Send all of the run of buffers; the entries are used up.
 * returns   0, -EPIPE, -ETIMEDOUT (after which the stream is dead) */
int stream_send(struct store_client *c, struct iovec *v, size_t n_v, uint64_t deadline_ms,
                struct co_error *err);

/* Receive exactly n bytes. returns as stream_send() */
int stream_receive(struct store_client *c, void *bytes, size_t n, uint64_t deadline_ms,
                   struct co_error *err);

/* Receive until `in` holds n bytes; more may come with them.
 * returns   as stream_send(), -ENOMEM (which also ends the stream) */
int stream_fill(struct store_client *c, struct co_buf *in, size_t n, uint64_t deadline_ms,
                struct co_error *err);

/* returns   1 when there is something to receive, 0 when the deadline has passed, -EPIPE */
int stream_await_reply(struct store_client *c, uint64_t deadline_ms, struct co_error *err);

#endif
