/* pmix_priv.h - the plug-in's inside: what its files share. */
#ifndef DDP_RENDEZVOUS_PMIX_PMIX_PRIV_H
#define DDP_RENDEZVOUS_PMIX_PMIX_PRIV_H

#include "pmix_names.h"
#include "pmix_plugin.h"

#include <pmix.h>
#include <pmix_server.h>
#include <pthread.h>

struct pmix_priv_fence {
    struct pmix_plugin_fence lent;
    uint8_t *bytes; /* owned */
    bool is_taken;
    pmix_modex_cbfunc_t on_done; /* of libpmix, with arg */
    void *arg;
    struct pmix_priv_fence *next;
};

/* A call of PMIx_Abort() that waits. */
struct pmix_priv_abort {
    pmix_op_cbfunc_t on_done; /* of libpmix, with arg */
    void *arg;
    struct pmix_priv_abort *next;
};

/* The lock guards what libpmix's threads write: `ranks`, `fences`, `aborts` and their numbers. It
 * is never held while libpmix is called, which may wait for one of those threads. */
struct pmix_plugin_server {
    char version[PMIX_NAMES_VERSION_BYTES];
    int event_fd;
    char **variables; /* owned by libpmix's allocator: PMIX_ARGV_FREE() */
    pthread_mutex_t lock;
    bool has_job;
    pmix_nspace_t nspace;
    uint32_t first_rank, n_local;
    struct pmix_plugin_rank *ranks; /* owned; n_local */
    struct pmix_priv_fence *fences;
    uint32_t n_fences;
    uint64_t last_fence;
    struct pmix_priv_abort *aborts;
    bool answers_aborts; /* at once */
};

/* --- pmix_upcalls.c --- */

/* What libpmix calls. */
pmix_server_module_t *pmix_upcalls_module(struct pmix_plugin_server *s);

/* --- pmix_keys.c --- */

struct pmix_keys {
    pmix_info_t *of; /* libpmix's own allocation: pmix_keys_fini() */
    size_t n, n_max;
};

/* What libpmix and the ranks learn about a generation. returns 0, -ENOMEM, -EIO */
int pmix_keys_fill(struct pmix_keys *k, const struct pmix_plugin_job *job, struct co_error *err);
void pmix_keys_fini(struct pmix_keys *k);

#endif
