#include "plugin_path.h"

#include <ddp/env.h>
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
