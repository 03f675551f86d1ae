/* data_format.h - where the samples of a file lie, from its first bytes. Pure; and how
 * dataset.c reads them. */
#ifndef DDP_WORKER_RUNTIME_DATA_DATA_FORMAT_H
#define DDP_WORKER_RUNTIME_DATA_DATA_FORMAT_H

#include <ddp/loader.h>
#include <stdbool.h>
#include <stdint.h>

struct co_error;

enum {
    DATA_FORMAT_HEAD = 1024,          /* bytes that the functions look at, at most */
    DATA_FORMAT_MAX_SAMPLE = 1 << 30, /* bytes of a sample */
};

struct data_format {
    int64_t count;         /* samples */
    uint64_t at;           /* byte of the first sample */
    uint64_t stride_bytes; /* from one to the next */
    size_t elements;       /* of a sample */
    unsigned stored_bytes; /* of an element in the file */
    bool is_tokens;        /* unsigned, widened to DDP_INT32 */
    int64_t vocab;         /* of tokens; 0: not looked at */
    enum ddp_dtype dtype;
    unsigned n_dims;
    size_t shape[DDP_DATASET_MAX_DIMS];
};

/* head, n      the first n bytes of the file, DATA_FORMAT_HEAD or all of it
 * file_bytes   its length: exactly as in the header, else the file is damaged
 * returns      0, -EINVAL */
int data_format_idx(const uint8_t *head, size_t n, uint64_t file_bytes, struct data_format *ret,
                    struct co_error *err);
int data_format_tokens(const uint8_t *head, size_t n, uint64_t file_bytes,
                       const struct ddp_tokens_opts *opts, struct data_format *ret,
                       struct co_error *err);

/* Elements as stored to elements as they are given out.
 *
 * stored      count elements of f->stored_bytes; does not overlap `out`
 * ret_bad     the first token that is out of bounds
 * returns     0, -EINVAL */
int data_format_convert(const struct data_format *f, const void *stored, size_t count, void *out,
                        uint32_t *ret_bad);

/* --- dataset.c -------------------------------------------------------------------------------- */

/* As ddp_dataset_read(), with a text that the thread of a loader can keep.
 *
 * returns   0, -EINVAL, -ENOMEM, -errno; the text names the file */
int dataset_read(const struct ddp_dataset *d, const int64_t *index, size_t n, void *out,
                 struct co_error *err);

#endif
