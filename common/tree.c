#include "tree.h"

#include "scope.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Most trees are empty or flat: a directory is opened only if it cannot be removed as it is. */
static void remove_directory(int parent_fd, const char *path, int depth)
{
    if (unlinkat(parent_fd, path, AT_REMOVEDIR) == 0 || (errno != ENOTEMPTY && errno != EEXIST) ||
        depth > CO_TREE_MAX_DEPTH)
        return;
    int fd = openat(parent_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    co_autoclose_dir DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (entries == NULL) {
        co_close_fd(&fd);
        return;
    }
    for (const struct dirent *d; (d = readdir(entries)) != NULL;)
        if (!is_dots(d->d_name) && unlinkat(fd, d->d_name, 0) < 0 &&
            (errno == EISDIR || errno == EPERM))
            remove_directory(fd, d->d_name, depth + 1);
    unlinkat(parent_fd, path, AT_REMOVEDIR);
}

void co_tree_remove(const char *path)
{
    if (path != NULL)
        remove_directory(AT_FDCWD, path, 1);
}
