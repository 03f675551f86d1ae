/* channel_wire.h - the messages of message.h as bytes, and back.
 *
 * Pure. One message is one frame; what puts frames on a connection, sealed or not, is seal.h. All
 * that comes is checked against the bounds of message.h before it is believed: lengths, ranges,
 * text without control characters, nothing left over. Nothing is allocated.
 *
 * Integers are little endian. A text is its length (u16), its bytes and a NUL, so that a decoded
 * one can be lent as a C string. docs/design/membership.md has the layout of each message. */
#ifndef DDP_RENDEZVOUS_CHANNEL_CHANNEL_WIRE_H
#define DDP_RENDEZVOUS_CHANNEL_CHANNEL_WIRE_H

#include "rendezvous/membership/message.h"

struct co_buf;
struct co_error;

#define CHANNEL_WIRE_VERSION   12
#define CHANNEL_WIRE_MAX_BYTES 65536 /* of one message */

/* Append a message to `out`.
 *
 * returns   0; -ENOMEM; -EINVAL: it breaks a bound of message.h (`out` is as before) */
int channel_wire_encode(const struct message *m, struct co_buf *out, struct co_error *err);

/* What a decoded message lends, besides the bytes of its frame. */
struct channel_wire_scratch {
    struct message_address addresses[MESSAGE_MAX_MEMBERS];
    struct message_progress progress;
    struct message_result_rank ranks[MESSAGE_MAX_LOCAL];
    struct message_figures_rank figures[MESSAGE_MAX_LOCAL];
};

/* bytes     one whole frame; lent to *ret, as `scratch` is
 * ret       written on success only
 * returns   0, or -EPROTO: the text has the reason, and the connection is unusable */
int channel_wire_decode(const uint8_t *bytes, size_t len, struct channel_wire_scratch *scratch,
                        struct message *ret, struct co_error *err);

#endif
