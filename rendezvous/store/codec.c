#include "codec.h"

#include "common/buf.h"
#include "common/error.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

/* What follows an opcode. `fields`: 'k' a key, 'v' a value, 'i' an i64, 'u' a u32. With `counted` a
 * u64 comes first, and the fields that many times. */
struct codec_shape {
    const char *name;
    const char *fields;
    bool counted;
};

static const struct codec_shape shapes[WIRE_N_OPS] = {
    [WIRE_VALIDATE] = {"VALIDATE", "u"},
    [WIRE_SET] = {"SET", "kv"},
    [WIRE_COMPARE_SET] = {"COMPARE_SET", "kvv"},
    [WIRE_GET] = {"GET", "k"},
    [WIRE_ADD] = {"ADD", "ki"},
    [WIRE_CHECK] = {"CHECK", "k", .counted = true},
    [WIRE_WAIT] = {"WAIT", "k", .counted = true},
    [WIRE_GETNUMKEYS] = {"GETNUMKEYS", ""},
    [WIRE_DELETE_KEY] = {"DELETE_KEY", "k"},
    [WIRE_APPEND] = {"APPEND", "kv"},
    [WIRE_MULTI_GET] = {"MULTI_GET", "k", .counted = true},
    [WIRE_MULTI_SET] = {"MULTI_SET", "kv", .counted = true},
    [WIRE_CANCEL_WAIT] = {"CANCEL_WAIT", ""},
    [WIRE_PING] = {"PING", "u"},
    [WIRE_QUEUE_PUSH] = {"QUEUE_PUSH", "kv"},
    [WIRE_QUEUE_POP] = {"QUEUE_POP", "k"},
    [WIRE_QUEUE_LEN] = {"QUEUE_LEN", "k"},
    [WIRE_LIST_KEYS] = {"LIST_KEYS", ""},
    [WIRE_BARRIER] = {"BARRIER", "ki"},
};

/* Opcodes of the old dialects, those they share first. */
enum {
    N_SHARED_OPS = 7,
    OP_B_DELETE_KEY = 7, /* in A WATCH_KEY, which no Python client can send */
    OP_AMBIGUOUS = 8,
    N_OPS_B = 12,
};
static const enum wire_op ops_of_b[N_OPS_B] = {
    WIRE_SET,    WIRE_COMPARE_SET, WIRE_GET,        WIRE_ADD,
    WIRE_CHECK,  WIRE_WAIT,        WIRE_GETNUMKEYS, WIRE_DELETE_KEY,
    WIRE_APPEND, WIRE_MULTI_GET,   WIRE_MULTI_SET,  WIRE_CANCEL_WAIT,
};

void codec_init(struct codec *c, const struct codec_limits *limits)
{
    *c = (struct codec){.limits = limits};
}

/* --- opcodes --- */

/* The first bytes distinguish C from the old ones: read as a SET of theirs, the magic number would
 * be the length of a key, and over any limit. Returns false while they are too few to decide. */
static bool decide_dialect(struct codec *c, const uint8_t *bytes, size_t len)
{
    static const uint8_t handshake[5] = {WIRE_VALIDATE, 0xce, 0xf7, 0x85, 0x3c};
    for (size_t i = 0; i < sizeof handshake; i++) {
        if (i == len)
            return false;
        if (bytes[i] != handshake[i]) {
            c->dialect = CODEC_OLD;
            return true;
        }
    }
    c->dialect = CODEC_C;
    return true;
}

static void begin_request(struct codec *c, enum wire_op op)
{
    c->shape = &shapes[op];
    c->pos = 1;
    c->field = 0;
    c->n_rounds = c->n_left = 1;
    c->body = 1;
    c->n_strings = 0;
    c->number = 0;
}

static int unknown_opcode(const struct codec *c, uint8_t opcode, struct co_error *err)
{
    if (c->dialect == CODEC_C)
        return co_fail(err, -EPROTO, "unknown opcode %u", opcode);
    return co_fail(err, -EPROTO, "unknown opcode %u%s", opcode,
                   opcode >= N_OPS_B ? ": the client did not start as PyTorch 2.2 and later do"
                                     : "");
}

static int read_opcode(struct codec *c, uint8_t opcode, struct co_error *err)
{
    if (c->dialect == CODEC_C) {
        if (opcode == WIRE_VALIDATE || opcode >= WIRE_N_OPS)
            return unknown_opcode(c, opcode, err);
        begin_request(c, (enum wire_op)opcode);
        return 0;
    }
    if (c->dialect == CODEC_OLD && opcode >= N_SHARED_OPS && opcode != OP_AMBIGUOUS &&
        opcode < N_OPS_B)
        c->dialect = CODEC_B;
    if (opcode < N_SHARED_OPS || (c->dialect == CODEC_B && opcode < N_OPS_B))
        begin_request(c, ops_of_b[opcode]);
    else if (opcode == OP_AMBIGUOUS) /* what both have is the key */
        begin_request(c, WIRE_DELETE_KEY);
    else
        return unknown_opcode(c, opcode, err);
    return 0;
}

/* --- arguments --- */

static int too_long(const struct codec *c, const char *what, uint64_t len, uint64_t max,
                    struct co_error *err)
{
    return co_fail(err, -EPROTO, "%s: a %s of %" PRIu64 " bytes (at most %" PRIu64 ")",
                   c->shape->name, what, len, max);
}

