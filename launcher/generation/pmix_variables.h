/* pmix_variables.h - what Open MPI and libpmix find in the environment of the ranks. */
#ifndef DDP_LAUNCHER_GENERATION_PMIX_VARIABLES_H
#define DDP_LAUNCHER_GENERATION_PMIX_VARIABLES_H

#include "launcher/job/worker_env.h"

#include <stdbool.h>
#include <stddef.h>

struct co_error;

struct pmix_variables { /* zeroed: none */
    struct worker_variable of[WORKER_VARIABLES_MAX];
    size_t n;
    char **names; /* owned; of libpmix's variables: NULL-terminated */
    char numbers[2][12];
};

struct pmix_variables_opts {      /* texts are borrowed until pmix_variables_fini() */
    char *const *of_libpmix;      /* "NAME=VALUE", NULL-terminated */
    const char *shared_directory; /* for files that ranks map */
    const char *interface;        /* to other nodes; NULL: Open MPI chooses */
    int world_size, n_local;
    bool is_oversubscribed;
};

/* Replaces what was there. returns 0, -E2BIG, -ENOMEM */
int pmix_variables_fill(struct pmix_variables *v, const struct pmix_variables_opts *opts,
                        struct co_error *err);
void pmix_variables_fini(struct pmix_variables *v);

#endif
