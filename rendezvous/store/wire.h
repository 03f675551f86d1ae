/* wire.h - what both ends of the TCPStore protocol share: names, numbers, byte order.
 * docs/design/wire.md has the rest. Integers are little endian; a string is a u64 length and that
 * many bytes. */
#ifndef DDP_RENDEZVOUS_STORE_WIRE_H
#define DDP_RENDEZVOUS_STORE_WIRE_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What can be asked for. The values are the opcodes of torch 2.2 and later; older ones are
 * translated where requests are read (codec.c). */
enum wire_op {
    WIRE_VALIDATE = 0,
    WIRE_SET = 1,
    WIRE_COMPARE_SET = 2,
    WIRE_GET = 3,
    WIRE_ADD = 4,
    WIRE_CHECK = 5,
    WIRE_WAIT = 6,
    WIRE_GETNUMKEYS = 7,
    WIRE_DELETE_KEY = 8,
    WIRE_APPEND = 9,
    WIRE_MULTI_GET = 10,
    WIRE_MULTI_SET = 11,
    WIRE_CANCEL_WAIT = 12,
    WIRE_PING = 13,
    WIRE_QUEUE_PUSH = 14,
    WIRE_QUEUE_POP = 15,
    WIRE_QUEUE_LEN = 16,
    WIRE_LIST_KEYS = 17,
    WIRE_BARRIER = 18,
    WIRE_N_OPS = 19,
};

#define WIRE_MAGIC 0x3C85F7CEu /* what VALIDATE carries */

enum wire_reply {
    WIRE_READY = 0, /* of CHECK */
    WIRE_NOT_READY = 1,
    WIRE_STOP_WAITING = 0, /* of WAIT and BARRIER */
    WIRE_WAIT_CANCELED = 1,
};

/* A run of bytes that another object owns. */
struct wire_bytes {
    const uint8_t *at; /* may be anything when len is 0 */
    size_t len;
};

static inline uint64_t wire_get_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

static inline uint32_t wire_get_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static inline void wire_put_u64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

static inline void wire_put_u32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}

#endif
