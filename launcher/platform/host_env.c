#include "host_env.h"

#include "common/scope.h"
#include "elf_needs.h"
#include "resources.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOOK_BYTES = 4096 }; /* text files have no NUL byte in as many */

static const char *real_get_env(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

static int real_n_gpus(void *arg)
{
    (void)arg;
    return resources_n_gpus("", getenv("CUDA_VISIBLE_DEVICES"));
}

static int real_n_cpus(void *arg)
{
    (void)arg;
    return resources_affinity();
}

static int real_n_allowed_cpus(void *arg)
{
    (void)arg;
    return resources_n_cpus("", 0);
}

static enum file_kind look_inside(const char *path)
{
    char bytes[LOOK_BYTES + 1];
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t n = fd < 0 ? -1 : read(fd, bytes, LOOK_BYTES);
    if (n < 0)
        return FILE_UNREADABLE;
    if (memchr(bytes, '\0', (size_t)n) != NULL)
        return FILE_BINARY;
    bytes[n] = '\0';
    if (strncmp(bytes, "#!", 2) != 0)
        return FILE_TEXT;
    bytes[strcspn(bytes, "\n")] = '\0';
    return strstr(bytes, "python") != NULL || strstr(bytes, "pypy") != NULL ? FILE_TEXT
                                                                            : FILE_SCRIPT;
}

static enum file_kind real_look_at(void *arg, const char *path)
{
    (void)arg;
    struct stat file;
    if (stat(path, &file) < 0)
        return FILE_MISSING;
    if (S_ISDIR(file.st_mode))
        return FILE_DIRECTORY;
    if (!S_ISREG(file.st_mode))
        return FILE_SPECIAL;
    if (faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0)
        return FILE_EXECUTABLE;
    return look_inside(path);
}

static int real_read_file(void *arg, const char *path, size_t max, char **ret_text, size_t *ret_len)
{
    (void)arg;
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    co_autofree char *text = fd < 0 ? NULL : malloc(max + 1);
    if (text == NULL)
        return fd < 0 ? -errno : -ENOMEM;
    size_t len = 0;
    for (ssize_t n = 1; n > 0 && len < max + 1; len += (size_t)n) {
        n = read(fd, text + len, max + 1 - len);
        if (n < 0)
            return -errno;
    }
    *ret_text = co_take(&text);
    *ret_len = len;
    return 0;
}

/* The domain is where the system finds the name: in a pod, in its /etc/hosts. */
static void real_own_name(void *arg, char *name, size_t n)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_CANONNAME};
    struct addrinfo *found = NULL;
    (void)arg;
    if (gethostname(name, n) < 0)
        name[0] = '\0';
    name[n - 1] = '\0';
    if (strchr(name, '.') == NULL && getaddrinfo(name, NULL, &hints, &found) == 0) {
        if (found->ai_canonname != NULL && strlen(found->ai_canonname) < n)
            strcpy(name, found->ai_canonname);
        freeaddrinfo(found);
    }
}

static int read_program(void *arg, uint64_t offset, void *to, size_t n)
{
    return pread(*(int *)arg, to, n, (off_t)offset) == (ssize_t)n ? 0 : -EIO;
}

static void real_each_library(void *arg, const char *path,
                              void (*on_name)(void *on_arg, const char *name), void *on_arg)
{
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    (void)arg;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    const struct elf_source file = {
        .read_at = read_program, .size = (uint64_t)st.st_size, .arg = &fd};
    elf_each_needed(&file, on_name, on_arg);
}

static int real_enter(void *arg, const char *dir)
{
    (void)arg;
    return chdir(dir) == 0 ? 0 : -errno;
}

static int real_fill_random(void *arg, void *bytes, size_t n)
{
    (void)arg;
    return getrandom(bytes, n, 0) == (ssize_t)n ? 0 : -errno; /* as few bytes come whole */
}

const struct host_env host_env_real = {
    .get_env = real_get_env,
    .n_gpus = real_n_gpus,
    .n_cpus = real_n_cpus,
    .n_allowed_cpus = real_n_allowed_cpus,
    .look_at = real_look_at,
    .read_file = real_read_file,
    .each_library = real_each_library,
    .own_name = real_own_name,
    .enter = real_enter,
    .fill_random = real_fill_random,
};
