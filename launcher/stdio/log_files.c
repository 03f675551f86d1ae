#include "log_files.h"

#include "disk.h"

#include "common/error.h"
#include "common/scope.h"
#include "common/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* mkdir -p */
static int make_dirs(const char *dir, struct co_error *err)
{
    char path[PATH_MAX];
    if (strlen(dir) >= sizeof path)
        return co_fail(err, -ENAMETOOLONG, "the name of log directory '%.200s...' is too long",
                       dir);
    strcpy(path, dir);
    for (char *c = path + 1;; c++) {
        if (*c != '/' && *c != '\0')
            continue;
        char was = *c;
        *c = '\0';
        if (mkdir(path, 0777) < 0 && errno != EEXIST)
            return co_fail(err, -errno, "cannot make log directory '%s': %s", path,
                           strerror(errno));
        *c = was;
        if (was == '\0')
            return 0;
    }
}

static int make_temporary(char *to, size_t n, struct co_error *err)
{
    const char *parent = getenv("TMPDIR");
    snprintf(to, n, "%s/torchelastic_XXXXXX",
             parent != NULL && parent[0] != '\0' ? parent : "/tmp");
    if (mkdtemp(to) == NULL)
        return co_fail(err, -errno, "cannot make log directory '%s': %s", to, strerror(errno));
    return 0;
}

int log_files_make(const char *dir, const char *run_id, char **ret_dir, struct co_error *err)
{
    char temporary[PATH_MAX];
    int rc = dir != NULL && dir[0] != '\0' ? make_dirs(dir, err)
                                           : make_temporary(temporary, sizeof temporary, err);
    if (rc < 0)
        return rc;
    if (dir == NULL || dir[0] == '\0')
        dir = temporary;
    co_autofree char *parent = realpath(dir, NULL);
    if (parent == NULL)
        return co_fail(err, -errno, "cannot use log directory '%s': %s", dir, strerror(errno));
    co_autofree char *path = NULL;
    if (asprintf(&path, "%s/%s_XXXXXX", parent, run_id) < 0)
        return co_fail(err, -ENOMEM, "out of memory");
    for (char *c = path + strlen(parent) + 1; *c != '\0'; c++)
        if (*c == '/')
            *c = '_';
    if (mkdtemp(path) == NULL)
        return co_fail(err, -errno, "cannot make log directory '%s': %s", path, strerror(errno));
    *ret_dir = co_take(&path);
    return 0;
}

char *log_files_path(const char *dir, uint32_t generation, int local_rank, const char *name,
                     char *buf, size_t n)
{
    if (local_rank < 0)
        snprintf(buf, n, "%s/attempt_%u/%s", dir, generation, name);
    else
        snprintf(buf, n, "%s/attempt_%u/%d/%s", dir, generation, local_rank, name);
    return buf;
}

int log_files_make_rank(const char *dir, uint32_t generation, int local_rank, struct co_error *err)
{
    char path[PATH_MAX];
    log_files_path(dir, generation, local_rank, "", path, sizeof path);
    return make_dirs(path, err);
}

int log_files_open(const char *dir, uint32_t generation, int local_rank, const char *name,
                   struct co_error *err)
{
    char path[PATH_MAX];
    log_files_path(dir, generation, local_rank, name, path, sizeof path);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return fd >= 0 ? fd : co_fail(err, -errno, "cannot open '%s': %s", path, strerror(errno));
}

int log_files_check_room(const char *folder, struct co_error *err)
{
    static const char block[4096] = {1};
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/.space-%d", folder, (int)getpid()) >= (int)sizeof path)
        return 0;
    co_autoclose_fd int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const int rc = fd < 0 ? -errno : co_write_all(fd, block, sizeof block);
    if (fd >= 0)
        unlink(path);
    return rc < 0 ? co_fail(err, rc, "%s", strerror(-rc)) : 0;
}

/* --- what of a stream is written to log files --- */

void log_copy_close(struct log_copy *l)
{
    co_close_fd(&l->fd);
    co_close_fd(&l->filter_fd);
    free(l->path);
    l->path = NULL;
    l->turn = (struct log_turn){0};
}

