/* store_model.h - what a store must answer its clients, in the simplest form. For tests.
 *
 * The fuzz targets compare store.c and session.c with this model, which takes requests instead of
 * bytes. Everything is in short arrays that are searched from the front, nothing is fast, and
 * nothing counts memory. docs/design/wire.md describes the same in words. What cannot happen here
 * aborts. */
#ifndef DDP_TESTS_FUZZ_STORE_MODEL_H
#define DDP_TESTS_FUZZ_STORE_MODEL_H

#include "common/buf.h"
#include "rendezvous/store/wire.h"

#include <stdbool.h>

enum {
    MODEL_CLIENTS = 4,
    MODEL_NAMES = 8, /* names are known by their index */
    MODEL_ITEMS = 4, /* of a request with a count, at most */
};

struct model_request {
    enum wire_op op;
    int n_names;
    int names[MODEL_ITEMS];
    /* SET, APPEND, QUEUE_PUSH: one; COMPARE_SET: expected, desired; MULTI_SET: one for each name */
    struct wire_bytes values[MODEL_ITEMS];
    int64_t number; /* ADD's delta, BARRIER's world, PING's nonce */
};

/* Whether a request that comes in while a wait is open puts an end to it (see
 * docs/design/wire.md): so it is for clients that cannot cancel one. */
enum model_client {
    MODEL_CAN_CANCEL,
    MODEL_CANNOT_CANCEL,
};

struct model; /* opaque */

/* names             MODEL_NAMES of them, borrowed
 * max_reply_bytes   a longer reply is refused */
struct model *model_create(const struct wire_bytes *names, uint64_t max_reply_bytes);
void model_destroy(struct model *m);

/* Do what a client asked for. Its replies, and those that others get because of it, are appended
 * to model_replies() of each; LIST_KEYS' in an order of the model's own.
 *
 * returns   false: the connection is closed instead, and nothing has changed */
bool model_run(struct model *m, int client, enum model_client kind, const struct model_request *r);
void model_leave(struct model *m, int client);

/* What a client was sent. The caller consumes what it has compared. */
struct co_buf *model_replies(struct model *m, int client);

bool model_has_key(const struct model *m, int name);
int64_t model_n_keys(const struct model *m);

#endif
