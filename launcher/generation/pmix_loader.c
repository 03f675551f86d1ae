#include "pmix_loader.h"

#include "launcher/platform/linkage.h"
#include "launcher/platform/plugin_path.h"

#include "common/error.h"
#include "rendezvous/pmix/pmix_plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

static const char file_name[] = "ddprun-pmix.so";

int pmix_load(const struct pmix_plugin **ret, struct co_error *err)
{
    char path[PATH_MAX];
    struct co_error why;
    void *library;
    int rc = plugin_path_find(file_name, path);
    if (rc < 0)
        return co_fail(err, -ELIBACC, "cannot locate %s: %s", file_name, strerror(-rc));
    if (linkage_load(path, &library, &why) < 0)
        return co_fail(
            err, -ELIBACC,
            "cannot load the PMIx plug-in, which Open MPI programs need: %s; install "
            "ddprun-pmix and libpmix, build ddprun with -Dpmix=enabled, start the program with "
            "mpirun or srun, or use --mpi none",
            why.text);
    const struct pmix_plugin *plugin = dlsym(library, PMIX_PLUGIN_SYMBOL);
    if (plugin == NULL || plugin->version != PMIX_PLUGIN_VERSION) {
        dlclose(library);
        return co_fail(err, -ELIBBAD,
                       "%s belongs to another version of ddprun; install both from the same build",
                       path);
    }
    *ret = plugin;
    return 0;
}
