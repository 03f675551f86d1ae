/* image.h - what new processes shall be: path, arguments, environments, in one memfd.
 *
 * ddprun makes it, the spawner maps it and has argv and envp ready to hand to execve(): a mapping
 * and a pass over the pointers, no parsing, no heap. Workers that start together share one image,
 * and in it the strings that are the same. Both ends are the same binary, so the content is
 * trusted. Its size is bounded by execve() alone, which answers E2BIG. */
#ifndef DDP_LAUNCHER_SPAWNER_IMAGE_H
#define DDP_LAUNCHER_SPAWNER_IMAGE_H

#include "spawn.h"

#include <stddef.h>

struct co_error;
struct cpu_set;

struct image_words {  /* of one worker; the lists are NULL-terminated */
    const char *path; /* what execve() gets */
    char *const *argv;
    char *const *env;
    const struct cpu_set *cpus; /* the CPUs that it may run on; NULL: all of the spawner's */
};

/* workers  n of them, 1 to SPAWN_AT_ONCE. A string that has the same address and index as in
 *          the first worker's list is not copied again
 * ret_fd   owned by the caller; close-on-exec
 * returns  0, -ENOMEM, -errno (no memfd) */
int image_make(const struct image_words *workers, size_t n, int *ret_fd, struct co_error *err);

struct image {
    void *map;
    size_t map_bytes;
    size_t n_workers;
    struct {
        char *path;
        char **argv; /* argv[-1] is a free slot (see spawn.h) */
        char **env;
        const struct cpu_set *cpus; /* or NULL */
    } worker[SPAWN_AT_ONCE];
};

/* returns 0, -EPROTO (no image), -errno; fd may be closed afterwards */
int image_map(int fd, struct image *ret);
void image_unmap(struct image *image); /* a zeroed one is fine */

#endif
