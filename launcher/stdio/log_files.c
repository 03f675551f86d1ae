#include "log_files.h"

#include "common/error.h"
#include "common/scope.h"

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
        return co_fail(err, -ENAMETOOLONG, "log directory '%.200s...' is too long a name", dir);
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
        return co_fail(err, -ENOMEM, "no memory for the log directory's name");
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
