/* What the command line depends on, as this machine has it: host_env_real. real_look_at() finds
 * what kind of file a path is; real_each_library() reads the dynamic section of a program by
 * elf_each_needed(), which checks each offset and each count against the size of the file, since
 * any file may be given. Read elf_each_needed() first. */
#include "host_env.h"

#include "gpus.h"
#include "resources.h"

#include "common/scope.h"
#include "common/whole.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
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
    return resources_n_gpus("", gpus_visible_here());
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

static enum file_kind look_inside(const char *path, bool is_executable)
{
    static const char zip_magic[] = "PK\3\4";
    char bytes[LOOK_BYTES + 1];
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t n = fd < 0 ? -1 : read(fd, bytes, LOOK_BYTES);
    if (n >= 4 && memcmp(bytes, zip_magic, 4) == 0)
        return FILE_PYTHON_APP;
    if (is_executable)
        return FILE_EXECUTABLE;
    if (n < 0)
        return FILE_UNREADABLE;
    const bool is_binary = memchr(bytes, '\0', (size_t)n) != NULL;
    bytes[n] = '\0';
    if (strncmp(bytes, "#!", 2) != 0)
        return is_binary ? FILE_BINARY : FILE_TEXT;
    bytes[strcspn(bytes, "\n")] = '\0';
    const bool is_python = strstr(bytes, "python") != NULL || strstr(bytes, "pypy") != NULL;
    return is_python ? (is_binary ? FILE_PYTHON_APP : FILE_TEXT)
                     : (is_binary ? FILE_BINARY : FILE_SCRIPT);
}

static bool has_main(const char *directory)
{
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/__main__.py", directory);
    return n > 0 && n < (int)sizeof path && access(path, F_OK) == 0;
}

static enum file_kind real_look_at(void *arg, const char *path)
{
    (void)arg;
    struct stat file;
    if (stat(path, &file) < 0)
        return FILE_MISSING;
    if (S_ISDIR(file.st_mode))
        return has_main(path) ? FILE_PYTHON_APP : FILE_DIRECTORY;
    if (!S_ISREG(file.st_mode))
        return FILE_SPECIAL;
    return look_inside(path, faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0);
}

static int real_read_file(void *arg, const char *path, size_t max, char **ret_text, size_t *ret_len)
{
    (void)arg;
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    co_autofree char *text = fd < 0 ? NULL : malloc(max + 1);
    if (text == NULL)
        return fd < 0 ? -errno : -ENOMEM;
    ssize_t len = co_read_all(fd, text, max + 1);
    if (len < 0)
        return (int)len;
    *ret_text = co_take(&text);
    *ret_len = (size_t)len;
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

static void real_each_match(void *arg, const char *pattern,
                            void (*on_path)(void *on_arg, const char *path), void *on_arg)
{
    glob_t found = {0};
    (void)arg;
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            on_path(on_arg, found.gl_pathv[i]);
    globfree(&found);
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
    .each_match = real_each_match,
    .own_name = real_own_name,
    .enter = real_enter,
    .fill_random = real_fill_random,
};

/* --- the libraries of a program --- */

/* Both read-only tables of a program that is about to be asked for its strings. */
struct tables {
    Elf64_Phdr headers[ELF_MAX_HEADERS];
    size_t n_headers;
    uint64_t strings_at, strings_size; /* in the file */
};

static int read_at(const struct elf_source *file, uint64_t offset, void *to, size_t n)
{
    if (offset > file->size || n > file->size - offset)
        return -ENOEXEC;
    return file->read_at(file->arg, offset, to, n) == 0 ? 0 : -ENOEXEC;
}

static int read_headers(const struct elf_source *file, struct tables *t)
{
    Elf64_Ehdr e;
    int rc = read_at(file, 0, &e, sizeof e);
    if (rc < 0 || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 || e.e_ident[EI_CLASS] != ELFCLASS64 ||
        e.e_ident[EI_DATA] != ELFDATA2LSB || e.e_phentsize != sizeof t->headers[0])
        return -ENOEXEC;
    t->n_headers = e.e_phnum < ELF_MAX_HEADERS ? e.e_phnum : ELF_MAX_HEADERS;
    return read_at(file, e.e_phoff, t->headers, t->n_headers * sizeof t->headers[0]);
}

/* Addresses are those of the program in memory: where are they in the file? */
static int find_in_file(const struct tables *t, uint64_t address, uint64_t *ret)
{
    for (size_t i = 0; i < t->n_headers; i++) {
        const Elf64_Phdr *h = &t->headers[i];
        if (h->p_type == PT_LOAD && address >= h->p_vaddr && address - h->p_vaddr < h->p_filesz &&
            h->p_offset <= UINT64_MAX - (address - h->p_vaddr)) {
            *ret = h->p_offset + (address - h->p_vaddr);
            return 0;
        }
    }
    return -ENOEXEC;
}

static int find_strings(const Elf64_Dyn *dynamic, size_t n, struct tables *t)
{
    uint64_t address = 0;
    for (size_t i = 0; i < n && dynamic[i].d_tag != DT_NULL; i++) {
        if (dynamic[i].d_tag == DT_STRTAB)
            address = dynamic[i].d_un.d_ptr;
        else if (dynamic[i].d_tag == DT_STRSZ)
            t->strings_size = dynamic[i].d_un.d_val;
    }
    return find_in_file(t, address, &t->strings_at);
}

static int read_name(const struct elf_source *file, const struct tables *t, uint64_t at,
                     char name[ELF_NAME_BYTES])
{
    if (at >= t->strings_size || t->strings_at > UINT64_MAX - at)
        return -ENOEXEC;
    uint64_t left = t->strings_size - at, offset = t->strings_at + at;
    if (offset > file->size)
        return -ENOEXEC;
    if (left > file->size - offset)
        left = file->size - offset;
    size_t n = left < ELF_NAME_BYTES - 1 ? (size_t)left : ELF_NAME_BYTES - 1;
    name[n] = '\0';
    return read_at(file, offset, name, n);
}

static int tell_names(const struct elf_source *file, const Elf64_Phdr *where, struct tables *t,
                      void (*on_name)(void *arg, const char *name), void *arg)
{
    Elf64_Dyn dynamic[ELF_MAX_DYNAMIC];
    char name[ELF_NAME_BYTES];
    size_t n = where->p_filesz / sizeof dynamic[0];
    n = n < ELF_MAX_DYNAMIC ? n : ELF_MAX_DYNAMIC;
    int rc = read_at(file, where->p_offset, dynamic, n * sizeof dynamic[0])
                 ?: find_strings(dynamic, n, t);
    for (size_t i = 0; rc == 0 && i < n && dynamic[i].d_tag != DT_NULL; i++) {
        if (dynamic[i].d_tag != DT_NEEDED)
            continue;
        rc = read_name(file, t, dynamic[i].d_un.d_val, name);
        if (rc == 0)
            on_name(arg, name);
    }
    return rc;
}

int elf_each_needed(const struct elf_source *file, void (*on_name)(void *arg, const char *name),
                    void *arg)
{
    struct tables t = {.n_headers = 0};
    int rc = read_headers(file, &t);
    for (size_t i = 0; rc == 0 && i < t.n_headers; i++)
        if (t.headers[i].p_type == PT_DYNAMIC)
            return tell_names(file, &t.headers[i], &t, on_name, arg);
    return rc;
}
