#include "etcd_loader.h"

#include "common/error.h"
#include "etcd/etcd_plugin.h"

#include <ddp/env.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char file_name[] = "ddprun-etcd.so";

/* returns 0, -ENAMETOOLONG, -errno */
static int find_file(char path[PATH_MAX])
{
    const char *dir = getenv(DDP_ENV_PLUGIN_DIR);
    char own[PATH_MAX];
    int n;
    if (dir != NULL && *dir != '\0') {
        n = snprintf(path, PATH_MAX, "%s/%s", dir, file_name);
    } else {
        ssize_t len = readlink("/proc/self/exe", own, sizeof own - 1);
        if (len < 0)
            return -errno;
        own[len] = '\0';
        *strrchr(own, '/') = '\0';
        n = snprintf(path, PATH_MAX, "%s/%s/%s", own, DDPRUN_PLUGINS_FROM_PROGRAM, file_name);
    }
    return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int etcd_load(const struct etcd_plugin **ret, struct co_error *err)
{
    char path[PATH_MAX];
    int rc = find_file(path);
    if (rc < 0)
        return co_fail(err, -ELIBACC, "cannot tell where %s is: %s", file_name, strerror(-rc));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return co_fail(err, -ELIBACC,
                       "to meet by etcd needs a plug-in that cannot be loaded: %s: build ddprun "
                       "with libcurl and -Detcd=enabled, or use --rdzv-backend c10d",
                       dlerror());
    const struct etcd_plugin *plugin = dlsym(library, ETCD_PLUGIN_SYMBOL);
    if (plugin == NULL || plugin->version != ETCD_PLUGIN_VERSION) {
        dlclose(library);
        return co_fail(err, -ELIBBAD, "%s was made for another version of ddprun", path);
    }
    *ret = plugin;
    return 0;
}
