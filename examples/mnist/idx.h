/* idx.h - the file format of MNIST and its relatives: arrays of bytes of one to three dimensions.
 *
 *   0, 0, 8 (unsigned bytes), number of dimensions; each as 32 bits, big-endian; the bytes
 *
 * Read plain or compressed by gzip, written plain. */
#ifndef DDP_EXAMPLES_MNIST_IDX_H
#define DDP_EXAMPLES_MNIST_IDX_H

#include <stddef.h>
#include <stdint.h>

struct atomic_file;
struct failure;

enum {
    IDX_MAX_DIMS = 3,
    IDX_MAX_BYTES = 1 << 30, /* of data: an array that claims to be larger is refused */
    IDX_MAX_HEADER = 4 + 4 * IDX_MAX_DIMS,
};

struct idx {
    unsigned n_dims;
    uint32_t dims[IDX_MAX_DIMS]; /* at least 1; those beyond n_dims are 1 */
    size_t n_bytes;              /* their product, at most IDX_MAX_BYTES */
    uint8_t *data;               /* n_bytes; owned. NULL after idx_parse_header() */
};

/* Understand the first bytes of a file. Pure.
 *
 * n         how many of them are there; 4 + 4 * n_dims are looked at
 * n_dims    how many dimensions the caller wants, 1 .. IDX_MAX_DIMS
 * returns   0, or -1: no IDX file, other elements, other dimensions, empty, larger than allowed,
 *           truncated */
int idx_parse_header(const uint8_t *bytes, size_t n, unsigned n_dims, struct idx *ret_idx,
                     struct failure *why);

/* Read a file, compressed or not: its first bytes decide, not its name. Inflates no more than the
 * header promises.
 *
 * ret_idx   the caller calls idx_fini()
 * returns   0, or -1, as above or because the data are truncated, damaged or longer than promised;
 *           the text names the file */
int idx_read(const char *path, unsigned n_dims, struct idx *ret_idx, struct failure *why);
void idx_fini(struct idx *idx); /* a zeroed one is fine */

/* Write an array to a file that appears with atomic_file_commit().
 *
 * f               opened here; the caller commits or discards it, however this ends
 * dims, n_dims    1 .. IDX_MAX_DIMS
 * returns         0, or -1; the text names the file */
int idx_begin(struct atomic_file *f, const char *path, const uint32_t *dims, unsigned n_dims,
              const uint8_t *data, struct failure *why);

/* The same, with the commit. */
int idx_write(const char *path, const uint32_t *dims, unsigned n_dims, const uint8_t *data,
              struct failure *why);

#endif
