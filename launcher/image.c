#include "image.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* The memfd: this head, then slots of a pointer's size, then the strings. A slot holds the offset
 * of its string, 0 for NULL; mapping turns offsets into pointers. Slots: a free one, argv, env. */
struct image_head {
    size_t n_slots;
    size_t env_slot; /* where env starts */
    size_t path_offset;
};

static size_t count(char *const *strings)
{
    size_t n = 0;
    while (strings[n] != NULL)
        n++;
    return n;
}

static size_t put_string(char *base, size_t at, const char *text)
{
    size_t n = strlen(text) + 1;
    memcpy(base + at, text, n);
    return at + n;
}

int image_make(const char *path, char *const *argv, char *const *env, int *ret_fd,
               struct co_error *err)
{
    size_t n_argv = count(argv);
    size_t n_env = count(env);
    struct image_head head = {.n_slots = 1 + n_argv + 1 + n_env + 1, .env_slot = 1 + n_argv + 1};

    size_t bytes = sizeof head + head.n_slots * sizeof(uintptr_t) + strlen(path) + 1;
    for (size_t i = 0; i < n_argv; i++)
        bytes += strlen(argv[i]) + 1;
    for (size_t i = 0; i < n_env; i++)
        bytes += strlen(env[i]) + 1;

    co_autofree char *base = calloc(1, bytes);
    if (base == NULL)
        return co_fail(err, -ENOMEM, "no memory for the arguments of '%s'", path);
    uintptr_t *slots = (uintptr_t *)(base + sizeof head);
    size_t at = sizeof head + head.n_slots * sizeof *slots;
    head.path_offset = at;
    at = put_string(base, at, path);
    for (size_t i = 0; i < n_argv; i++) {
        slots[1 + i] = at;
        at = put_string(base, at, argv[i]);
    }
    for (size_t i = 0; i < n_env; i++) {
        slots[head.env_slot + i] = at;
        at = put_string(base, at, env[i]);
    }
    memcpy(base, &head, sizeof head);

    co_autoclose_fd int fd = memfd_create("ddprun-image", MFD_CLOEXEC);
    if (fd < 0)
        return co_fail(err, -errno, "cannot make a memory file: %s", strerror(errno));
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, base + done, bytes - done);
        if (n < 0)
            return co_fail(err, -errno, "cannot write the arguments of '%s' to memory: %s", path,
                           strerror(errno));
        done += (size_t)n;
    }
    *ret_fd = co_take_fd(&fd);
    return 0;
}

int image_map(int fd, struct image *ret)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    size_t bytes = (size_t)st.st_size;
    if (bytes < sizeof(struct image_head))
        return -EPROTO;
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    const struct image_head *head = (const void *)base;
    uintptr_t *slots = (uintptr_t *)(base + sizeof *head);
    for (size_t i = 0; i < head->n_slots; i++) {
        if (slots[i] != 0)
            slots[i] += (uintptr_t)base;
    }
    *ret = (struct image){
        .map = base,
        .map_bytes = bytes,
        .path = base + head->path_offset,
        .argv = (char **)slots + 1,
        .env = (char **)slots + head->env_slot,
    };
    return 0;
}

void image_unmap(struct image *image)
{
    if (image->map != NULL)
        munmap(image->map, image->map_bytes);
    *image = (struct image){0};
}
