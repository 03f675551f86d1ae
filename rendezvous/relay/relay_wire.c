#include "relay_wire.h"

#include "common/error.h"
#include "rendezvous/store/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

struct shape {
    const char *name; /* NULL: no such record */
    bool is_of[2];    /* by relay_end */
    bool has_bytes;
    uint32_t min, max[2]; /* of the number */
};

static const struct shape shapes[RELAY_N_KINDS] = {
    [RELAY_OPEN] = {"OPEN", {true, false}, false, 0, {0, 0}},
    [RELAY_DATA] = {"DATA", {true, true}, true, 1, {RELAY_FRAME_BYTES, RELAY_FRAME_BYTES}},
    [RELAY_CREDIT] = {"CREDIT", {true, true}, false, 1, {INT32_MAX, INT32_MAX}},
    [RELAY_CLOSE] = {"CLOSE", {true, true}, true, 0, {0, RELAY_TEXT_BYTES}},
    [RELAY_ASK] = {"ASK", {false, true}, false, 0, {0, 0}},
    [RELAY_QUIET] = {"QUIET", {true, false}, false, 0, {0, 0}},
};

static bool is_text(const uint8_t *bytes, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        if (bytes[i] < ' ' || bytes[i] == 0x7f)
            return false;
    return true;
}

static int check_record(enum relay_end from, const struct relay_record *r, size_t n_left,
                        struct co_error *err)
{
    const struct shape *s = &shapes[r->kind];
    if (!s->is_of[from])
        return co_fail(err, -EPROTO, "a relay frame contains %s, which is from the other end",
                       s->name);
    if (r->client >= RELAY_MAX_CLIENTS)
        return co_fail(err, -EPROTO,
                       "a relay frame names client %" PRIu32 ": expected less than %d", r->client,
                       RELAY_MAX_CLIENTS);
    if (r->number < s->min || r->number > s->max[from])
        return co_fail(err, -EPROTO,
                       "a relay frame contains %s with number %" PRIu32 ": expected %" PRIu32
                       " to %" PRIu32,
                       s->name, r->number, s->min, s->max[from]);
    if (s->has_bytes && r->number > n_left)
        return co_fail(err, -EPROTO, "a relay frame is cut off within %s", s->name);
    if (r->kind == RELAY_CLOSE && !is_text(r->bytes, r->number))
        return co_fail(err, -EPROTO, "a relay frame contains a CLOSE with control characters");
    return 0;
}

int relay_wire_next(enum relay_end from, const uint8_t **at, const uint8_t *end,
                    struct relay_record *ret, struct co_error *err)
{
    const size_t len = (size_t)(end - *at);
    if (len == 0)
        return 0;
    const uint8_t kind = (*at)[0];
    if (kind >= RELAY_N_KINDS || shapes[kind].name == NULL)
        return co_fail(err, -EPROTO, "a relay frame contains a record of unknown kind %u", kind);
    if (len < RELAY_HEADER_BYTES)
        return co_fail(err, -EPROTO, "a relay frame is cut off within %s", shapes[kind].name);
    const struct relay_record r = {
        .kind = (enum relay_kind)kind,
        .client = wire_get_u32(*at + 1),
        .number = wire_get_u32(*at + 5),
        .bytes = *at + RELAY_HEADER_BYTES,
    };
    int rc = check_record(from, &r, len - RELAY_HEADER_BYTES, err);
    if (rc < 0)
        return rc;
    *at += RELAY_HEADER_BYTES + (shapes[kind].has_bytes ? r.number : 0);
    *ret = r;
    return 1;
}

int64_t relay_wire_space(const struct relay_frame *f)
{
    return (int64_t)(RELAY_FRAME_BYTES - f->len) - RELAY_HEADER_BYTES;
}

void relay_wire_put(struct relay_frame *f, const struct relay_record *r)
{
    uint8_t *at = f->bytes + f->len;
    at[0] = (uint8_t)r->kind;
    wire_put_u32(at + 1, r->client);
    wire_put_u32(at + 5, r->number);
    f->len += RELAY_HEADER_BYTES;
    if (!shapes[r->kind].has_bytes || r->number == 0)
        return;
    memcpy(f->bytes + f->len, r->bytes, r->number);
    f->len += r->number;
}
