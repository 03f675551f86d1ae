/* whole_file.c - whole_file_open(), _write(), _sync() and _commit(), in this order; _discard() at
 * any time. */
#include "whole_file.h"

#include "common/error.h"
#include "common/hash.h"
#include "common/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- the digest ------------------------------------------------------------------------------- */

void whole_digest_init(struct whole_digest *d)
{
    *d = (struct whole_digest){.hash = CO_HASH_START};
}

static void add_byte(struct whole_digest *d, uint8_t byte)
{
    d->word |= (uint64_t)byte << d->n_bytes++ % 8 * 8;
    if (d->n_bytes % 8 != 0)
        return;
    d->hash = co_hash_word(d->hash, d->word);
    d->word = 0;
}

void whole_digest_add(struct whole_digest *d, const void *bytes, size_t n)
{
    const uint8_t *at = bytes, *end = at + n;
    while (at < end && d->n_bytes % 8 != 0)
        add_byte(d, *at++);
    for (uint64_t word; end - at >= 8; at += 8, d->n_bytes += 8) {
        memcpy(&word, at, sizeof word);
        d->hash = co_hash_word(d->hash, word);
    }
    while (at < end)
        add_byte(d, *at++);
}

uint64_t whole_digest_end(const struct whole_digest *d)
{
    return co_hash_word(co_hash_word(d->hash, d->word), d->n_bytes);
}

/* --- the file --------------------------------------------------------------------------------- */

static int fail_write(const struct whole_file *f, int error, struct co_error *err)
{
    const char *next = error == ENOSPC || error == EDQUOT ? "; free disk space"
                       : error == EACCES || error == EROFS
                           ? "; check the permissions of its directory"
                       : error == ENOENT || error == ENOTDIR ? "; create its directory"
                                                             : "";
    return co_fail(err, -error, "cannot write '%s': %s%s", f->path, strerror(error), next);
}

int whole_file_open(struct whole_file *f, const char *path, struct co_error *err)
{
    static atomic_uint count; /* several threads may write files at the same time */
    f->fd = -1;
    if (path == NULL || path[0] == '\0')
        return co_fail(err, -EINVAL, "the file name is empty");
    if (strlen(path) >= sizeof f->path)
        return co_fail(err, -EINVAL, "the name of the file is too long: %.60s...", path);
    strcpy(f->path, path);
    snprintf(f->temporary, sizeof f->temporary, "%s" WHOLE_FILE_TEMPORARY "%ld.%u", path,
             (long)getpid(), atomic_fetch_add(&count, 1));
    whole_digest_init(&f->digest);
    if (!co_may_replace(path))
        return co_fail(err, -EINVAL, "cannot write '%s': not a regular file", path);
    f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    return f->fd < 0 ? fail_write(f, errno, err) : 0;
}

int whole_file_write(struct whole_file *f, const void *bytes, size_t n, struct co_error *err)
{
    enum { AT_ONCE = 1 << 30 }; /* what one write() takes */
    const uint8_t *from = bytes;
    if (n > 0)
        whole_digest_add(&f->digest, bytes, n);
    while (n > 0) {
        ssize_t done = write(f->fd, from, n < AT_ONCE ? n : AT_ONCE);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return fail_write(f, errno, err);
        from += done;
        n -= (size_t)done;
    }
    return 0;
}

void whole_file_sync_directory(const char *path)
{
    char directory[WHOLE_FILE_MAX_PATH];
    snprintf(directory, sizeof directory, "%s", path);
    char *slash = strrchr(directory, '/');
    if (slash == NULL)
        strcpy(directory, ".");
    else
        slash[slash == directory] = '\0';
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd); /* the file is whole either way */
        close(fd);
    }
}

int whole_file_sync(struct whole_file *f, struct co_error *err)
{
    return fsync(f->fd) < 0 ? fail_write(f, errno, err) : 0;
}

int whole_file_commit(struct whole_file *f, struct co_error *err)
{
    if (fsync(f->fd) < 0 || rename(f->temporary, f->path) < 0) {
        int code = fail_write(f, errno, err);
        whole_file_discard(f);
        return code;
    }
    close(f->fd); /* it is on the disk */
    f->fd = -1;
    whole_file_sync_directory(f->path);
    return 0;
}

void whole_file_discard(struct whole_file *f)
{
    if (f->fd < 0)
        return;
    close(f->fd);
    f->fd = -1;
    unlink(f->temporary);
}
