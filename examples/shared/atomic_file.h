/* atomic_file.h - a file that is there whole or not at all, whatever happens while it is written.
 *
 * It is written under another name in the same directory, brought to the disk, then renamed. */
#ifndef DDP_EXAMPLES_SHARED_ATOMIC_FILE_H
#define DDP_EXAMPLES_SHARED_ATOMIC_FILE_H

#include <stddef.h>

struct failure;

enum { ATOMIC_FILE_MAX_PATH = 4096 };

struct atomic_file {
    char path[ATOMIC_FILE_MAX_PATH];
    char temporary[ATOMIC_FILE_MAX_PATH + 32];
    int fd; /* -1 when closed */
};

/* Begin to write the file at `path`.
 * returns   0, or -1 with the reason in `why` */
int atomic_file_open(struct atomic_file *f, const char *path, struct failure *why);

/* Append. returns as above */
int atomic_file_write(struct atomic_file *f, const void *bytes, size_t n, struct failure *why);

/* Give the file its name. Closes it in any case; what was written is removed when this fails. */
int atomic_file_commit(struct atomic_file *f, struct failure *why);

/* Close and remove what is not committed. Fine at any time after open, however that ended. */
void atomic_file_discard(struct atomic_file *f);

#endif
