/* A table of DDP_TUNING. */
#include "fuzz.h"
#include "worker-runtime/shm/cpu_tuning.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cpu_tunings t;
    if (cpu_tuning_parse((const char *)data, size, &t, NULL) != 0)
        return 0;
    if (t.n_rows < 1 || t.n_rows > CPU_TUNING_MAX_ROWS || !cost_network_is_valid(&t.network))
        abort();
    for (unsigned n = 1; n <= CPU_TUNING_MOST_RANKS; n++) {
        const struct cpu_tuning *c = cpu_tuning_for(&t, n);
        if (c->piece_bytes < CPU_TUNING_LEAST_PIECE || c->piece_bytes > CPU_TUNING_MOST_PIECE)
            abort();
    }
    for (unsigned i = 1; i < t.n_rows; i++)
        if (t.row[i].n_ranks <= t.row[i - 1].n_ranks)
            abort();
    return 0;
}
