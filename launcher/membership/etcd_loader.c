#include "etcd_loader.h"

#include "launcher/platform/linkage.h"
#include "launcher/platform/plugin_path.h"

#include "common/error.h"
#include "rendezvous/etcd/etcd_plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

static const char file_name[] = "ddprun-etcd.so";

int etcd_load(const struct etcd_plugin **ret, struct co_error *err)
{
    char path[PATH_MAX];
    struct co_error why;
    void *library;
    int rc = plugin_path_find(file_name, path);
    if (rc < 0)
        return co_fail(err, -ELIBACC, "cannot locate %s: %s", file_name, strerror(-rc));
    if (linkage_load(path, &library, &why) < 0)
        return co_fail(err, -ELIBACC,
                       "cannot load the etcd plug-in: %s; build ddprun with libcurl and "
                       "-Detcd=enabled, or use --rdzv-backend c10d",
                       why.text);
    const struct etcd_plugin *plugin = dlsym(library, ETCD_PLUGIN_SYMBOL);
    if (plugin == NULL || plugin->version != ETCD_PLUGIN_VERSION) {
        dlclose(library);
        return co_fail(err, -ELIBBAD,
                       "%s belongs to another version of ddprun; install both from the same build",
                       path);
    }
    *ret = plugin;
    return 0;
}
