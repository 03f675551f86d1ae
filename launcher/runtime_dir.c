#include "runtime_dir.h"

#include "common/error.h"
#include "common/scope.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int runtime_dir_make(char **ret_dir, struct co_error *err)
{
    const char *const parents[] = {getenv("XDG_RUNTIME_DIR"), "/dev/shm", getenv("TMPDIR"), "/tmp"};
    int code = -ENOENT;
    for (size_t i = 0; i < sizeof parents / sizeof *parents; i++) {
        if (parents[i] == NULL || parents[i][0] != '/') /* workers may change their directory */
            continue;
        char *dir = NULL;
        if (asprintf(&dir, "%s/ddprun-XXXXXX", parents[i]) < 0)
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
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".json") == 0;
}

static void unlink_all(const char *dir, bool error_files_only)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (entries == NULL)
        return;
    for (const struct dirent *d; (d = readdir(entries)) != NULL;)
        if (!error_files_only || is_error_file(d->d_name))
            unlinkat(fd, d->d_name, 0);
    closedir(entries);
}

void runtime_dir_empty(const char *dir)
{
    unlink_all(dir, true);
}

void runtime_dir_remove(const char *dir)
{
    if (dir == NULL || rmdir(dir) == 0 || (errno != ENOTEMPTY && errno != EEXIST))
        return;
    unlink_all(dir, false);
    rmdir(dir);
}

char *runtime_dir_error_file(const char *dir, int rank, char *buf, size_t n)
{
    snprintf(buf, n, "%s/%d.json", dir, rank);
    return buf;
}
