#include "log_copy.h"

#include "common/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void log_copy_close(struct log_copy *l)
{
    close_fd(&l->fd);
    close_fd(&l->filter_fd);
}

/* By its descriptor: nobody keeps the names of the files of a thousand ranks. */
static int give_up(int *fd, int code, struct co_error *err)
{
    char link[64], path[300];
    snprintf(link, sizeof link, "/proc/self/fd/%d", *fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    close_fd(fd);
    return co_fail(err, code, "cannot write log file %s, it ends here: %s", path, strerror(-code));
}

static int write_all(int *fd, const char *bytes, size_t n, struct co_error *err)
{
    while (n > 0 && *fd >= 0) {
        ssize_t took = write(*fd, bytes, n);
        if (took > 0) {
            bytes += took;
            n -= (size_t)took;
        } else if (errno != EINTR) {
            return give_up(fd, -errno, err);
        }
    }
    return 0;
}

int log_copy_bytes(struct log_copy *l, const char *bytes, size_t n, struct co_error *err)
{
    return write_all(&l->fd, bytes, n, err);
}

static bool has_word(char *const *words, const char *line, size_t n)
{
    while (*words != NULL && memmem(line, n, *words, strlen(*words)) == NULL)
        words++;
    return *words != NULL;
}

int log_copy_lines(struct log_copy *l, const char *text, size_t n, size_t n_prefix, bool continued,
                   struct co_error *err)
{
    int rc = 0;
    while (l->words != NULL && n > 0 && rc == 0) {
        const char *newline = memchr(text, '\n', n);
        size_t n_line = newline != NULL ? (size_t)(newline + 1 - text) : n;
        size_t skip = continued ? 0 : n_prefix;
        if ((continued && l->in_match) || has_word(l->words, text + skip, n_line - skip)) {
            rc = write_all(&l->filter_fd, text, n_line, err);
            l->in_match = newline == NULL;
        } else {
            l->in_match = false;
        }
        continued = false;
        text += n_line;
        n -= n_line;
    }
    return rc;
}
