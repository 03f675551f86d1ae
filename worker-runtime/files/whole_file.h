/* whole_file.h - a file that appears whole or not at all: written under another name in the same
 * directory, synced to the disk, renamed, and the directory synced. The file that had the name
 * before stays until then. */
#ifndef DDP_WORKER_RUNTIME_FILES_WHOLE_FILE_H
#define DDP_WORKER_RUNTIME_FILES_WHOLE_FILE_H

#include <stddef.h>
#include <stdint.h>

struct co_error;

enum { WHOLE_FILE_MAX_PATH = 4096 };

/* The other name is PATH, this, the process's number, a dot and a count. */
#define WHOLE_FILE_TEMPORARY ".tmp-"

/* Detects accidental changes of bytes: FNV-1a by words of 8 bytes, the last one filled with zeros,
 * then their number. */
struct whole_digest {
    uint64_t hash, word, n_bytes; /* word: of the bytes after the last whole one */
};
void whole_digest_init(struct whole_digest *d);
void whole_digest_add(struct whole_digest *d, const void *bytes, size_t n);
uint64_t whole_digest_end(const struct whole_digest *d);

struct whole_file {
    char path[WHOLE_FILE_MAX_PATH], temporary[WHOLE_FILE_MAX_PATH + 48];
    int fd;                     /* -1: closed */
    struct whole_digest digest; /* of what was written so far */
};

/* Begin to write the file at `path`.
 * returns   0, -EINVAL (no path, or too long a one), -errno */
int whole_file_open(struct whole_file *f, const char *path, struct co_error *err);
/* Append. returns 0, -errno: -ENOSPC, for instance */
int whole_file_write(struct whole_file *f, const void *bytes, size_t n, struct co_error *err);
/* Sync to the disk what was written: failures for lack of space have happened after that.
 * returns   0, -errno */
int whole_file_sync(struct whole_file *f, struct co_error *err);
/* Give the file its name. Closed in any case; when this fails, what was written is removed. */
int whole_file_commit(struct whole_file *f, struct co_error *err);
/* Close and remove what is not committed. Fine at any time after open, however that ended. */
void whole_file_discard(struct whole_file *f);

/* Bring the names in the directory of `path` to the disk. Some file systems cannot; then nothing is
 * done. */
void whole_file_sync_directory(const char *path);

#endif
