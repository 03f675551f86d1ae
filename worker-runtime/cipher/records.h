/* records.h - a stream of bytes as records (cipher.h), and back.
 *
 * The caller carries the bytes. On the wire a record is
 *
 *     header    4 bytes, little endian: the number of bytes, 1 to RECORDS_MOST_BYTES; bit 31 is set
 *               by the side that made the connection
 *     bytes     encrypted
 *     tag       16 bytes, over header and bytes
 *
 * Bytes are encrypted from the caller's memory into a buffer that fits the CPU's caches, and
 * decrypted from such a buffer into the caller's memory: each byte is read and written once more
 * than without encryption. */
#ifndef DDP_WORKER_RUNTIME_CIPHER_RECORDS_H
#define DDP_WORKER_RUNTIME_CIPHER_RECORDS_H

#include "cipher.h"

#include <sys/uio.h>

enum {
    RECORDS_HEADER_BYTES = 4,
    RECORDS_MOST_BYTES = 64 << 10,
    RECORDS_SMALL_BYTES = 4096, /* up to here a call's pieces are one record */
};

struct records_out { /* zeroed at first */
    uint8_t *bytes;  /* owned */
    size_t room, n;
    size_t gone;   /* of n */
    size_t covers; /* bytes of the caller's that are in them */
};
void records_out_fini(struct records_out *o);

/* Seal the first bytes of these, as many as go well at a time. What was sealed before must have
 * gone.
 *
 * is_maker  this side has made the connection
 * returns   0, -ENOMEM */
int records_seal(struct records_out *o, struct cipher *c, bool is_maker, const struct iovec *v,
                 unsigned n_v);

static inline bool records_is_pending(const struct records_out *o)
{
    return o->gone < o->n;
}

/* What is to be sent. */
static inline struct iovec records_rest(const struct records_out *o)
{
    return (struct iovec){o->bytes + o->gone, o->n - o->gone};
}

/* n bytes of it went. returns how many of the caller's have now gone: 0, until the last one went */
size_t records_went(struct records_out *o, size_t n);

struct records_in { /* zeroed at first */
    uint8_t *bytes; /* owned; from `at` to `n`: what has come and was not opened */
    size_t room, at, n;
    size_t first_plain, n_plain; /* opened, and not taken */
};
void records_in_fini(struct records_in *in);

/* Where the next bytes go, once records_open() has returned -EAGAIN. returns 0, -ENOMEM */
int records_space(struct records_in *in, struct iovec *ret);
void records_came(struct records_in *in, size_t n);

/* Open a record, into these pieces.
 *
 * cipher    of a record that the side has sent that made the connection, and of one of the other
 *           side; NULL: no such record is expected
 * v         not empty
 * returns   how many bytes are in `v`; -EAGAIN a record is not complete; -EBADMSG it is not what
 *           the other side sealed: nothing that follows can be opened */
ssize_t records_open(struct records_in *in, struct cipher *of_maker, struct cipher *of_other,
                     const struct iovec *v, unsigned n_v);

#endif
