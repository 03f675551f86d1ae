/* fake_host_env.h - a TEST DOUBLE of the world around a command line: an environment, files and
 * counts that are written down in the test. It touches no real file. What the real ones do is
 * tested by test_resources.c and test_program.c. */
#ifndef DDP_TESTS_SUPPORT_FAKE_HOST_ENV_H
#define DDP_TESTS_SUPPORT_FAKE_HOST_ENV_H

#include "launcher/platform/host_env.h"

struct fake_file {
    const char *path; /* as it is asked for; NULL ends the list */
    enum file_kind kind;
};

struct fake_host_env {
    const char *const *env;        /* "NAME=VALUE", NULL-terminated */
    const struct fake_file *files; /* all that exist */
    int n_gpus, n_cpus;
    const char *mpi;       /* a library that "program" was linked with; NULL: none */
    const char *own_name;  /* of this machine; NULL: "fake" */
    const char *host_file; /* what a file called "hosts" holds; NULL: there is none */
    int random_error;      /* 0, or the -errno that getting random bytes ends with */
};

/* A node with Python in /usr/bin and a current directory full of examples: see fake_host_env.c. */
extern const struct fake_host_env fake_host_env_usual;

/* fake is borrowed. */
struct host_env fake_host_env_make(const struct fake_host_env *fake);

#endif
