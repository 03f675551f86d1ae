/* replay.c - what was sent is in a ring, at its number modulo the size of the ring. */
#include "replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { RING_LEAST = 16 << 10 };

void replay_fini(struct replay *r)
{
    free(r->ring);
    free(r->early);
    *r = (struct replay){0};
}

static void ring_write(struct replay *r, uint64_t at, const uint8_t *from, size_t n)
{
    const size_t place = at & (r->ring_bytes - 1), end = r->ring_bytes - place;
    const size_t first = n < end ? n : end;
    memcpy(r->ring + place, from, first);
    memcpy(r->ring, from + first, n - first);
}

/* The pieces of the ring from one number to another. */
static unsigned ring_pieces(const struct replay *r, uint64_t from, uint64_t to, struct iovec v[2])
{
    if (from == to)
        return 0;
    const size_t place = from & (r->ring_bytes - 1), end = r->ring_bytes - place,
                 n = (size_t)(to - from);
    v[0] = (struct iovec){r->ring + place, n < end ? n : end};
    v[1] = (struct iovec){r->ring, n - v[0].iov_len};
    return v[1].iov_len > 0 ? 2 : 1;
}

static int grow(struct replay *r, size_t needed)
{
    struct iovec v[2];
    size_t bytes = r->ring_bytes > 0 ? r->ring_bytes : RING_LEAST;
    while (bytes < needed)
        bytes *= 2;
    if (bytes == r->ring_bytes)
        return 0;
    struct replay grown = *r;
    grown.ring = malloc(bytes);
    grown.ring_bytes = bytes;
    if (grown.ring == NULL)
        return -ENOMEM;
    uint64_t at = r->kept;
    const unsigned n = ring_pieces(r, r->kept, r->sent, v);
    for (unsigned i = 0; i < n; at += v[i++].iov_len)
        ring_write(&grown, at, v[i].iov_base, v[i].iov_len);
    free(r->ring);
    *r = grown;
    return 0;
}

ssize_t replay_reserve(struct replay *r, size_t bytes)
{
    const size_t used = (size_t)(r->sent - r->kept), left = REPLAY_MOST - used;
    const size_t n = bytes < left ? bytes : left;
    const int code = grow(r, used + n);
    return code != 0 ? code : (ssize_t)n;
}

void replay_keep(struct replay *r, const struct iovec *v, unsigned n_v, size_t n)
{
    for (unsigned i = 0; i < n_v && n > 0; i++) {
        const size_t part = v[i].iov_len < n ? v[i].iov_len : n;
        ring_write(r, r->sent, v[i].iov_base, part);
        r->sent += part;
        n -= part;
    }
    r->resent = r->sent;
}

void replay_forget(struct replay *r, size_t unacknowledged)
{
    const uint64_t there = r->resent > unacknowledged ? r->resent - unacknowledged : 0;
    if (there > r->kept)
        r->kept = there;
}

int replay_rewind(struct replay *r, uint64_t received)
{
    if (received < r->kept || received > r->sent)
        return -EPROTO;
    r->kept = r->resent = received;
    return 0;
}

unsigned replay_rest(const struct replay *r, struct iovec v[2])
{
    return ring_pieces(r, r->resent, r->sent, v);
}

void replay_resend(struct replay *r, size_t n)
{
    r->resent += n;
}

int replay_store(struct replay *r, const void *bytes, size_t n)
{
    const size_t end = r->first_early + r->n_early;
    if (n == 0)
        return 0; /* r->early may be NULL */
    if (end + n > r->early_bytes) {
        uint8_t *grown = realloc(r->early, 2 * (end + n));
        if (grown == NULL)
            return -ENOMEM;
        r->early = grown;
        r->early_bytes = 2 * (end + n);
    }
    memcpy(r->early + end, bytes, n);
    r->n_early += n;
    r->received += n;
    return 0;
}

size_t replay_read(struct replay *r, const struct iovec *v, unsigned n_v)
{
    size_t all = 0;
    for (unsigned i = 0; i < n_v && r->n_early > 0; i++) {
        const size_t n = v[i].iov_len < r->n_early ? v[i].iov_len : r->n_early;
        memcpy(v[i].iov_base, r->early + r->first_early, n);
        r->first_early += n;
        r->n_early -= n;
        all += n;
    }
    if (r->n_early == 0) {
        free(r->early);
        r->early = NULL;
        r->first_early = r->early_bytes = 0;
    }
    return all;
}