/* These three return 1 when the argument is complete, 0 when it is not, -EPROTO. */
static int read_count(struct codec *c, const uint8_t *bytes, size_t len, struct co_error *err)
{
    if (len - c->pos < 8)
        return 0;
    uint64_t n = wire_get_u64(bytes + c->pos);
    if (n > c->limits->max_keys)
        return co_fail(err, -EPROTO, "%s: %" PRIu64 " keys (at most %" PRIu64 ")", c->shape->name,
                       n, c->limits->max_keys);
    c->n_rounds = c->n_left = n;
    c->pos += 8;
    c->body = c->pos;
    return 1;
}

static int read_string(struct codec *c, bool is_key, const uint8_t *bytes, size_t len,
                       struct co_error *err)
{
    if (len - c->pos < 8)
        return 0;
    uint64_t n = wire_get_u64(bytes + c->pos);
    uint64_t max = is_key ? c->limits->max_key_bytes : c->limits->max_value_bytes;
    if (n > max)
        return too_long(c, is_key ? "key" : "value", n, max, err);
    if (n > c->limits->max_request_bytes || c->pos + 8 > c->limits->max_request_bytes - n)
        return co_fail(err, -EPROTO, "%s: more than %" PRIu64 " bytes", c->shape->name,
                       c->limits->max_request_bytes);
    if (len - c->pos - 8 < n)
        return 0;
    if (!c->shape->counted) {
        c->strings[c->n_strings].at = c->pos + 8;
        c->strings[c->n_strings++].len = (size_t)n;
    }
    c->pos += 8 + (size_t)n;
    return 1;
}

static int read_number(struct codec *c, size_t n_bytes, const uint8_t *bytes, size_t len)
{
    if (len - c->pos < n_bytes)
        return 0;
    c->number = n_bytes == 8 ? (int64_t)wire_get_u64(bytes + c->pos) : wire_get_u32(bytes + c->pos);
    c->pos += n_bytes;
    return 1;
}

static int read_field(struct codec *c, char kind, const uint8_t *bytes, size_t len,
                      struct co_error *err)
{
    switch (kind) {
    case 'i':
        return read_number(c, 8, bytes, len);
    case 'u':
        return read_number(c, 4, bytes, len);
    default:
        return read_string(c, kind == 'k', bytes, len, err);
    }
}

static int read_arguments(struct codec *c, const uint8_t *bytes, size_t len, struct co_error *err)
{
    if (c->shape->counted && c->pos == 1) {
        int rc = read_count(c, bytes, len, err);
        if (rc <= 0)
            return rc;
    }
    for (; c->n_left > 0; c->n_left--) {
        for (; c->shape->fields[c->field] != '\0'; c->field++) {
            int rc = read_field(c, c->shape->fields[c->field], bytes, len, err);
            if (rc <= 0)
                return rc;
        }
        c->field = c->n_left > 1 ? 0 : c->field;
    }
    return 1;
}

/* --- requests --- */

static void finish_request(struct codec *c, const uint8_t *bytes, struct codec_request *ret)
{
    *ret = (struct codec_request){
        .op = (enum wire_op)(c->shape - shapes),
        .len_bytes = c->pos,
        .number = c->number,
        .n_items = c->shape->counted ? c->n_rounds : 0,
        .items = bytes + c->body,
    };
    for (size_t i = 0; i < c->n_strings; i++)
        ret->strings[i] = (struct wire_bytes){bytes + c->strings[i].at, c->strings[i].len};
    c->shape = NULL;
}

int codec_next(struct codec *c, const uint8_t *bytes, size_t len, struct codec_request *ret,
               struct co_error *err)
{
    if (len == 0)
        return CODEC_MORE;
    if (c->dialect == CODEC_UNDECIDED) {
        if (!decide_dialect(c, bytes, len))
            return CODEC_MORE;
        if (c->dialect == CODEC_C)
            begin_request(c, WIRE_VALIDATE);
    }
    if (c->shape == NULL && read_opcode(c, bytes[0], err) < 0)
        return -EPROTO;
    int rc = read_arguments(c, bytes, len, err);
    if (rc <= 0)
        return rc;
    if (c->dialect == CODEC_OLD && bytes[0] == OP_AMBIGUOUS) {
        if (len == c->pos)
            return CODEC_AMBIGUOUS;
        c->dialect = CODEC_B;
        begin_request(c, WIRE_APPEND);
        rc = read_arguments(c, bytes, len, err);
        if (rc <= 0)
            return rc;
    }
    finish_request(c, bytes, ret);
    return CODEC_REQUEST;
}

void codec_decide_a(struct codec *c)
{
    assert(c->dialect == CODEC_OLD);
    c->dialect = CODEC_A;
}

struct wire_bytes codec_item_take(const uint8_t **at)
{
    struct wire_bytes item = {*at + 8, (size_t)wire_get_u64(*at)};
    *at += 8 + item.len;
    return item;
}

const char *codec_op_name(enum wire_op op)
{
    return shapes[op].name;
}

/* --- replies --- */

int codec_reply_u8(struct co_buf *out, uint8_t value)
{
    return co_buf_append(out, &value, 1);
}

int codec_reply_u32(struct co_buf *out, uint32_t value)
{
    uint8_t bytes[4];
    wire_put_u32(bytes, value);
    return co_buf_append(out, bytes, sizeof bytes);
}

int codec_reply_i64(struct co_buf *out, int64_t value)
{
    uint8_t bytes[8];
    wire_put_u64(bytes, (uint64_t)value);
    return co_buf_append(out, bytes, sizeof bytes);
}

int codec_reply_string(struct co_buf *out, struct wire_bytes value)
{
    int rc = codec_reply_i64(out, (int64_t)value.len);
    return rc < 0 ? rc : co_buf_append(out, value.at, value.len);
}
