#include "data_format.h"

#include "common/error.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { IDX_HEAD = 4, TOKENS_HEAD = 1024 };

static uint32_t big_endian(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return be32toh(value);
}

static uint32_t little_endian(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

/* --- IDX -------------------------------------------------------------------------------------- */

static const struct idx_type {
    uint8_t code, bytes;
    enum ddp_dtype dtype;
} idx_types[] = {
    {0x08, 1, DDP_UINT8},   {0x09, 1, DDP_INT8},    {0x0c, 4, DDP_INT32},
    {0x0d, 4, DDP_FLOAT32}, {0x0e, 8, DDP_FLOAT64},
};

static int read_dims(const uint8_t *head, unsigned n_dims, struct data_format *f,
                     struct co_error *err)
{
    uint64_t elements = 1;
    f->count = big_endian(head + IDX_HEAD);
    f->n_dims = n_dims - 1;
    for (unsigned i = 0; i + 1 < n_dims; i++) {
        f->shape[i] = big_endian(head + IDX_HEAD + 4 + 4 * i);
        if (f->shape[i] == 0)
            return co_fail(err, -EINVAL, "dimension %u is 0", i + 1);
        elements *= f->shape[i]; /* was at most 2^30: no overflow */
        if (elements * f->stored_bytes > DATA_FORMAT_MAX_SAMPLE)
            return co_fail(err, -EINVAL, "a sample exceeds %d bytes", DATA_FORMAT_MAX_SAMPLE);
    }
    f->elements = (size_t)elements;
    return 0;
}

static int check_length(uint64_t file_bytes, uint64_t header, uint64_t data, struct co_error *err)
{
    if (file_bytes - header < data)
        return co_fail(err, -EINVAL, "truncated: %" PRIu64 " of %" PRIu64 " bytes of data",
                       file_bytes - header, data);
    if (file_bytes - header > data)
        return co_fail(err, -EINVAL, "longer than the %" PRIu64 " bytes that its header announces",
                       data);
    return 0;
}

int data_format_idx(const uint8_t *head, size_t n, uint64_t file_bytes, struct data_format *ret,
                    struct co_error *err)
{
    struct data_format f = {0};
    const struct idx_type *type = idx_types,
                          *end = idx_types + sizeof idx_types / sizeof idx_types[0];
    if (n >= 2 && head[0] == 0x1f && head[1] == 0x8b)
        return co_fail(err, -EINVAL, "compressed: use gunzip first");
    if (n < IDX_HEAD || head[0] != 0 || head[1] != 0)
        return co_fail(err, -EINVAL, "not an IDX file: it does not start with two zero bytes");
    while (type < end && type->code != head[2])
        type++;
    if (type == end)
        return co_fail(err, -EINVAL, "elements of the unsupported type 0x%02x", head[2]);
    const unsigned n_dims = head[3];
    if (n_dims == 0 || n_dims > DDP_DATASET_MAX_DIMS)
        return co_fail(err, -EINVAL, "%u dimensions: expected 1 to %d", n_dims,
                       DDP_DATASET_MAX_DIMS);
    f.at = IDX_HEAD + 4 * n_dims;
    if (n < f.at)
        return co_fail(err, -EINVAL, "truncated: %zu of %" PRIu64 " bytes of the header", n, f.at);
    f.stored_bytes = type->bytes;
    f.dtype = type->dtype;
    int code = read_dims(head, n_dims, &f, err);
    if (code != 0)
        return code;
    f.stride_bytes = (uint64_t)f.elements * f.stored_bytes;
    /* 2^32 samples of 2^30 bytes: no overflow */
    if ((code = check_length(file_bytes, f.at, (uint64_t)f.count * f.stride_bytes, err)) == 0)
        *ret = f;
    return code;
}

/* --- tokens ----------------------------------------------------------------------------------- */

static int check_opts(const struct ddp_tokens_opts *o, struct co_error *err)
{
    const int64_t most = DATA_FORMAT_MAX_SAMPLE / (int64_t)sizeof(int32_t) - 1;
    if (o->block < 1 || o->block > most)
        return co_fail(err, -EINVAL,
                       "invalid value %" PRId64 " for block: expected 1 to %" PRId64 " tokens",
                       o->block, most);
    if (o->stride < 0 || o->stride > most)
        return co_fail(err, -EINVAL,
                       "invalid value %" PRId64 " for stride: expected 0 to %" PRId64 " tokens",
                       o->stride, most);
    if (o->vocab < 0 || o->vocab > INT32_MAX)
        return co_fail(err, -EINVAL,
                       "invalid value %" PRId64 " for vocab: expected 1 or more tokens", o->vocab);
    return 0;
}

int data_format_tokens(const uint8_t *head, size_t n, uint64_t file_bytes,
                       const struct ddp_tokens_opts *opts, struct data_format *ret,
                       struct co_error *err)
{
    struct data_format f = {.is_tokens = true, .at = TOKENS_HEAD, .dtype = DDP_INT32, .n_dims = 1};
    int code = check_opts(opts, err);
    if (code != 0)
        return code;
    if (n < TOKENS_HEAD)
        return co_fail(err, -EINVAL, "truncated: %zu of %d bytes of the header", n, TOKENS_HEAD);
    const uint32_t magic = little_endian(head), version = little_endian(head + 4);
    f.stored_bytes = magic == 20240520 && version == 1   ? 2
                     : magic == 20240801 && version == 7 ? 4
                                                         : 0;
    if (f.stored_bytes == 0)
        return co_fail(err, -EINVAL,
                       "not a token file: it starts with %" PRIu32 ", version %" PRIu32, magic,
                       version);
    const int64_t tokens = little_endian(head + 8),
                  stride = opts->stride > 0 ? opts->stride : opts->block;
    if ((code = check_length(file_bytes, f.at, (uint64_t)tokens * f.stored_bytes, err)) != 0)
        return code;
    if (tokens < opts->block + 1)
        return co_fail(err, -EINVAL,
                       "%" PRId64 " tokens are too few for a block of %" PRId64
                       " and the next token",
                       tokens, opts->block);
    f.count = (tokens - opts->block - 1) / stride + 1;
    f.elements = (size_t)opts->block + 1;
    f.shape[0] = f.elements;
    f.stride_bytes = (uint64_t)stride * f.stored_bytes;
    f.vocab = opts->vocab;
    *ret = f;
    return 0;
}

/* --- elements --------------------------------------------------------------------------------- */

static int widen(const struct data_format *f, const uint8_t *stored, size_t count, int32_t *out,
                 uint32_t *ret_bad)
{
    const uint32_t end = f->vocab > 0 ? (uint32_t)f->vocab : (uint32_t)INT32_MAX + 1;
    for (size_t i = 0; i < count; i++) {
        uint16_t narrow;
        memcpy(&narrow, stored + 2 * i, sizeof narrow);
        const uint32_t token =
            f->stored_bytes == 2 ? le16toh(narrow) : little_endian(stored + 4 * i);
        if (token >= end) {
            *ret_bad = token;
            return -EINVAL;
        }
        out[i] = (int32_t)token;
    }
    return 0;
}

int data_format_convert(const struct data_format *f, const void *stored, size_t count, void *out,
                        uint32_t *ret_bad)
{
    if (f->is_tokens)
        return widen(f, stored, count, out, ret_bad);
    for (size_t i = 0; i < count; i++) {
        uint64_t eight;
        uint32_t four;
        if (f->stored_bytes == 8) {
            memcpy(&eight, (const uint8_t *)stored + 8 * i, 8);
            eight = be64toh(eight);
            memcpy((uint8_t *)out + 8 * i, &eight, 8);
        } else if (f->stored_bytes == 4) {
            memcpy(&four, (const uint8_t *)stored + 4 * i, 4);
            four = be32toh(four);
            memcpy((uint8_t *)out + 4 * i, &four, 4);
        }
    }
    if (f->stored_bytes == 1)
        memcpy(out, stored, count);
    return 0;
}
