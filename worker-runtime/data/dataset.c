#include "data_format.h"

#include "common/error.h"
#include "common/scope.h"
#include "worker-runtime/core/group.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE_ELEMENTS = 8192 }; /* converted at a time, where elements change their size */

struct ddp_dataset {
    struct data_format format;
    int fd;
    char *path; /* owned; for messages */
};

/* --- opening ---------------------------------------------------------------------------------- */

/* Read all that is asked for.
 * returns   0; -ENODATA the file ends before; -errno */
static int read_all(int fd, void *to, size_t n, uint64_t at)
{
    uint8_t *out = to;
    while (n > 0) {
        const ssize_t got = pread(fd, out, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got == 0 ? -ENODATA : -errno;
        out += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

static int open_file(struct ddp_dataset *d, uint8_t *head, size_t *ret_n, uint64_t *ret_bytes,
                     struct co_error *err)
{
    struct stat st;
    d->fd = open(d->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (d->fd < 0 || fstat(d->fd, &st) < 0)
        return co_fail(err, -EINVAL, "cannot open the file: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return co_fail(err, -EINVAL, "not a regular file");
    *ret_bytes = (uint64_t)st.st_size;
    *ret_n = *ret_bytes < DATA_FORMAT_HEAD ? (size_t)*ret_bytes : DATA_FORMAT_HEAD;
    int code = read_all(d->fd, head, *ret_n, 0);
    return code == 0 ? 0 : co_fail(err, code, "cannot read the file: %s", strerror(-code));
}

co_define_auto(ddp_dataset, ddp_dataset_close);

/* opts   NULL: an IDX file */
static int dataset_open(const char *path, const struct ddp_tokens_opts *opts,
                        struct ddp_dataset **ret, struct co_error *err)
{
    uint8_t head[DATA_FORMAT_HEAD];
    size_t n = 0;
    uint64_t bytes = 0;
    co_auto(ddp_dataset) d = calloc(1, sizeof *d);
    if (d != NULL) {
        d->fd = -1;
        d->path = strdup(path);
    }
    if (d == NULL || d->path == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int code = open_file(d, head, &n, &bytes, err);
    if (code == 0)
        code = opts != NULL ? data_format_tokens(head, n, bytes, opts, &d->format, err)
                            : data_format_idx(head, n, bytes, &d->format, err);
    if (code != 0) {
        co_fail_in(err, "'%s'", path);
        return code;
    }
    *ret = co_take(&d);
    return 0;
}

int ddp_idx_open(const char *path, struct ddp_dataset **ret_dataset)
{
    struct co_error err = {0};
    if (path == NULL || ret_dataset == NULL)
        return rt_fail(DDP_EINVAL, "ddp_idx_open: path or ret_dataset is NULL");
    return rt_return(dataset_open(path, NULL, ret_dataset, &err), &err);
}

int ddp_tokens_open(const char *path, const struct ddp_tokens_opts *opts,
                    struct ddp_dataset **ret_dataset)
{
    struct co_error err = {0};
    if (path == NULL || opts == NULL || ret_dataset == NULL)
        return rt_fail(DDP_EINVAL, "ddp_tokens_open: path, opts or ret_dataset is NULL");
    return rt_return(dataset_open(path, opts, ret_dataset, &err), &err);
}

void ddp_dataset_close(struct ddp_dataset *d)
{
    if (d == NULL)
        return;
    if (d->fd >= 0)
        close(d->fd);
    free(d->path);
    free(d);
}

/* --- asking ----------------------------------------------------------------------------------- */

int64_t ddp_dataset_count(const struct ddp_dataset *d)
{
    return d != NULL ? d->format.count : 0;
}

size_t ddp_dataset_sample_bytes(const struct ddp_dataset *d)
{
    return d == NULL ? 0 : d->format.elements * ddp_dtype_size(d->format.dtype);
}

enum ddp_dtype ddp_dataset_dtype(const struct ddp_dataset *d)
{
    return d != NULL ? d->format.dtype : DDP_FLOAT32;
}

unsigned ddp_dataset_shape(const struct ddp_dataset *d, size_t shape[DDP_DATASET_MAX_DIMS])
{
    if (d == NULL || shape == NULL)
        return 0;
    memcpy(shape, d->format.shape, d->format.n_dims * sizeof shape[0]);
    return d->format.n_dims;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* A sample piece by piece: what is stored may be smaller than what comes out. */
static int read_sample(const struct ddp_dataset *d, int64_t index, uint8_t *out,
                       struct co_error *err)
{
    const struct data_format *f = &d->format;
    const size_t size = ddp_dtype_size(f->dtype);
    uint8_t stored[PIECE_ELEMENTS * sizeof(uint64_t)];
    uint64_t at = f->at + (uint64_t)index * f->stride_bytes;
    for (size_t done = 0, n; done < f->elements; done += n) {
        uint32_t bad;
        n = f->elements - done < PIECE_ELEMENTS ? f->elements - done : PIECE_ELEMENTS;
        int code = read_all(d->fd, stored, n * f->stored_bytes, at);
        if (code != 0)
            return co_fail(err, code == -ENODATA ? -EIO : code,
                           "'%s': cannot read sample %" PRId64 ": %s", d->path, index,
                           code == -ENODATA ? "the file was truncated after it was opened"
                                            : strerror(-code));
        if (data_format_convert(f, stored, n, out, &bad) != 0)
            return co_fail(err, -EINVAL,
                           "'%s': sample %" PRId64 " has token %" PRIu32
                           ", which is not in the vocabulary",
                           d->path, index, bad);
        at += n * f->stored_bytes;
        out += n * size;
    }
    return 0;
}

int dataset_read(const struct ddp_dataset *d, const int64_t *index, size_t n, void *out,
                 struct co_error *err)
{
    const size_t bytes = ddp_dataset_sample_bytes(d);
    int code = 0;
    for (size_t i = 0; i < n && code == 0; i++) {
        if (index[i] < 0 || index[i] >= d->format.count)
            return co_fail(err, -EINVAL,
                           "'%s' has %" PRId64 " samples: there is no sample %" PRId64, d->path,
                           d->format.count, index[i]);
        code = read_sample(d, index[i], (uint8_t *)out + i * bytes, err);
    }
    return code;
}

int ddp_dataset_read(const struct ddp_dataset *d, const int64_t *index, size_t n, void *out)
{
    struct co_error err = {0};
    if (d == NULL || ((index == NULL || out == NULL) && n > 0))
        return rt_fail(DDP_EINVAL,
                       "ddp_dataset_read: dataset or out is NULL, or index is negative");
    return rt_return(dataset_read(d, index, n, out, &err), &err);
}
