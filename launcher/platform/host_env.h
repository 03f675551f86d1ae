/* host_env.h - what the command line's meaning depends on besides itself: the environment, files,
 * and how many CPUs and GPUs there are. Reached through function pointers, so that tests can
 * replace all of it. */
#ifndef DDP_LAUNCHER_PLATFORM_HOST_ENV_H
#define DDP_LAUNCHER_PLATFORM_HOST_ENV_H

#include <stddef.h>
#include <stdint.h>

struct co_error;
struct node_assignment;
struct pmi_bootstrap;
struct pmi_place;

enum file_kind {
    FILE_MISSING,    /* or its directory may not be searched */
    FILE_EXECUTABLE, /* a regular file that we may execute */
    FILE_TEXT,       /* a regular file that we may not execute, without a NUL byte near its start */
    FILE_SCRIPT,     /* the same, and its '#!' line names an interpreter that is not Python */
    FILE_BINARY,     /* the same with a NUL byte */
    FILE_PYTHON_APP, /* what only Python runs: a directory with a __main__.py, a zip archive, or a
                        zip archive after a '#!' line of Python that we may not execute */
    FILE_UNREADABLE, /* a regular file that we may neither execute nor read */
    FILE_DIRECTORY,
    FILE_SPECIAL /* a device, a pipe, a socket */
};

struct host_env {
    const char *(*get_env)(void *arg, const char *name);
    int (*n_gpus)(void *arg);         /* GPUs of this node, CUDA_VISIBLE_DEVICES respected */
    int (*n_cpus)(void *arg);         /* in our affinity mask, >= 1; cheap */
    int (*n_allowed_cpus)(void *arg); /* as many of these as the cgroup's quota allows, >= 1 */
    enum file_kind (*look_at)(void *arg, const char *path); /* links are followed */
    /* A whole file, up to max bytes, and one more if it is longer. text is owned by the caller.
     * returns 0, -errno */
    int (*read_file)(void *arg, const char *path, size_t max, char **ret_text, size_t *ret_len);
    /* The libraries that the program at this path was linked with; none for a file that is not a
     * program. */
    void (*each_library)(void *arg, const char *path,
                         void (*on_name)(void *on_arg, const char *name), void *on_arg);
    /* The paths that match a pattern of glob(7), sorted. */
    void (*each_match)(void *arg, const char *pattern,
                       void (*on_path)(void *on_arg, const char *path), void *on_arg);
    void (*own_name)(void *arg, char *name, size_t n); /* this machine's, with its domain if there
                                                          is one; a name may be looked up */
    int (*enter)(void *arg, const char *dir);          /* paths are relative to it from then on;
                                                             returns 0, -errno */
    int (*fill_random)(void *arg, void *bytes, size_t n); /* n <= 256; returns 0 or -errno */
    /* Rendezvous with the other nodes by PMI (pmi_bootstrap.h). NULL: not available. */
    int (*meet_by_pmi)(const struct pmi_place *place, struct pmi_bootstrap *ret,
                       struct co_error *err);
    const struct node_assignment
        *assignment; /* borrowed; the place that the launching ddprun assigned; NULL: none */
    void *arg;
};

extern const struct host_env host_env_real;

/* A variable with a value. NULL: it is not set, or empty, which means the same. */
static inline const char *host_env_get(const struct host_env *w, const char *name)
{
    const char *value = w->get_env(w->arg, name);
    return value != NULL && *value != '\0' ? value : NULL;
}

/* --- the libraries of a program --- */

/* The shared libraries that a program was linked with. Pure: the file's bytes come from the caller.
 *
 * Reads what the dynamic linker would: the program headers, the dynamic section, its strings. Only
 * programs of 64-bit, little-endian machines are understood: those that ddprun itself runs on. */

enum {
    ELF_NAME_BYTES = 128,   /* of a library; longer ones are cut */
    ELF_MAX_HEADERS = 64,   /* program headers that are looked at */
    ELF_MAX_DYNAMIC = 1024, /* entries of the dynamic section */
};

struct elf_source {
    /* n bytes at this offset, all of them: returns 0; -EIO: there are not so many */
    int (*read_at)(void *arg, uint64_t offset, void *to, size_t n);
    uint64_t size; /* bytes of the file */
    void *arg;
};

/* Call on_name for each library, in order.
 *
 * returns   0 (also without libraries: a static program)
 *           -ENOEXEC   no such program, or one that contradicts itself */
int elf_each_needed(const struct elf_source *file, void (*on_name)(void *arg, const char *name),
                    void *arg);

#endif
