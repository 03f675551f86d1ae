/* image.h - what a new process shall be: path, arguments, environment, in one memfd.
 *
 * ddprun makes it, the nursery maps it and has argv and envp ready to hand to execve(): a mapping
 * and a pass over the pointers, no parsing, no heap. Both ends are the same binary, so the content
 * is trusted. Its size is bounded by execve() alone, which answers E2BIG. */
#ifndef DDP_LAUNCHER_IMAGE_H
#define DDP_LAUNCHER_IMAGE_H

#include <stddef.h>

struct co_error;

/* path    what execve() gets
 * argv, env   NULL-terminated
 * ret_fd  owned by the caller; close-on-exec
 * returns 0, -ENOMEM, -errno (no memfd) */
int image_make(const char *path, char *const *argv, char *const *env, int *ret_fd,
               struct co_error *err);

struct image {
    void *map;
    size_t map_bytes;
    char *path;
    char **argv; /* argv[-1] is a free slot: room for "/bin/sh" in front (see spawn.c) */
    char **env;
};

/* returns 0, -errno; fd may be closed afterwards */
int image_map(int fd, struct image *ret);
void image_unmap(struct image *image); /* a zeroed one is fine */

#endif
