/* etcd_wire.h - what an elector asks as requests to etcd, and etcd's answers. Pure.
 *
 * The JSON gateway of etcd's API v3, as versions 3.4 and later have it at /v3: 64-bit numbers are
 * strings, keys and values base64, and what is zero is left out. All input is checked before use,
 * because another program may have written the values under our keys. docs/design/etcd.md has the
 * keys and what is in them. */
#ifndef DDP_RENDEZVOUS_ELECTION_ETCD_WIRE_H
#define DDP_RENDEZVOUS_ELECTION_ETCD_WIRE_H

#include "elector.h"

#include <stddef.h>

struct co_buf;
struct co_error;

enum {
    ETCD_WIRE_KEY_BYTES = 1024,   /* with the NUL */
    ETCD_WIRE_VALUE_BYTES = 4096, /* what we read under a key */
    ETCD_WIRE_MAX_ANSWER = 65536,
    ETCD_WIRE_TOKEN_BYTES = 4096, /* what a user is known by, with the NUL: a JWT may be long */
};

/* Where a job's keys are. */
struct etcd_wire_keys {
    char leader[ETCD_WIRE_KEY_BYTES], record[ETCD_WIRE_KEY_BYTES];
};

/* prefix    without a slash at its end
 * returns   0; -ENAMETOOLONG */
int etcd_wire_keys(const char *prefix, const char *run_id, struct etcd_wire_keys *ret);

/* A request.
 *
 * body      appended: JSON, not NUL-terminated
 * returns   the path; NULL: out of memory */
const char *etcd_wire_encode(const struct etcd_wire_keys *keys, const struct elector_request *ask,
                             struct co_buf *body);

/* Its answer. Anything else than an answer to it becomes a failed one, with a text.
 *
 * status   of HTTP
 * ret      ret->failed: whether etcd has done what was asked is not known */
void etcd_wire_decode(const struct etcd_wire_keys *keys, const struct elector_request *ask,
                      int status, const char *text, size_t len, struct elector_answer *ret);

/* Does this answer report that the token is not valid any more, or never was? */
bool etcd_wire_wants_login(int status, const char *text, size_t len);

/* The request for a token. As etcd_wire_encode(). */
const char *etcd_wire_encode_login(const char *user, const char *password, struct co_buf *body);

/* returns   0; -EPROTO: there is no token, the text has the reason */
int etcd_wire_decode_login(int status, const char *text, size_t len,
                           char token[ETCD_WIRE_TOKEN_BYTES], struct co_error *err);

#endif
