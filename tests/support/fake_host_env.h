/* fake_host_env.h - a TEST DOUBLE of the world around a command line: an environment, files and
 * counts that the test defines. It touches no real file. test_resources.c and test_program.c test
 * the real functions. */
#ifndef DDP_TESTS_SUPPORT_FAKE_HOST_ENV_H
#define DDP_TESTS_SUPPORT_FAKE_HOST_ENV_H

#include "launcher/platform/host_env.h"

struct fake_file {
    const char *path; /* as callers pass it; NULL ends the list */
    enum file_kind kind;
};

struct fake_host_env {
    const char *const *env;        /* "NAME=VALUE", NULL-terminated */
    const struct fake_file *files; /* all files that exist */
    int n_gpus, n_cpus;
    const char *mpi;       /* a library that "program" was linked with, or NULL */
    const char *other_mpi; /* the same for "true" */
    const char *const
        *modules;          /* paths that patterns may match, NULL-terminated, or NULL. One whose
                                   name has "openmpi" in it was linked with libmpi.so.40, others
                                   with libmpi.so.12 */
    const char *own_name;  /* the name of this machine; NULL: "fake" */
    const char *host_file; /* the contents of a file called "hosts"; NULL: no such file */
    int random_error;      /* 0, or the -errno of a request for random bytes */
};

/* A node with Python in /usr/bin and a current directory full of examples: see fake_host_env.c. */
extern const struct fake_host_env fake_host_env_usual;

/* fake is borrowed. */
struct host_env fake_host_env_make(const struct fake_host_env *fake);

#endif
