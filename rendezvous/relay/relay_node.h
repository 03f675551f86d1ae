/* relay_node.h - the node end of a relay link: the clients of one node, carried to a store on
 * another one.
 *
 * Pure: bytes and frames come in and go out, and the caller carries them. It does not parse what
 * clients send: the session at the store end does. Nothing is cached, so each request is run once,
 * by the store.
 *
 * After each relay_node_take() the caller asks relay_node_next_due() which clients have changed,
 * and sends frames made by relay_node_put() whenever the link takes one. */
#ifndef DDP_RENDEZVOUS_RELAY_RELAY_NODE_H
#define DDP_RENDEZVOUS_RELAY_RELAY_NODE_H

#include "common/buf.h"
#include "relay_wire.h"

#include <stdbool.h>

struct relay_node;   /* opaque: one link */
struct relay_client; /* opaque: a connection of a process of this node */

struct relay_node_limits {
    uint32_t max_clients;  /* 1 to RELAY_MAX_CLIENTS */
    uint32_t window_bytes; /* of one client in one direction; the same at both ends; 2 or more */
    uint64_t max_bytes;    /* of all clients together, in one direction */
};

/* returns   0, -EINVAL (limits), -ENOMEM */
int relay_node_create(const struct relay_node_limits *limits, struct relay_node **ret,
                      struct co_error *err);

/* The link has ended: its clients are freed too, and the caller closes their connections. NULL is
 * fine. */
void relay_node_destroy(struct relay_node *r);

uint32_t relay_node_n_clients(const struct relay_node *r); /* whose places are taken */
uint64_t relay_node_n_bytes(const struct relay_node *r);   /* that it holds, both directions */

/* A frame has come. returns   0; -EPROTO: the link is unusable, the text has the reason; -ENOMEM */
int relay_node_take(struct relay_node *r, const uint8_t *frame, size_t len, struct co_error *err);

/* Make the next frame of what is to be sent, all clients taking turns. The length is 0 if nothing
 * is. */
void relay_node_put(struct relay_node *r, struct relay_frame *ret);

/* A client for which something has changed since the last call: relay_client_space(),
 * relay_client_replies(), relay_client_is_asked(), or relay_client_is_ended(). NULL: no other. */
struct relay_client *relay_node_next_due(struct relay_node *r);

/* A process has connected.
 *
 * user      for relay_client_user()
 * returns   0, -EUSERS (max_clients; the text contains it), -ENOMEM */
int relay_node_open(struct relay_node *r, void *user, struct relay_client **ret,
                    struct co_error *err);

void *relay_client_user(const struct relay_client *c);

/* How many bytes may be pushed now. 0: do not read from the client. */
size_t relay_client_space(const struct relay_client *c);

/* Bytes that the client has sent. returns   0, -EINVAL (more than there is space for), -ENOMEM */
int relay_client_push(struct relay_client *c, const uint8_t *bytes, size_t len);

/* What the client is to receive; relay_client_sent() takes n bytes off. */
const struct co_buf *relay_client_replies(const struct relay_client *c);
void relay_client_sent(struct relay_client *c, size_t n);

/* The store asks whether the client pauses (codec.h: opcode 8 of old clients). Call
 * relay_client_quiet() when nothing has come from it for 50 ms. */
bool relay_client_is_asked(const struct relay_client *c);
void relay_client_quiet(struct relay_client *c);

/* Whether the connection is to be closed when the replies are sent.
 *
 * ret_text   why, lent; "": because the client has left */
bool relay_client_is_ended(const struct relay_client *c, const char **ret_text);

/* The client sends nothing more. Its complete requests are still run; replies that are within the
 * window may still come, then relay_client_is_ended(). */
void relay_client_leave(struct relay_client *c);

/* The connection is closed, and the client must not be used any more. */
void relay_client_release(struct relay_client *c);

#endif
