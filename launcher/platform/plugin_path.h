/* plugin_path.h - where those files of ddprun are that are not programs of the system: plug-ins,
 * and the program that it sends to other hosts. */
#ifndef DDP_LAUNCHER_PLATFORM_PLUGIN_PATH_H
#define DDP_LAUNCHER_PLATFORM_PLUGIN_PATH_H

#include <limits.h>

/* In $DDP_PLUGIN_DIR, if that is set; else where they were installed, as seen from this program, so
 * that a tree may be moved. Whether there is such a file is not looked at.
 *
 * returns   0, -ENAMETOOLONG, -errno */
int plugin_path_find(const char *file_name, char ret_path[PATH_MAX]);

#endif
