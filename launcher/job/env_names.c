#include "env_names.h"

#include "common/parse.h"

#include <ddp/env.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *const known[] = {
    DDP_ENV_NODE_FD,
    DDP_ENV_GENERATION,
    DDP_ENV_WARM,
    DDP_ENV_NUMA_NODES,
    DDP_ENV_CHECKPOINT_FD,
    DDP_ENV_PROGRESS_FD,
    DDP_ENV_MEMORY_FD,
    DDP_ENV_STANDBY,
    DDP_ENV_CHECKPOINT_SIGNAL,
    DDP_ENV_PLUGIN_DIR,
    DDP_ENV_TOKEN,
    DDP_ENV_LIBRARY,
    DDP_ENV_JOB_ID,
    DDP_ENV_NODE_RANK,
    DDP_ENV_SOCKET_IFNAME,
    DDP_ENV_SOCKET_LANES,
    DDP_ENV_SEGMENT_BYTES,
    DDP_ENV_TIMEOUT,
    DDP_ENV_PROGRESS_THREAD,
    DDP_ENV_CMA,
    DDP_ENV_SIMD,
    DDP_ENV_BACKEND,
    DDP_ENV_NCCL_ABORT_TIMEOUT,
    DDP_ENV_TRACE,
    DDP_ENV_TUNING,
    DDP_ENV_WORKER_SERVER,
    DDP_ENV_MASTER_HOST,
    DDP_ENV_NODE_DIR,
    DDP_ENV_TERM,
    DDP_ENV_ENCRYPT,
    DDP_ENV_ENCRYPT_FD,
    DDP_ENV_ENCRYPT_KEY_FILE,
};

/* So many edits are not a misspelling: there are many words of four letters. */
static int too_many_edits(const char *name)
{
    return strlen(name) < sizeof "DDP_" + 4 ? 2 : 3;
}

const char *env_names_nearest(const char *variable)
{
    char name[64];
    const char *nearest = NULL;
    if (strncmp(variable, "DDP_", 4) != 0 || strcspn(variable, "=") >= sizeof name)
        return NULL;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(variable, "="), variable);
    int best = too_many_edits(name);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const int d = co_edit_distance(name, known[i], best);
        if (d == 0)
            return NULL;
        if (d < best) {
            best = d;
            nearest = known[i];
        }
    }
    return nearest;
}
