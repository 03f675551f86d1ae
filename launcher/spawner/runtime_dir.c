#include "runtime_dir.h"

#include "common/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

int runtime_dir_make(const struct runtime_dir_names *names, const char **ret_dir,
                     struct co_error *err)
{
    int code = -ENOENT;
    for (size_t i = 0; i < names->n; i++) {
        if (mkdir(names->paths[i], 0700) == 0) {
            *ret_dir = names->paths[i];
            return 0;
        }
        code = co_fail(err, -errno, "cannot make directory '%s': %s", names->paths[i],
                       strerror(errno));
    }
    return code;
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
    job_directory_remove(dir);
}

void runtime_dir_remove_any(const struct runtime_dir_names *names)
{
    for (size_t i = 0; names != NULL && i < names->n; i++)
        job_directory_remove(names->paths[i]);
}

char *runtime_dir_error_file(const char *dir, int rank, char *buf, size_t n)
{
    snprintf(buf, n, "%s/%d.json", dir, rank);
    return buf;
}
