/* disk.h - errors of a disk on which later writes may succeed. */
#ifndef DDP_LAUNCHER_STDIO_DISK_H
#define DDP_LAUNCHER_STDIO_DISK_H

#include <errno.h>
#include <stdbool.h>

static inline bool disk_may_recover(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EIO;
}

#endif
