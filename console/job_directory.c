#include "job_directory.h"

#include "common/error.h"
#include "common/scope.h"
#include "common/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 16 };

static const char socket_name[] = "socket";
static const char unready_name[] = ".socket"; /* bound, and not listened at yet */
static const char boot_name[] = "boot";
static const char sessions[] = "/run/user";
static const char boot_id[] = "/proc/sys/kernel/random/boot_id";

enum { BOOT_BYTES = 64 }; /* more than such an id has */

/* --- Where they are --- */

static bool is_listed(const char *path, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], path) == 0)
            return true;
    return false;
}

static size_t add_parent(const char *path, const char **list, size_t n)
{
    if (path == NULL || path[0] != '/' || n == JOB_DIRECTORY_MAX_PARENTS)
        return n;
    if (is_listed(path, list, n))
        return n;
    list[n] = path;
    return n + 1;
}

size_t job_directory_parents(const char *ret[JOB_DIRECTORY_MAX_PARENTS])
{
    size_t n = add_parent(getenv("XDG_RUNTIME_DIR"), ret, 0);
    n = add_parent("/dev/shm", ret, n);
    n = add_parent(getenv("TMPDIR"), ret, n);
    return add_parent("/tmp", ret, n);
}

/* ret_uid   its owner; NULL: not asked
 * returns   a descriptor of the directory if it is ours alone, or any user's alone, else -errno */
