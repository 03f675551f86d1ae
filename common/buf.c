#include "buf.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { RECEIVE_BYTES = 65536 };

static void free_data(struct co_buf *b)
{
    if (b->has_secrets && b->data != NULL)
        explicit_bzero(b->data, b->cap);
    free(b->data);
}

void co_buf_fini(struct co_buf *b)
{
    free_data(b);
    *b = (struct co_buf){.has_secrets = b->has_secrets};
}

uint8_t *co_buf_room(struct co_buf *b, size_t n)
{
    if (b->data != NULL && b->cap - b->end >= n)
        return b->data + b->end;
    size_t len = co_buf_len(b);
    if (n > SIZE_MAX / 4 - len)
        return NULL;
    if (b->data != NULL && len + n <= b->cap &&
        b->start >= b->cap / 2) { /* sliding is cheaper than growing */
        memmove(b->data, b->data + b->start, len);
        b->start = 0;
        b->end = len;
        return b->data + b->end;
    }
    size_t cap = b->cap < 256 ? 256 : b->cap;
    while (cap < len + n)
        cap *= 2;
    uint8_t *data = malloc(cap);
    if (data == NULL)
        return NULL;
    if (len > 0)
        memcpy(data, b->data + b->start, len);
    free_data(b);
    *b = (struct co_buf){.data = data, .end = len, .cap = cap, .has_secrets = b->has_secrets};
    return data + len;
}

void co_buf_added(struct co_buf *b, size_t n)
{
    assert(n <= b->cap - b->end);
    b->end += n;
}

int co_buf_append(struct co_buf *b, const void *bytes, size_t n)
{
    if (n == 0)
        return 0;
    uint8_t *room = co_buf_room(b, n);
    if (room == NULL)
        return -ENOMEM;
    memcpy(room, bytes, n);
    co_buf_added(b, n);
    return 0;
}

void co_buf_consume(struct co_buf *b, size_t n)
{
    assert(n <= co_buf_len(b));
    b->start += n;
    if (b->start == b->end)
        b->start = b->end = 0;
}

bool co_buf_receive(struct co_buf *b, int fd, size_t max)
{
    for (;;) {
        uint8_t *room = co_buf_room(b, RECEIVE_BYTES);
        const ssize_t n = room != NULL ? recv(fd, room, RECEIVE_BYTES, MSG_DONTWAIT) : 0;
        if (n <= 0)
            return n == 0 || (errno != EAGAIN && errno != EINTR);
        co_buf_added(b, (size_t)n);
        if (co_buf_len(b) > max)
            return true;
    }
}
