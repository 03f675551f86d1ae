/* plugin_path.h - where those files of ddprun are that are not programs of the system: plug-ins,
 * and the program that it sends to other hosts. */
#ifndef DDP_LAUNCHER_PLATFORM_PLUGIN_PATH_H
#define DDP_LAUNCHER_PLATFORM_PLUGIN_PATH_H

#include <limits.h>
#include <stdint.h>

struct co_error;

/* In $DDP_PLUGIN_DIR, if that is set; else where they were installed, as seen from this program, so
 * that a tree may be moved. Whether there is such a file is not looked at.
 *
 * returns   0, -ENAMETOOLONG, -errno */
int plugin_path_find(const char *file_name, char ret_path[PATH_MAX]);

struct plugin_kind {
    const char *file_name;
    const char *symbol; /* of the plug-in's structure, which begins with its version, a uint32_t */
    uint32_t version;
    const char *failure, *remedy; /* "cannot load the etcd plug-in", "build ddprun with ..." */
};

/* Load a plug-in; it stays loaded.
 *
 * ret       the structure
 * returns   0
 *           -ELIBACC   it is missing, or a library that it needs is
 *           -ELIBBAD   it belongs to another version of ddprun */
int plugin_load(const struct plugin_kind *kind, const void **ret, struct co_error *err);

#endif