static int open_directory(int parent_fd, const char *path, enum job_directory_owner owner,
                          uid_t *ret_uid, struct co_error *err)
{
    struct stat st;
    co_autoclose_fd int fd =
        openat(parent_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return co_fail(err, -errno, "cannot open '%s': %s", path, strerror(errno));
    if (fstat(fd, &st) < 0 || (owner == JOB_DIRECTORY_OURS && st.st_uid != geteuid()) ||
        (st.st_mode & 077) != 0)
        return co_fail(err, -EACCES, "'%s' is not a directory of %s user only", path,
                       owner == JOB_DIRECTORY_OURS ? "this" : "one");
    if (ret_uid != NULL)
        *ret_uid = st.st_uid;
    return co_take_fd(&fd);
}

static bool has_socket(int parent_fd, const char *name, enum job_directory_owner owner)
{
    struct stat st;
    co_autoclose_fd int fd = open_directory(parent_fd, name, owner, NULL, NULL);
    return fd >= 0 && fstatat(fd, socket_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISSOCK(st.st_mode);
}

static int add_path(struct job_directories *f, const char *parent, const char *name)
{
    if (f->paths == NULL)
        f->paths = calloc(JOB_DIRECTORIES_MAX, sizeof *f->paths);
    char *path = NULL;
    if (f->paths == NULL || asprintf(&path, "%s/%s", parent, name) < 0)
        return -ENOMEM;
    f->paths[f->n++] = path;
    return 0;
}

static int find_in(const char *parent, enum job_directory_owner owner, struct job_directories *f)
{
    int rc = 0;
    DIR *entries = opendir(parent);
    if (entries == NULL)
        return 0;
    for (const struct dirent *d;
         rc == 0 && f->n < JOB_DIRECTORIES_MAX && (d = readdir(entries)) != NULL;)
        if (strncmp(d->d_name, JOB_DIRECTORY_PREFIX, strlen(JOB_DIRECTORY_PREFIX)) == 0 &&
            has_socket(dirfd(entries), d->d_name, owner))
            rc = add_path(f, parent, d->d_name);
    closedir(entries);
    return rc;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int find_in_sessions(const char *const *parents, size_t n, struct job_directories *f)
{
    int rc = 0;
    DIR *entries = opendir(sessions);
    if (entries == NULL)
        return 0;
    for (const struct dirent *d; rc == 0 && (d = readdir(entries)) != NULL;) {
        char path[sizeof sessions + sizeof d->d_name + 1];
        snprintf(path, sizeof path, "%s/%s", sessions, d->d_name);
        if (d->d_name[0] != '.' && !is_listed(path, parents, n))
            rc = find_in(path, JOB_DIRECTORY_ANY, f);
    }
    closedir(entries);
    return rc;
}

int job_directories_find(enum job_directory_owner owner, struct job_directories *ret,
                         struct co_error *err)
{
    const char *parents[JOB_DIRECTORY_MAX_PARENTS];
    char session[64];
    int rc = 0;
    size_t n = job_directory_parents(parents);
    *ret = (struct job_directories){0};
    snprintf(session, sizeof session, "%s/%ju", sessions, (uintmax_t)geteuid());
    n = add_parent(session, parents, n);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = find_in(parents[i], owner, ret);
    if (rc == 0 && owner == JOB_DIRECTORY_ANY)
        rc = find_in_sessions(parents, n, ret);
    if (ret->n > 0)
        qsort(ret->paths, ret->n, sizeof *ret->paths, compare_paths);
    return rc == 0 ? 0 : co_fail(err, rc, "out of memory");
}

void job_directories_fini(struct job_directories *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->paths[i]);
    free(f->paths);
    *f = (struct job_directories){0};
}

/* --- Whose it is --- */

/* returns how many bytes; 0: it cannot be known */
static size_t read_boot(int directory_fd, const char *path, char id[BOOT_BYTES])
{
    co_autoclose_fd int fd = openat(directory_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, id, BOOT_BYTES);
    return n > 0 ? (size_t)n : 0;
}

/* Without it, the directory stays if no process is left to remove it; nothing else depends on
 * it. */
static void note_boot(int directory_fd)
{
    char id[BOOT_BYTES];
    size_t n = read_boot(AT_FDCWD, boot_id, id);
    co_autoclose_fd int fd =
        n == 0 ? -1
               : openat(directory_fd, boot_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 && write(fd, id, n) != (ssize_t)n)
        unlinkat(directory_fd, boot_name, 0);
}

static bool is_of_this_boot(int directory_fd)
{
    char ours[BOOT_BYTES], its[BOOT_BYTES];
    size_t n = read_boot(AT_FDCWD, boot_id, ours);
    return n > 0 && read_boot(directory_fd, boot_name, its) == n && memcmp(ours, its, n) == 0;
}

void job_directory_remove_dead(const char *path)
{
    co_autoclose_fd int directory = open_directory(AT_FDCWD, path, JOB_DIRECTORY_OURS, NULL, NULL);
    if (directory >= 0 && is_of_this_boot(directory))
        co_tree_remove(path);
}

/* --- The socket --- */

/* The address of a name in an open directory, however long the directory's own path is. */
static struct sockaddr_un address_in(int directory_fd, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", directory_fd, name);
    return address;
}

static int open_socket(struct co_error *err)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd < 0 ? co_fail(err, -errno, "cannot make a socket: %s", strerror(errno)) : fd;
}

int job_directory_listen(const char *path, struct co_error *err)
{
    co_autoclose_fd int directory = open_directory(AT_FDCWD, path, JOB_DIRECTORY_OURS, NULL, err);
    if (directory < 0)
        return directory;
    co_autoclose_fd int fd = open_socket(err);
    if (fd < 0)
        return fd;
    note_boot(directory);
    const struct sockaddr_un address = address_in(directory, unready_name);
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) < 0 ||
        listen(fd, BACKLOG) < 0 || renameat(directory, unready_name, directory, socket_name) < 0)
        return co_fail(err, -errno, "cannot listen in '%s': %s", path, strerror(errno));
    return co_take_fd(&fd);
}

int job_directory_connect(const char *path, enum job_directory_owner owner, struct co_error *err)
{
    uid_t uid;
    co_autoclose_fd int directory = open_directory(AT_FDCWD, path, owner, &uid, err);
    if (directory < 0)
        return directory;
    co_autoclose_fd int fd = open_socket(err);
    if (fd < 0)
        return fd;
    const struct sockaddr_un address = address_in(directory, socket_name);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0)
        return co_fail(err, -errno, "cannot connect to '%s/%s': %s", path, socket_name,
                       strerror(errno));
    if (job_directory_peer_uid(fd) != uid && (uid != geteuid() || !job_directory_knows_peer(fd)))
        return co_fail(err, -EACCES, "the process listening in '%s' belongs to another user", path);
    return co_take_fd(&fd);
}

bool job_directory_knows_peer(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

uid_t job_directory_peer_uid(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 ? peer.uid : (uid_t)-1;
}

pid_t job_directory_peer(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 ? peer.pid : 0;
}
