/* ballot_wire.h - ballots as bytes, and back.
 *
 * Pure. One ballot is one frame, which seal.h carries. All that comes is checked against the bounds
 * here before it is believed: lengths, ranges, lists without an id twice, text without control
 * characters, nothing left over. A ballot has one form only. Nothing is allocated by the decoder.
 *
 * Integers are little endian; a text is its length (u16) and its bytes. */
#ifndef DDP_RENDEZVOUS_QUORUM_BALLOT_WIRE_H
#define DDP_RENDEZVOUS_QUORUM_BALLOT_WIRE_H

#include "ballot.h"

#include <stddef.h>

struct co_buf;
struct co_error;

enum {
    BALLOT_WIRE_VERSION = 2,
    BALLOT_WIRE_RUN_ID_BYTES = 256, /* with the NUL */
    BALLOT_WIRE_MAX_BYTES = 8192,   /* of one ballot */
};

#define BALLOT_WIRE_MAX_MS 1000000000000u /* of a time that the sender's clock has left */

/* Append a ballot of this job to `out`.
 *
 * returns   0; -ENOMEM; -EINVAL: it breaks a bound (`out` is as before) */
int ballot_wire_encode(const struct ballot *b, const char *run_id, struct co_buf *out,
                       struct co_error *err);

/* ret, run_id   written on success only
 * returns       0, or -EPROTO: the text has the reason, and the connection is unusable */
int ballot_wire_decode(const uint8_t *bytes, size_t len, struct ballot *ret,
                       char run_id[BALLOT_WIRE_RUN_ID_BYTES], struct co_error *err);

#endif
