#include "idx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "atomic_file.h"
#include "fail.h"

enum { TYPE_BYTE = 8, FIRST_ROOM = 1 << 16 };

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

int idx_parse(const uint8_t *bytes, size_t n, unsigned n_dims, struct idx *ret_idx,
              struct failure *why)
{
    const size_t header = 4 + 4 * (size_t)n_dims;
    struct idx idx = {.n_dims = n_dims, .dims = {1, 1, 1}};
    uint64_t want = 1;

    if (n < 4)
        return fail(why, "truncated: %zu bytes are no IDX header", n);
    if (bytes[0] != 0 || bytes[1] != 0)
        return fail(why, "no IDX file: begins with the bytes %02x %02x, not 00 00", bytes[0],
                    bytes[1]);
    if (bytes[2] != TYPE_BYTE)
        return fail(why, "its elements are of type 0x%02x, not unsigned bytes (0x08)", bytes[2]);
    if (bytes[3] != n_dims)
        return fail(why, "%u dimensions, expected %u", bytes[3], n_dims);
    if (n < header)
        return fail(why, "truncated: %zu of %zu bytes of the header", n, header);
    for (unsigned i = 0; i < n_dims; i++) {
        idx.dims[i] = big_endian(bytes + 4 + 4 * i);
        if (idx.dims[i] == 0)
            return fail(why, "dimension %u is 0", i);
        want *= idx.dims[i]; /* below 2^30 before, so no overflow */
        if (want > IDX_MAX_BYTES)
            return fail(why, "its header promises more than %d bytes", IDX_MAX_BYTES);
    }
    if (n - header < want)
        return fail(why, "truncated: %zu of %llu bytes of data", n - header,
                    (unsigned long long)want);
    if (n - header > want)
        return fail(why, "%llu bytes more than its header promises",
                    (unsigned long long)(n - header - want));
    idx.data = bytes + header;
    *ret_idx = idx;
    return 0;
}

/* Read all of an open file: at most IDX_MAX_BYTES and a header. */
static int slurp(gzFile in, uint8_t **ret_bytes, size_t *ret_n, struct failure *why)
{
    const size_t max = (size_t)IDX_MAX_BYTES + 4 + 4 * IDX_MAX_DIMS;
    uint8_t *bytes = NULL;
    size_t n = 0, room = 0;

    for (;;) {
        if (n == room) {
            uint8_t *more =
                room > max ? NULL : realloc(bytes, room = room > 0 ? 2 * room : FIRST_ROOM);
            if (more == NULL) {
                free(bytes);
                return room > max ? fail(why, "larger than %d bytes", IDX_MAX_BYTES)
                                  : fail(why, "no memory for it");
            }
            bytes = more;
        }
        unsigned part = room - n < FIRST_ROOM ? (unsigned)(room - n) : FIRST_ROOM;
        int got = gzread(in, bytes + n, part);
        int code;
        const char *text = gzerror(in, &code);
        /* A stream that ends early is Z_BUF_ERROR with all that was there: idx_parse() would blame
         * the header, but it is the compression that is cut. */
        if (got < 0 || code == Z_BUF_ERROR) {
            free(bytes);
            return code == Z_ERRNO       ? fail(why, "%s", strerror(errno))
                   : code == Z_BUF_ERROR ? fail(why, "truncated: the compressed data ends early")
                                         : fail(why, "damaged: %s", text);
        }
        if (got == 0)
            break;
        n += (size_t)got;
    }
    *ret_bytes = bytes;
    *ret_n = n;
    return 0;
}

int idx_read(const char *path, unsigned n_dims, struct idx *ret_idx, struct failure *why)
{
    struct failure inner = {""};
    uint8_t *bytes = NULL;
    size_t n = 0;

    errno = 0;
    gzFile in = gzopen(path, "rbe");
    if (in == NULL)
        return fail(why, "cannot open '%s': %s", path, strerror(errno != 0 ? errno : ENOMEM));
    int rc = slurp(in, &bytes, &n, &inner);
    gzclose_r(in);
    if (rc == 0)
        rc = idx_parse(bytes, n, n_dims, ret_idx, &inner);
    if (rc < 0) {
        free(bytes);
        return fail(why, "'%s': %s", path, inner.text);
    }
    ret_idx->bytes = bytes;
    return 0;
}

void idx_fini(struct idx *idx)
{
    free(idx->bytes);
    *idx = (struct idx){0};
}

int idx_write(const char *path, const uint32_t *dims, unsigned n_dims, const uint8_t *data,
              struct failure *why)
{
    uint8_t header[4 + 4 * IDX_MAX_DIMS] = {0, 0, TYPE_BYTE, (uint8_t)n_dims};
    struct atomic_file f;
    size_t n = 1;

    for (unsigned i = 0; i < n_dims; i++) {
        for (unsigned k = 0; k < 4; k++)
            header[4 + 4 * i + k] = (uint8_t)(dims[i] >> (24 - 8 * k));
        n *= dims[i];
    }
    if (atomic_file_open(&f, path, why) < 0)
        return -1;
    if (atomic_file_write(&f, header, 4 + 4 * n_dims, why) < 0 ||
        atomic_file_write(&f, data, n, why) < 0) {
        atomic_file_discard(&f);
        return -1;
    }
    return atomic_file_commit(&f, why);
}
