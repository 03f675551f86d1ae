/* buf.h - a growing run of bytes: appended at the end, consumed at the front. */
#ifndef DDP_COMMON_BUF_H
#define DDP_COMMON_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_buf {
    uint8_t *data; /* owned; the live bytes are data[start .. end) */
    size_t start, end, cap;
    bool has_secrets; /* its memory is wiped before it is freed: set it while it is empty */
};

void co_buf_fini(struct co_buf *b); /* a zeroed co_buf is an empty one */

static inline size_t co_buf_len(const struct co_buf *b)
{
    return b->end - b->start;
}

static inline const uint8_t *co_buf_bytes(const struct co_buf *b)
{
    return b->data != NULL ? b->data + b->start : NULL; /* NULL + 0 is undefined in C */
}

/* Reserve space for n more bytes at the end and lend it; NULL: out of memory. co_buf_added() takes
 * how many of them were written. */
uint8_t *co_buf_room(struct co_buf *b, size_t n);
void co_buf_added(struct co_buf *b, size_t n);

/* returns 0 or -ENOMEM */
int co_buf_append(struct co_buf *b, const void *bytes, size_t n);

/* Append what a socket has received, without waiting, until the buffer holds more than max bytes.
 *
 * returns   whether that is all: the peer has closed, an error, more than max bytes, or out of
 *           memory */
bool co_buf_receive(struct co_buf *b, int fd, size_t max);

/* Drop the first n bytes (n <= length). Cheap: memory moves only when space is reserved. */
void co_buf_consume(struct co_buf *b, size_t n);

#endif
