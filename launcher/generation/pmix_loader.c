#include "pmix_loader.h"

#include "launcher/platform/plugin_path.h"

#include "rendezvous/pmix/pmix_plugin.h"

int pmix_load(const struct pmix_plugin **ret, struct co_error *err)
{
    static const struct plugin_kind kind = {
        .file_name = "ddprun-pmix.so",
        .symbol = PMIX_PLUGIN_SYMBOL,
        .version = PMIX_PLUGIN_VERSION,
        .failure = "cannot load the PMIx plug-in, which Open MPI programs need",
        .remedy = "install ddprun-pmix and libpmix, build ddprun with -Dpmix=enabled, start the "
                  "program with "
                  "mpirun or srun, or use --mpi none"};
    const void *plugin;
    int rc = plugin_load(&kind, &plugin, err);
    if (rc == 0)
        *ret = plugin;
    return rc;
}
