#include "idx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "../shared/atomic_file.h"
#include "../shared/failure.h"

enum { TYPE_BYTE = 8 };

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

int idx_parse_header(const uint8_t *bytes, size_t n, unsigned n_dims, struct idx *ret_idx,
                     struct failure *why)
{
    const size_t header = 4 + 4 * (size_t)n_dims;
    struct idx idx = {.n_dims = n_dims, .dims = {1, 1, 1}};
    uint64_t product = 1;

    if (n < 4)
        return failure_set(why, "truncated: %zu bytes are less than an IDX header", n);
    if (bytes[0] != 0 || bytes[1] != 0)
        return failure_set(why, "not an IDX file: it starts with the bytes %02x %02x, not 00 00",
                           bytes[0], bytes[1]);
    if (bytes[2] != TYPE_BYTE)
        return failure_set(why, "elements of type 0x%02x, expected unsigned bytes (0x08)",
                           bytes[2]);
    if (bytes[3] != n_dims)
        return failure_set(why, "%u dimensions, expected %u", bytes[3], n_dims);
    if (n < header)
        return failure_set(why, "truncated: %zu of %zu bytes of the header", n, header);
    for (unsigned i = 0; i < n_dims; i++) {
        idx.dims[i] = big_endian(bytes + 4 + 4 * i);
        if (idx.dims[i] == 0)
            return failure_set(why, "dimension %u is 0", i);
        product *= idx.dims[i]; /* the product was at most 2^30 before: no overflow */
        if (product > IDX_MAX_BYTES)
            return failure_set(why, "the header announces more than %d bytes", IDX_MAX_BYTES);
    }
    idx.n_bytes = (size_t)product;
    *ret_idx = idx;
    return 0;
}

/* Read n bytes, or as many as there are.
 *
 * ret_n     how many were there
 * returns   0, or -1 if the file cannot be read or the compressed data are cut or damaged */
static int read_part(gzFile in, uint8_t *to, size_t n, size_t *ret_n, struct failure *why)
{
    enum { AT_ONCE = 1 << 20 };
    size_t done = 0;

    while (done < n) {
        int got = gzread(in, to + done, n - done < AT_ONCE ? (unsigned)(n - done) : AT_ONCE);
        int code;
        gzerror(in, &code);
        if (code == Z_BUF_ERROR) /* gzread() itself takes this for an ordinary end */
            return failure_set(why, "truncated: the compressed data ends early");
        if (got < 0)
            return failure_set(why, "%s",
                               code == Z_ERRNO        ? strerror(errno)
                               : code == Z_DATA_ERROR ? "the compressed data are damaged"
                                                      : "out of memory");
        if (got == 0)
            break;
        done += (size_t)got;
    }
    *ret_n = done;
    return 0;
}

static int read_array(gzFile in, unsigned n_dims, struct idx *idx, struct failure *why)
{
    uint8_t header[IDX_MAX_HEADER], beyond;
    size_t n;

    if (read_part(in, header, 4 + 4 * (size_t)n_dims, &n, why) < 0 ||
        idx_parse_header(header, n, n_dims, idx, why) < 0)
        return -1;
    idx->data = malloc(idx->n_bytes);
    if (idx->data == NULL)
        return failure_set(why, "out of memory for %zu bytes", idx->n_bytes);
    if (read_part(in, idx->data, idx->n_bytes, &n, why) < 0)
        return -1;
    if (n < idx->n_bytes)
        return failure_set(why, "truncated: %zu of %zu bytes of data", n, idx->n_bytes);
    /* The checksum of compressed data is looked at only by reading on to the end. */
    if (read_part(in, &beyond, 1, &n, why) < 0)
        return -1;
    return n == 0 ? 0
                  : failure_set(why, "longer than the %zu bytes that its header announces",
                                idx->n_bytes);
}

int idx_read(const char *path, unsigned n_dims, struct idx *ret_idx, struct failure *why)
{
    struct failure inner = {""};
    struct idx idx = {0};

    errno = 0; /* zlib fails without setting it if memory runs out */
    gzFile in = gzopen(path, "rbe");
    if (in == NULL)
        return failure_set(why, "cannot open '%s': %s", path,
                           strerror(errno != 0 ? errno : ENOMEM));
    int rc = read_array(in, n_dims, &idx, &inner);
    gzclose_r(in);
    if (rc < 0) {
        idx_fini(&idx);
        return failure_set(why, "'%s': %s", path, inner.text);
    }
    *ret_idx = idx;
    return 0;
}

void idx_fini(struct idx *idx)
{
    free(idx->data);
    *idx = (struct idx){0};
}

int idx_begin(struct atomic_file *f, const char *path, const uint32_t *dims, unsigned n_dims,
              const uint8_t *data, struct failure *why)
{
    uint8_t header[IDX_MAX_HEADER] = {0, 0, TYPE_BYTE, (uint8_t)n_dims};
    size_t n = 1;

    for (unsigned i = 0; i < n_dims; i++) {
        for (unsigned k = 0; k < 4; k++)
            header[4 + 4 * i + k] = (uint8_t)(dims[i] >> (24 - 8 * k));
        n *= dims[i];
    }
    if (atomic_file_open(f, path, why) < 0 ||
        atomic_file_write(f, header, 4 + 4 * (size_t)n_dims, why) < 0)
        return -1;
    return atomic_file_write(f, data, n, why);
}

int idx_write(const char *path, const uint32_t *dims, unsigned n_dims, const uint8_t *data,
              struct failure *why)
{
    struct atomic_file f;
    int rc = idx_begin(&f, path, dims, n_dims, data, why);

    if (rc == 0)
        rc = atomic_file_commit(&f, why);
    atomic_file_discard(&f);
    return rc;
}
