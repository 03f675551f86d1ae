#include "atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"

int atomic_file_open(struct atomic_file *f, const char *path, struct failure *why)
{
    f->fd = -1;
    if (strlen(path) >= sizeof(f->path))
        return failure_set(why, "the name of the file is too long: %.60s...", path);
    strcpy(f->path, path);
    snprintf(f->temporary, sizeof(f->temporary), "%s.tmp.%ld", path, (long)getpid());
    f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (f->fd < 0)
        return failure_set(why, "cannot write '%s': %s", path, strerror(errno));
    return 0;
}

int atomic_file_write(struct atomic_file *f, const void *bytes, size_t n, struct failure *why)
{
    const uint8_t *from = bytes;

    while (n > 0) {
        ssize_t done = write(f->fd, from, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return failure_set(why, "cannot write '%s': %s", f->path, strerror(errno));
        from += done;
        n -= (size_t)done;
    }
    return 0;
}

/* Bring the rename itself to the disk. Some file systems cannot do that with a directory: the file
 * is whole either way, so failures do not matter. */
static void sync_directory(const char *path)
{
    char directory[ATOMIC_FILE_MAX_PATH];

    strcpy(directory, path);
    char *slash = strrchr(directory, '/');
    if (slash == NULL)
        strcpy(directory, ".");
    else
        slash[slash == directory] = '\0';
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

int atomic_file_commit(struct atomic_file *f, struct failure *why)
{
    if (fsync(f->fd) < 0 || rename(f->temporary, f->path) < 0) {
        failure_set(why, "cannot write '%s': %s", f->path, strerror(errno));
        atomic_file_discard(f);
        return -1;
    }
    close(f->fd);
    f->fd = -1;
    sync_directory(f->path);
    return 0;
}

void atomic_file_discard(struct atomic_file *f)
{
    if (f->fd < 0)
        return;
    close(f->fd);
    f->fd = -1;
    unlink(f->temporary);
}
