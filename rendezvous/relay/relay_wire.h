/* relay_wire.h - the records that both ends of a relay link exchange.
 *
 * Pure. A link joins the node end (relay_node.h), which has the clients, and the store end
 * (relay_store.h), which has a session for each of them. It carries frames, in order and whole; a
 * frame is a run of records:
 *
 *     kind u8, client u32, number u32, and with DATA and CLOSE that number of bytes
 *
 * Integers are little endian. docs/design/store-relay.md has the conversation. */
#ifndef DDP_RENDEZVOUS_RELAY_RELAY_WIRE_H
#define DDP_RENDEZVOUS_RELAY_RELAY_WIRE_H

#include <stddef.h>
#include <stdint.h>

struct co_error;

enum {
    RELAY_FRAME_BYTES = 65536, /* of one frame, at most */
    RELAY_HEADER_BYTES = 9,    /* of a record, without its bytes */
    RELAY_TEXT_BYTES = 512,    /* of the reason in a CLOSE, at most */
    RELAY_MAX_CLIENTS = 65536, /* of one link: client < this */
};

enum relay_kind {
    RELAY_OPEN = 1,   /* from the node: a client has connected */
    RELAY_DATA = 2,   /* its bytes, or those for it: 1 or more, covered by credit */
    RELAY_CREDIT = 3, /* the other end may send this many bytes more; 1 or more */
    RELAY_CLOSE = 4, /* nothing follows for this client. From the store with the reason, or empty */
    RELAY_ASK = 5,   /* from the store: report when the client has been silent for a while */
    RELAY_QUIET = 6, /* from the node: it has been */
    RELAY_N_KINDS = 7,
};

enum relay_end {
    RELAY_NODE,
    RELAY_STORE,
};

struct relay_record {
    enum relay_kind kind;
    uint32_t client;
    uint32_t number;      /* of bytes; with CREDIT, that may be sent */
    const uint8_t *bytes; /* DATA, CLOSE: lent */
};

/* Take the next record of a frame.
 *
 * from      the end that sent it
 * at        moved past the record
 * returns   1; 0: the frame is over; -EPROTO: not a record, or not from that end. The link is then
 *           unusable */
int relay_wire_next(enum relay_end from, const uint8_t **at, const uint8_t *end,
                    struct relay_record *ret, struct co_error *err);

/* A frame in the making. */
struct relay_frame {
    size_t len;
    uint8_t bytes[RELAY_FRAME_BYTES];
};

/* How many bytes a DATA or CLOSE could have. Below 0: no record fits. */
int64_t relay_wire_space(const struct relay_frame *f);

/* Append a record, for which there is space. */
void relay_wire_put(struct relay_frame *f, const struct relay_record *r);

#endif
