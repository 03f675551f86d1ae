#include "runtime_dir.h"

#include "common/error.h"
#include "common/scope.h"
#include "common/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MARK_CHARACTERS = 6 };

/* Like those of mkdtemp(3): they cannot be guessed, and do not collide. */
static int draw_mark(char mark[MARK_CHARACTERS + 1], struct co_error *err)
{
    static const char of[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    uint64_t bits;
    if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        return co_fail(err, -EIO, "cannot get random bytes for a directory name: %s",
                       strerror(errno));
    for (int i = 0; i < MARK_CHARACTERS; i++, bits /= sizeof of - 1)
        mark[i] = of[bits % (sizeof of - 1)];
    mark[MARK_CHARACTERS] = '\0';
    return 0;
}

int runtime_dir_choose(struct runtime_dir_names *ret, struct co_error *err)
{
    const char *parents[JOB_DIRECTORY_MAX_PARENTS];
    char mark[MARK_CHARACTERS + 1];
    const size_t n = job_directory_parents(parents);
    *ret = (struct runtime_dir_names){0};
    int rc = draw_mark(mark, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        char *path = NULL;
        if (asprintf(&path, "%s/" JOB_DIRECTORY_PREFIX "%s", parents[i], mark) < 0)
            return co_fail(err, -ENOMEM, "out of memory");
        if (strlen(path) < PATH_MAX)
            ret->paths[ret->n++] = path;
        else
            free(path);
    }
    return rc < 0 || ret->n > 0
               ? rc
               : co_fail(err, -ENAMETOOLONG,
                         "no writable directory found; set XDG_RUNTIME_DIR or TMPDIR");
}

void runtime_dir_forget_names(struct runtime_dir_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->paths[i]);
    *names = (struct runtime_dir_names){0};
}

/* In a user namespace without a mapping for root, what root owns seems to belong to another user,
 * as "/" does. */
static bool is_of_root(uid_t uid)
{
    struct stat top;
    return uid == 0 || (stat("/", &top) == 0 && uid == top.st_uid);
}

/* Can no other user rename or remove what we make in this directory? */
static bool is_safe_parent(const struct stat *st)
{
    return (st->st_uid == geteuid() || is_of_root(st->st_uid)) &&
           ((st->st_mode & (S_IWGRP | S_IWOTH)) == 0 || (st->st_mode & S_ISVTX) != 0);
}

static int make_at(const char *path, struct co_error *err)
{
    struct stat st;
    char parent[PATH_MAX];
    const char *name = strrchr(path, '/') + 1;
    snprintf(parent, sizeof parent, "%.*s", (int)(name - path), path);
    co_autoclose_fd int fd = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && !is_safe_parent(&st))
        return co_fail(err, -EACCES,
                       "cannot make directory '%s': other users can replace it; set "
                       "XDG_RUNTIME_DIR to a directory that only you can write to",
                       path);
    if (fd < 0 || mkdirat(fd, name, 0700) < 0)
        return co_fail(err, -errno, "cannot make directory '%s': %s", path, strerror(errno));
    return 0;
}

int runtime_dir_make(const struct runtime_dir_names *names, const char **ret_dir,
                     struct co_error *err)
{
    int code = -ENOENT;
    for (size_t i = 0; i < names->n; i++) {
        code = make_at(names->paths[i], err);
        if (code == 0) {
            *ret_dir = names->paths[i];
            return 0;
        }
    }
    return code;
}

const char *runtime_dir_make_shared(const struct runtime_dir_names *names, const char *dir)
{
    static const char memory[] = "/dev/shm/";
    for (size_t i = 0; i < names->n; i++)
        if (strncmp(names->paths[i], memory, strlen(memory)) == 0)
            return names->paths[i] == dir || make_at(names->paths[i], NULL) < 0 ? dir
                                                                                : names->paths[i];
    return dir;
}

void runtime_dir_forget_ranks(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (entries == NULL)
        return;
    for (const struct dirent *d; (d = readdir(entries)) != NULL;) {
        const char *dot = strrchr(d->d_name, '.');
        if (dot != NULL && strcmp(dot, ".json") == 0)
            unlinkat(fd, d->d_name, 0);
    }
    closedir(entries);
}

void runtime_dir_remove(const char *dir)
{
    co_tree_remove(dir);
}

void runtime_dir_remove_any(const struct runtime_dir_names *names)
{
    for (size_t i = 0; names != NULL && i < names->n; i++)
        co_tree_remove(names->paths[i]);
}

char *runtime_dir_error_file(const char *dir, int rank, char *buf, size_t n)
{
    snprintf(buf, n, "%s/%d.json", dir, rank);
    return buf;
}
