/* safetensors_file.c - .safetensors files: mapped for reading, written as a whole.
 *
 * safetensors_open() maps a file; read_header() has safetensors_header.c understand what precedes
 * the data; index_tensors() finds the data of each tensor. safetensors_begin() writes a file, but
 * does not give it its name (whole_file.h). */
#include "safetensors_header.h"

#include "common/error.h"
#include "common/scope.h"
#include "whole_file.h"
#include "worker-runtime/core/group.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");

enum { LENGTH_BYTES = 8 };

struct ddp_safetensors {
    uint8_t *map; /* the whole file */
    size_t bytes;
    struct safetensors_header header;
    const struct ddp_safetensors_tensor **by_name; /* owned; sorted */
};

/* --- reading ---------------------------------------------------------------------------------- */

static int map_file(struct ddp_safetensors *f, const char *path, struct co_error *err)
{
    struct stat st;
    /* not blocking: the name may be that of a pipe */
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return co_fail(err, errno == ENOMEM ? -ENOMEM : -EINVAL, "cannot open the file: %s",
                       strerror(errno));
    if (!S_ISREG(st.st_mode))
        return co_fail(err, -EINVAL, "not a regular file");
    if (st.st_size < LENGTH_BYTES)
        return co_fail(err, -EINVAL, "truncated: %lld bytes are less than a header",
                       (long long)st.st_size);
    f->bytes = (size_t)st.st_size;
    void *map = mmap(NULL, f->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        return co_fail(err, -errno, "cannot map its %zu bytes: %s", f->bytes, strerror(errno));
    f->map = map;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct ddp_safetensors_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Record where each tensor lies, and sort their names. */
static int index_tensors(struct ddp_safetensors *f, const uint8_t *data, struct co_error *err)
{
    struct safetensors_header *h = &f->header;
    f->by_name = calloc(h->n + 1, sizeof(*f->by_name));
    if (f->by_name == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < h->n; i++) {
        h->tensors[i].data = h->tensors[i].bytes > 0 ? data : NULL;
        data += h->tensors[i].bytes;
        f->by_name[i] = &h->tensors[i];
    }
    qsort(f->by_name, h->n, sizeof(*f->by_name), by_name);
    return 0;
}

static int read_header(struct ddp_safetensors *f, struct co_error *err)
{
    uint64_t length;
    memcpy(&length, f->map, sizeof length);
    const size_t left = f->bytes - LENGTH_BYTES;
    if (length > DDP_SAFETENSORS_MAX_HEADER)
        return co_fail(err, -EINVAL, "a header of %" PRIu64 " bytes exceeds the maximum of %d",
                       length, DDP_SAFETENSORS_MAX_HEADER);
    if (length > left)
        return co_fail(err, -EINVAL,
                       "truncated: the header has %" PRIu64 " bytes, but the file only %zu", length,
                       left);
    int code = safetensors_header_parse((const char *)f->map + LENGTH_BYTES, (size_t)length,
                                        left - length, &f->header, err);
    return code != 0 ? code : index_tensors(f, f->map + LENGTH_BYTES + length, err);
}

int safetensors_open(const char *path, struct ddp_safetensors **ret, struct co_error *err)
{
    struct ddp_safetensors *f = calloc(1, sizeof *f);
    if (f == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int code = map_file(f, path, err);
    if (code == 0)
        code = read_header(f, err);
    if (code != 0) {
        ddp_safetensors_close(f);
        co_fail_in(err, "'%s'", path);
        return code;
    }
    *ret = f;
    return 0;
}

int ddp_safetensors_open(const char *path, struct ddp_safetensors **ret_file)
{
    struct co_error err = {0};
    if (path == NULL || ret_file == NULL)
        return rt_fail(DDP_EINVAL, "ddp_safetensors_open: path or ret_file is NULL");
    return rt_return(safetensors_open(path, ret_file, &err), &err);
}

void ddp_safetensors_close(struct ddp_safetensors *f)
{
    if (f == NULL)
        return;
    if (f->map != NULL)
        munmap(f->map, f->bytes);
    safetensors_header_fini(&f->header);
    free(f->by_name);
    free(f);
}

const void *safetensors_mapped(const struct ddp_safetensors *f, size_t *ret_bytes)
{
    *ret_bytes = f->bytes;
    return f->map;
}

size_t ddp_safetensors_count(const struct ddp_safetensors *f)
{
    return f != NULL ? f->header.n : 0;
}

const struct ddp_safetensors_tensor *ddp_safetensors_get(const struct ddp_safetensors *f, size_t i)
{
    return f != NULL && i < f->header.n ? &f->header.tensors[i] : NULL;
}

const struct ddp_safetensors_tensor *ddp_safetensors_find(const struct ddp_safetensors *f,
                                                          const char *name)
{
    const struct ddp_safetensors_tensor wanted = {.name = name}, *key = &wanted;
    if (f == NULL || name == NULL)
        return NULL;
    const struct ddp_safetensors_tensor **found =
        bsearch(&key, f->by_name, f->header.n, sizeof(*f->by_name), by_name);
    return found != NULL ? *found : NULL;
}

const char *ddp_safetensors_text(const struct ddp_safetensors *f, const char *key)
{
    for (size_t i = 0; f != NULL && key != NULL && i < f->header.n_texts; i++)
        if (strcmp(f->header.texts[i].key, key) == 0)
            return f->header.texts[i].value;
    return NULL;
}

/* --- writing ---------------------------------------------------------------------------------- */

int safetensors_begin(struct whole_file *f, const char *path,
                      const struct ddp_safetensors_tensor *tensors, size_t n,
                      const struct ddp_safetensors_text *texts, size_t n_texts,
                      struct co_error *err)
{
    co_autofree char *header = NULL;
    size_t size, bytes;
    uint64_t length, data_bytes;
    f->fd = -1;
    int code =
        safetensors_header_format(tensors, n, texts, n_texts, &header, &size, &data_bytes, err);
    if (code != 0) {
        co_fail_in(err, "'%s'", path);
        return code;
    }
    for (size_t i = 0; i < n; i++)
        if (tensors[i].data == NULL && safetensors_bytes(&tensors[i], &bytes, NULL) == 0 &&
            bytes > 0)
            return co_fail(err, -EINVAL, "'%s': tensor '%.100s' has data NULL", path,
                           tensors[i].name);
    length = size;
    if ((code = whole_file_open(f, path, err)) != 0 ||
        (code = whole_file_write(f, &length, sizeof length, err)) != 0)
        return code;
    code = whole_file_write(f, header, size, err);
    for (size_t i = 0; i < n && code == 0; i++)
        if ((code = safetensors_bytes(&tensors[i], &bytes, err)) == 0)
            code = whole_file_write(f, tensors[i].data, bytes, err);
    return code;
}

int ddp_safetensors_write(const char *path, const struct ddp_safetensors_tensor *tensors, size_t n,
                          const struct ddp_safetensors_text *texts, size_t n_texts)
{
    struct co_error err = {0};
    struct whole_file f;
    if (path == NULL || (tensors == NULL && n > 0) || (texts == NULL && n_texts > 0))
        return rt_fail(DDP_EINVAL, "ddp_safetensors_write: path, tensors or texts is NULL");
    int code = safetensors_begin(&f, path, tensors, n, texts, n_texts, &err);
    if (code == 0)
        code = whole_file_commit(&f, &err);
    whole_file_discard(&f);
    return rt_return(code, &err);
}
