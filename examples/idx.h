/* idx.h - the file format of MNIST and its relatives: arrays of bytes of one to three dimensions.
 *
 *   0, 0, 8 (unsigned bytes), number of dimensions; each dimension as 32 bits, big-endian; the
 * bytes
 *
 * Read plain or compressed by gzip, written plain. */
#ifndef DDP_EXAMPLES_IDX_H
#define DDP_EXAMPLES_IDX_H

#include <stddef.h>
#include <stdint.h>

struct failure;

enum {
    IDX_MAX_DIMS = 3,
    IDX_MAX_BYTES = 1 << 30, /* of a file, uncompressed: a larger one is refused */
};

struct idx {
    unsigned n_dims;
    uint32_t dims[IDX_MAX_DIMS]; /* those beyond n_dims are 1 */
    const uint8_t *data;         /* dims[0] * dims[1] * dims[2] bytes, borrowed from `bytes` */
    uint8_t *bytes;              /* the whole file; owned after idx_read(), else NULL */
};

/* Understand the bytes of a file. Pure; `bytes` must outlive ret_idx.
 *
 * n_dims    how many the caller wants
 * returns   0, or -1: no IDX file, other elements, other dimensions, truncated, trailing bytes */
int idx_parse(const uint8_t *bytes, size_t n, unsigned n_dims, struct idx *ret_idx,
              struct failure *why);

/* Read a file, compressed or not (its first bytes say so, not its name).
 *
 * ret_idx   the caller calls idx_fini()
 * returns   0, or -1; the text names the file */
int idx_read(const char *path, unsigned n_dims, struct idx *ret_idx, struct failure *why);
void idx_fini(struct idx *idx); /* a zeroed one is fine */

/* Write an array, whole or not at all.
 *
 * dims, n_dims    1 .. IDX_MAX_DIMS
 * returns         0, or -1; the text names the file */
int idx_write(const char *path, const uint32_t *dims, unsigned n_dims, const uint8_t *data,
              struct failure *why);

#endif
