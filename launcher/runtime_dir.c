#include "runtime_dir.h"

#include "common/error.h"
#include "console/job_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int runtime_dir_make(char **ret_dir, struct co_error *err)
{
    const char *parents[JOB_FOLDER_MAX_PARENTS];
    size_t n = job_folder_parents(parents);
    int code = -ENOENT;
    for (size_t i = 0; i < n; i++) {
        char *dir = NULL;
        if (asprintf(&dir, "%s/" JOB_FOLDER_PREFIX "XXXXXX", parents[i]) < 0)
            return co_fail(err, -ENOMEM, "no memory");
        if (strlen(dir) < PATH_MAX && mkdtemp(dir) != NULL) {
            *ret_dir = dir;
            return 0;
        }
        code = errno != 0 ? -errno : -ENAMETOOLONG;
        co_fail(err, code, "cannot make a folder in '%s': %s", parents[i], strerror(-code));
        free(dir);
    }
    return code;
}

static bool is_error_file(const char *name)
{
    size_t len = strlen(name);
    return len > 5 && strcmp(name + len - 5, ".json") == 0;
}

void runtime_dir_forget_ranks(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (entries == NULL)
        return;
    for (const struct dirent *d; (d = readdir(entries)) != NULL;)
        if (is_error_file(d->d_name))
            unlinkat(fd, d->d_name, 0);
    closedir(entries);
}

void runtime_dir_remove(const char *dir)
{
    job_folder_remove(dir);
}

char *runtime_dir_error_file(const char *dir, int rank, char *buf, size_t n)
{
    snprintf(buf, n, "%s/%d.json", dir, rank);
    return buf;
}
