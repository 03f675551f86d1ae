/* relay_link.h - what both ends of a link of the relay know: how its connection is opened, and what
 * it begins with.
 *
 * A link is a connection of channel_conn.h, sealed with the job's token, with a version of its own
 * in the greeting. The first frame names what the link is for; all others are those of
 * relay_wire.h. Pure. */
#ifndef DDP_RENDEZVOUS_RELAYS_RELAY_LINK_H
#define DDP_RENDEZVOUS_RELAYS_RELAY_LINK_H

#include "rendezvous/membership/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* Of a greeting: where a port also serves control connections, it is for the relay. Those count
     * from 1 (channel_wire.h), ballots have 201. */
    RELAY_LINK_VERSION = 202,

    RELAY_LINK_WINDOW_BYTES = 256 << 10, /* of one client in one direction */
    RELAY_LINK_OPEN_MS = 10000,          /* until the other end has shown what it is for */
    RELAY_LINK_MID_FRAME_MS = 30000,     /* from a frame's first byte to its last */
    RELAY_LINK_STALL_MS = 30000,         /* so long the other end may take nothing */

    RELAY_LINK_HELLO_BYTES = 8 + MESSAGE_RUN_ID_BYTES, /* at most */
};

/* Is a connection that begins so a link? */
bool relay_link_claims(const uint8_t *bytes, size_t len);

/* The first frame: window and generation (u32, little endian), and the run ID. Both ends make it,
 * and it must be the same: a link to the store of another generation, or of another job with the
 * same token, is not made.
 *
 * returns   its length */
size_t relay_link_hello(uint32_t generation, const char *run_id,
                        uint8_t hello[RELAY_LINK_HELLO_BYTES]);

#endif
