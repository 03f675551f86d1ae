/* codec.h - TCPStore bytes to requests, and replies to bytes.
 *
 * Pure. Requests come cut anywhere and glued together; nothing in front of them gives their length.
 * The parser remembers how far it has come, so that a request which arrives in many pieces is
 * parsed once. Every length is checked before it is used; nothing is allocated here.
 *
 * One port serves three dialects, which number their opcodes differently:
 *
 *     C     torch 2.2 and later; begins with VALIDATE and the magic number
 *     B     torch 2.1
 *     A     torch 1.13 and 2.0: no APPEND, MULTI_GET, MULTI_SET, CANCEL_WAIT
 *
 * A and B agree on their first seven opcodes; a client is "old" until it uses one of the others.
 * Opcode 8 is DELETE_KEY in A and APPEND in B: it is B's if anything follows the key. A client of A
 * then waits for its reply, so that only time can decide: the parser answers CODEC_AMBIGUOUS, and
 * the caller calls codec_decide_a() when nothing has come for a while. */
#ifndef DDP_RENDEZVOUS_STORE_CODEC_H
#define DDP_RENDEZVOUS_STORE_CODEC_H

#include "wire.h"

#include <stdbool.h>

struct co_buf;
struct co_error;

enum codec_dialect {
    CODEC_UNDECIDED, /* nothing has come, or the beginning of what may be VALIDATE */
    CODEC_OLD,       /* A or B */
    CODEC_A,
    CODEC_B,
    CODEC_C,
};

struct codec_limits {
    uint64_t max_key_bytes;
    uint64_t max_value_bytes;
    uint64_t max_keys;          /* in one request */
    uint64_t max_request_bytes; /* from the opcode to the last byte */
};

enum {
    CODEC_MAX_STRINGS = 3 /* of a request without a count: key, expected, desired */
};

struct codec {
    const struct codec_limits *limits; /* borrowed */
    enum codec_dialect dialect;

    /* The request in progress. All offsets are from its opcode. */
    const struct codec_shape *shape; /* NULL: the opcode has not been read */
    size_t pos;                      /* where the next argument begins */
    size_t field;                    /* which argument that is */
    uint64_t n_rounds;               /* the count, 1 without one */
    uint64_t n_left;                 /* rounds that are not complete */
    size_t body;                     /* where the first round begins */
    size_t n_strings;                /* without a count: read so far, and where they lie */
    struct {
        size_t at, len;
    } strings[CODEC_MAX_STRINGS];
    int64_t number;
};

/* A complete request. The bytes are lent from those that were parsed. */
struct codec_request {
    enum wire_op op;
    size_t len_bytes; /* all of it, the opcode included */
    union {
        struct {
            struct wire_bytes key, value,
                desired; /* what the op has; COMPARE_SET: value is expected */
        };
        struct wire_bytes strings[CODEC_MAX_STRINGS];
    };
    int64_t number;       /* ADD's delta, BARRIER's world, PING's nonce */
    uint64_t n_items;     /* CHECK, WAIT, MULTI_GET: keys; MULTI_SET: pairs */
    const uint8_t *items; /* codec_item_take() walks over them */
};

enum codec_result {
    CODEC_MORE = 0, /* the request is not complete */
    CODEC_REQUEST = 1,
    CODEC_AMBIGUOUS = 2, /* a complete DELETE_KEY of A, or the beginning of an APPEND of B */
};

/* limits   borrowed as long as c is used */
void codec_init(struct codec *c, const struct codec_limits *limits);

/* Look for a complete request.
 *
 * bytes     from the opcode of the request in progress on: what the last call received and was
 *           not taken
 *           as a request (it may have moved), and perhaps more
 * ret       written with CODEC_REQUEST only; the next call begins after its len_bytes
 * returns   an enum codec_result, or -EPROTO: not a valid client, the text has the reason. Then
 *           the connection is unusable, since the beginning of the next request is unknown */
int codec_next(struct codec *c, const uint8_t *bytes, size_t len, struct codec_request *ret,
               struct co_error *err);

/* After CODEC_AMBIGUOUS: the client speaks A; ask codec_next() again. */
void codec_decide_a(struct codec *c);

/* Take the string at *at, which must lie in a request's items, and move *at past it. */
struct wire_bytes codec_item_take(const uint8_t **at);

const char *codec_op_name(enum wire_op op); /* "SET"; static text */

/* Append replies to `out`. All return 0 or -ENOMEM. */
int codec_reply_u8(struct co_buf *out, uint8_t value);
int codec_reply_u32(struct co_buf *out, uint32_t value);
int codec_reply_i64(struct co_buf *out, int64_t value);
int codec_reply_string(struct co_buf *out, struct wire_bytes value);

#endif
