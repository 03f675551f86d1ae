/* warm_archive.h - the modules of launcher/warm in a zip file, as Python imports them. Made by the
 * build (launcher/warm/python/pack.py). */
#ifndef DDP_LAUNCHER_WARM_WARM_ARCHIVE_H
#define DDP_LAUNCHER_WARM_WARM_ARCHIVE_H

#include <stddef.h>

extern const unsigned char warm_archive[];
extern const size_t warm_archive_bytes;

#endif
