#include "cgroup.h"

#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { LIST_BYTES = 64 * 1024 }; /* of /proc/self/cgroup: a dozen lines, each with a path */

/* Is "cpu" in "cpu,cpuacct"? It is not in "cpuset". */
static bool has_controller(const char *list, size_t n, const char *name)
{
    size_t n_name = strlen(name);
    const char *end = list + n;
    for (const char *at = list; at < end; at++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t len = (size_t)((comma != NULL ? comma : end) - at);
        if (len == n_name && memcmp(at, name, len) == 0)
            return true;
        at += len;
    }
    return false;
}

/* Cut a line "4:cpu,cpuacct:/a" into its list and its path. returns false if it is none */
static bool parse_line(const char *line, size_t n, const char **ret_list, size_t *ret_n_list,
                       struct co_cgroup_entry *ret)
{
    const char *end = line + n;
    const char *list = memchr(line, ':', n);
    const char *path = list != NULL ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
    if (path == NULL || path + 1 == end || path[1] != '/')
        return false;
    *ret_list = list + 1;
    *ret_n_list = (size_t)(path - list - 1);
    ret->version = *ret_n_list > 0 ? 1 : 2;
    ret->path = path + 1;
    ret->path_len = (size_t)(end - path - 1);
    return true;
}

bool co_cgroup_parse(const char *text, const char *controller, struct co_cgroup_entry *ret)
{
    bool found = false;
    for (const char *line = text; *line != '\0';) {
        struct co_cgroup_entry e;
        const char *list;
        size_t n_list;
        size_t n = strcspn(line, "\n");
        bool is_entry = parse_line(line, n, &list, &n_list, &e);
        line += n + (line[n] != '\0');
        if (!is_entry || (e.version == 1 && !has_controller(list, n_list, controller)))
            continue;
        *ret = e;
        found = true;
        if (e.version == 1)
            break;
    }
    return found;
}

/* What there is of a file, up to size - 1 bytes, and a NUL. returns its length, -errno */
static int read_file(const char *path, char *text, size_t size)
{
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    ssize_t got = fd < 0 ? -1 : 1;
    while (got > 0 && n < size - 1) {
        got = read(fd, text + n, size - 1 - n);
        n += got > 0 ? (size_t)got : 0;
    }
    if (got < 0)
        return -errno;
    text[n] = '\0';
    return (int)n;
}

/* What to append to the mount point. A path like "/../x" leads out of what our cgroup namespace
 * shows: the top is all there is. */
static size_t visible_len(const struct co_cgroup_entry *e)
{
    bool leads_out = e->path_len >= 3 && memcmp(e->path, "/..", 3) == 0;
    return leads_out || e->path_len == 1 ? 0 : e->path_len;
}

int co_cgroup_find(const char *root, const char *controller, struct co_cgroup *ret)
{
    char path[CO_CGROUP_DIR_BYTES];
    co_autofree char *text = malloc(LIST_BYTES);
    if (text == NULL)
        return -ENOMEM;
    if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= (int)sizeof path)
        return -ENAMETOOLONG;
    int rc = read_file(path, text, LIST_BYTES);
    if (rc < 0)
        return rc;
    struct co_cgroup_entry e;
    if (!co_cgroup_parse(text, controller, &e))
        return -ENOENT;
    int n_mount = snprintf(path, sizeof path, "%s/sys/fs/cgroup%s%s", root,
                           e.version == 1 ? "/" : "", e.version == 1 ? controller : "");
    size_t n_group = visible_len(&e);
    if ((size_t)n_mount + n_group >= sizeof ret->dir)
        return -ENAMETOOLONG;
    ret->version = e.version;
    ret->n_mount = (size_t)n_mount;
    memcpy(ret->dir, path, (size_t)n_mount);
    memcpy(ret->dir + n_mount, e.path, n_group);
    ret->dir[(size_t)n_mount + n_group] = '\0';
    return 0;
}

bool co_cgroup_up(struct co_cgroup *g)
{
    char *slash = strrchr(g->dir + g->n_mount, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    return true;
}

const char *co_cgroup_path(const struct co_cgroup *g)
{
    return g->dir[g->n_mount] != '\0' ? g->dir + g->n_mount : "/";
}

int co_cgroup_read(const struct co_cgroup *g, const char *file, char *text, size_t size)
{
    char path[CO_CGROUP_DIR_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", g->dir, file);
    if (n < 0 || n >= (int)sizeof path)
        return -ENAMETOOLONG;
    return read_file(path, text, size);
}
