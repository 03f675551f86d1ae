#include "whole.h"

#include "error.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

bool co_may_replace(const char *path)
{
    struct stat st;
    /* /dev/stdout is a link that leads to a file where output goes to one: the link stays */
    if (strncmp(path, "/dev/", 5) == 0 && lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
        return false;
    return stat(path, &st) < 0 || S_ISREG(st.st_mode);
}

int co_write_all(int fd, const void *from, size_t n)
{
    const char *bytes = from;
    while (n > 0) {
        ssize_t wrote = write(fd, bytes, n);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return -errno;
        bytes += wrote;
        n -= (size_t)wrote;
    }
    return 0;
}

ssize_t co_read_all(int fd, void *to, size_t max)
{
    size_t n = 0;
    while (n < max) {
        ssize_t got = read(fd, (char *)to + n, max - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    return (ssize_t)n;
}

static int write_to(const char *path, int flags, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | flags, 0666);
    if (fd < 0)
        return -errno;
    int rc = co_write_all(fd, bytes, n);
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    return rc;
}

/* In a directory that other users can write to, a file or a link that has the name of the draft
 * would be theirs: the name cannot be guessed, and O_EXCL opens neither. */
static int replace(const char *path, const void *bytes, size_t n)
{
    uint64_t mark;
    if (getrandom(&mark, sizeof mark, 0) != (ssize_t)sizeof mark)
        return -EIO;
    co_autofree char *draft = NULL;
    if (asprintf(&draft, "%s.%016" PRIx64 ".tmp", path, mark) < 0) {
        draft = NULL;
        return -ENOMEM;
    }
    int rc = write_to(draft, O_CREAT | O_EXCL, bytes, n);
    if (rc == -EEXIST)
        return rc;
    if (rc == 0 && rename(draft, path) < 0)
        rc = -errno;
    if (rc < 0)
        unlink(draft);
    return rc;
}

int co_write_whole(const char *path, const void *bytes, size_t n, struct co_error *err)
{
    int rc = co_may_replace(path) ? replace(path, bytes, n) : write_to(path, O_APPEND, bytes, n);
    return rc < 0 ? co_fail(err, rc, "cannot write %s: %s", path, strerror(-rc)) : 0;
}

bool co_drain_socket(int fd)
{
    char bytes[256];
    ssize_t n = 1;
    for (int i = 0; i < 64 && (n > 0 || (n < 0 && errno == EINTR)); i++)
        n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}
