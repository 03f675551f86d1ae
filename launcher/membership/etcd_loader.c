#include "etcd_loader.h"

#include "launcher/platform/plugin_path.h"

#include "rendezvous/etcd/etcd_plugin.h"

int etcd_load(const struct etcd_plugin **ret, struct co_error *err)
{
    static const struct plugin_kind kind = {
        .file_name = "ddprun-etcd.so",
        .symbol = ETCD_PLUGIN_SYMBOL,
        .version = ETCD_PLUGIN_VERSION,
        .failure = "cannot load the etcd plug-in",
        .remedy = "build ddprun with libcurl and -Detcd=enabled, or use --rdzv-backend c10d"};
    const void *plugin;
    int rc = plugin_load(&kind, &plugin, err);
    if (rc == 0)
        *ret = plugin;
    return rc;
}
