/* records.c - records in two buffers: of what goes, and of what comes. */
#include "records.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define IS_MAKER UINT32_C(0x80000000)
enum { OVERHEAD = RECORDS_HEADER_BYTES + CIPHER_TAG_BYTES };

static int grow(uint8_t **at, size_t *room, size_t wanted)
{
    if (wanted <= *room)
        return 0;
    uint8_t *grown = realloc(*at, wanted);
    if (grown == NULL)
        return -ENOMEM;
    *at = grown;
    *room = wanted;
    return 0;
}

static void header_write(uint8_t to[RECORDS_HEADER_BYTES], uint32_t value)
{
    for (unsigned i = 0; i < RECORDS_HEADER_BYTES; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static uint32_t header_read(const uint8_t *from)
{
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

/* --- going ------------------------------------------------------------------------------------ */

void records_out_fini(struct records_out *o)
{
    free(o->bytes);
    *o = (struct records_out){0};
}

static size_t count(const struct iovec *v, unsigned n_v)
{
    size_t n = 0;
    for (unsigned i = 0; i < n_v; i++)
        n += v[i].iov_len;
    return n;
}

/* One record, of bytes that may be in its place already. */
static void put(struct records_out *o, struct cipher *c, bool is_maker, const void *plain, size_t n)
{
    uint8_t *to = o->bytes + o->n;
    header_write(to, (uint32_t)n | (is_maker ? IS_MAKER : 0));
    cipher_seal(c, to, RECORDS_HEADER_BYTES, plain, n, to + RECORDS_HEADER_BYTES);
    o->n += n + OVERHEAD;
    o->covers += n;
}

/* A frame and the few bytes after it. */
static void put_together(struct records_out *o, struct cipher *c, bool is_maker,
                         const struct iovec *v, unsigned n_v)
{
    uint8_t *to = o->bytes + o->n + RECORDS_HEADER_BYTES;
    size_t n = 0;
    for (unsigned i = 0; i < n_v; n += v[i++].iov_len)
        if (v[i].iov_len > 0)
            memcpy(to + n, v[i].iov_base, v[i].iov_len);
    if (n > 0)
        put(o, c, is_maker, to, n);
}

int records_seal(struct records_out *o, struct cipher *c, bool is_maker, const struct iovec *v,
                 unsigned n_v)
{
    const size_t all = count(v, n_v);
    size_t left = all < RECORDS_MOST_BYTES ? all : RECORDS_MOST_BYTES;
    const bool is_small = all <= RECORDS_SMALL_BYTES;
    const int code = grow(&o->bytes, &o->room, left + (is_small ? 1 : n_v) * OVERHEAD);
    if (code != 0)
        return code;
    o->n = o->gone = o->covers = 0;
    if (is_small) {
        put_together(o, c, is_maker, v, n_v);
        return 0;
    }
    for (unsigned i = 0; i < n_v && left > 0; i++) {
        const size_t n = v[i].iov_len < left ? v[i].iov_len : left;
        if (n > 0)
            put(o, c, is_maker, v[i].iov_base, n);
        left -= n;
    }
    return 0;
}

size_t records_went(struct records_out *o, size_t n)
{
    o->gone += n;
    return records_is_pending(o) ? 0 : o->covers;
}

/* --- coming ----------------------------------------------------------------------------------- */

void records_in_fini(struct records_in *in)
{
    free(in->bytes);
    *in = (struct records_in){0};
}

static uint32_t length_of(uint32_t header)
{
    return header & ~IS_MAKER;
}

/* So that a large record ends with this read, and the next one's header is known; and that few
 * reads bring many small ones. */
int records_space(struct records_in *in, struct iovec *ret)
{
    const size_t here = in->n - in->at;
    size_t needed = RECORDS_HEADER_BYTES;
    if (here >= RECORDS_HEADER_BYTES)
        needed = length_of(header_read(in->bytes + in->at)) + OVERHEAD;
    size_t wanted = needed - here + RECORDS_HEADER_BYTES;
    if (wanted < RECORDS_SMALL_BYTES)
        wanted = RECORDS_SMALL_BYTES;
    if (in->n + wanted > in->room) {
        if (here > 0)
            memmove(in->bytes, in->bytes + in->at, here);
        in->at = 0;
        in->n = here;
    }
    const int code = grow(&in->bytes, &in->room, in->n + wanted);
    if (code == 0)
        *ret = (struct iovec){in->bytes + in->n, wanted};
    return code;
}

void records_came(struct records_in *in, size_t n)
{
    in->n += n;
}

static ssize_t take_plain(struct records_in *in, const struct iovec *v, unsigned n_v)
{
    size_t all = 0;
    for (unsigned i = 0; i < n_v && in->n_plain > 0; i++) {
        const size_t n = v[i].iov_len < in->n_plain ? v[i].iov_len : in->n_plain;
        if (n > 0)
            memcpy(v[i].iov_base, in->bytes + in->first_plain, n);
        in->first_plain += n;
        in->n_plain -= n;
        all += n;
    }
    return (ssize_t)all;
}

ssize_t records_open(struct records_in *in, struct cipher *of_maker, struct cipher *of_other,
                     const struct iovec *v, unsigned n_v)
{
    const size_t here = in->n - in->at;
    if (in->n_plain > 0)
        return take_plain(in, v, n_v);
    if (here < RECORDS_HEADER_BYTES)
        return -EAGAIN;
    uint8_t *at = in->bytes + in->at;
    const uint32_t header = header_read(at), n = length_of(header);
    struct cipher *c = (header & IS_MAKER) != 0 ? of_maker : of_other;
    if (c == NULL || n == 0 || n > RECORDS_MOST_BYTES)
        return -EBADMSG;
    if (here < n + OVERHEAD)
        return -EAGAIN;
    const bool is_direct = v[0].iov_len >= n;
    uint8_t *to = is_direct ? v[0].iov_base : at + RECORDS_HEADER_BYTES;
    if (!cipher_open(c, at, RECORDS_HEADER_BYTES, at + RECORDS_HEADER_BYTES, n + CIPHER_TAG_BYTES,
                     to))
        return -EBADMSG;
    in->at += n + OVERHEAD;
    if (is_direct)
        return n;
    in->first_plain = (size_t)(to - in->bytes);
    in->n_plain = n;
    return take_plain(in, v, n_v);
}