/* Names the file by its descriptor: the names of the files of a thousand ranks are not kept. */
static int fail_write(int fd, int code, const char *what, struct co_error *err)
{
    char link[64], path[300];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return co_fail(err, code, "cannot write log file %s: %s: %s", path, strerror(-code), what);
}

static int give_up(int *fd, int code, struct co_error *err)
{
    int rc = fail_write(*fd, code, "its log ends there", err);
    co_close_fd(fd);
    return rc;
}

/* A line marks the place where bytes are missing, once it can be written. returns   0, -errno */
static int mark_hole(int fd, bool *has_hole)
{
    static const char text[] =
        "\nddprun: warning: output is missing here: the file could not be written\n";
    int rc = *has_hole ? co_write_all(fd, text, sizeof text - 1) : 0;
    *has_hole = *has_hole && rc < 0;
    return rc;
}

/* has_hole   of this file: bytes are missing at its end */
static int write_all(int *fd, bool *has_hole, const char *bytes, size_t n, struct co_error *err)
{
    int rc = *fd >= 0 ? mark_hole(*fd, has_hole) : 0;
    if (rc == 0 && *fd >= 0)
        rc = co_write_all(*fd, bytes, n);
    if (rc == 0)
        return 0;
    *has_hole = disk_may_recover(-rc);
    return *has_hole ? fail_write(*fd, rc, "output is missing there", err) : give_up(fd, rc, err);
}

int log_copy_set_turn(struct log_copy *l, const struct log_turn *turn, const char *path)
{
    if (l->fd < 0 || turn->max_bytes == 0)
        return 0;
    l->path = strdup(path);
    if (l->path == NULL)
        return -ENOMEM;
    off_t size = lseek(l->fd, 0, SEEK_END);
    l->size = size > 0 ? (uint64_t)size : 0;
    l->turn = *turn;
    return 0;
}

/* FILE, or FILE.1 and so on. */
static char *name_of(const struct log_copy *l, int number, char *name, size_t n)
{
    if (number == 0)
        snprintf(name, n, "%s", l->path);
    else
        snprintf(name, n, "%s.%d", l->path, number);
    return name;
}

/* One that is not there, or cannot be moved, is not worth more than the new lines. */
static void shift_old_ones(const struct log_copy *l)
{
    char from[PATH_MAX], to[PATH_MAX];
    if (l->turn.n_kept == 0)
        unlink(l->path);
    for (int i = l->turn.n_kept; i > 0; i--)
        rename(name_of(l, i - 1, from, sizeof from), name_of(l, i, to, sizeof to));
}

static int turn_over(struct log_copy *l, struct co_error *err)
{
    co_close_fd(&l->fd);
    shift_old_ones(l);
    l->size = 0;
    l->fd = open(l->path, O_WRONLY | O_CREAT | O_APPEND | O_TRUNC | O_CLOEXEC, 0666);
    if (l->fd >= 0)
        return 0;
    return co_fail(err, -errno, "cannot open log file %s: %s: its log ends there", l->path,
                   strerror(errno));
}

/* How much of this goes to the file that is open: whole lines, if a line ends in it. 0: none of it,
 * the file is full */
static size_t fitting(const struct log_copy *l, const char *bytes, size_t n)
{
    uint64_t room = l->turn.max_bytes > l->size ? l->turn.max_bytes - l->size : 0;
    if (n <= room)
        return n;
    const char *newline = memrchr(bytes, '\n', (size_t)room);
    if (newline != NULL)
        return (size_t)(newline + 1 - bytes);
    return l->size > 0 ? 0 : (size_t)room;
}

int log_copy_bytes(struct log_copy *l, const char *bytes, size_t n, struct co_error *err)
{
    int rc = 0;
    if (l->turn.max_bytes == 0)
        return write_all(&l->fd, &l->has_hole, bytes, n, err);
    while (n > 0 && rc == 0 && l->fd >= 0) {
        size_t part = fitting(l, bytes, n);
        if (part == 0) {
            rc = turn_over(l, err);
            continue;
        }
        rc = write_all(&l->fd, &l->has_hole, bytes, part, err);
        l->size += rc == 0 ? part : 0; /* what a full disk does not take shifts no older file */
        bytes += part;
        n -= part;
    }
    return rc;
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
            rc = write_all(&l->filter_fd, &l->filter_has_hole, text, n_line, err);
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
