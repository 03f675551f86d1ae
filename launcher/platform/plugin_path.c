#include "plugin_path.h"

#include "common/error.h"
#include "linkage.h"

#include <ddp/env.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int plugin_path_find(const char *file_name, char ret_path[PATH_MAX])
{
    const char *dir = getenv(DDP_ENV_PLUGIN_DIR);
    char own[PATH_MAX];
    int n;
    if (dir != NULL && *dir != '\0') {
        n = snprintf(ret_path, PATH_MAX, "%s/%s", dir, file_name);
    } else {
        ssize_t len = readlink("/proc/self/exe", own, sizeof own - 1);
        if (len < 0)
            return -errno;
        own[len] = '\0';
        *strrchr(own, '/') = '\0';
        n = snprintf(ret_path, PATH_MAX, "%s/%s/%s", own, DDPRUN_PLUGINS_FROM_PROGRAM, file_name);
    }
    return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int plugin_load(const struct plugin_kind *kind, const void **ret, struct co_error *err)
{
    char path[PATH_MAX];
    struct co_error why;
    void *library;
    int rc = plugin_path_find(kind->file_name, path);
    if (rc < 0)
        return co_fail(err, -ELIBACC, "cannot locate %s: %s", kind->file_name, strerror(-rc));
    if (linkage_load(path, &library, &why) < 0)
        return co_fail(err, -ELIBACC, "%s: %s; %s", kind->failure, why.text, kind->remedy);
    const uint32_t *plugin = dlsym(library, kind->symbol);
    if (plugin == NULL || *plugin != kind->version) {
        dlclose(library);
        return co_fail(err, -ELIBBAD,
                       "%s belongs to another version of ddprun; install both from the same build",
                       path);
    }
    *ret = plugin;
    return 0;
}
