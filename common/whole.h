/* whole.h - files that others read while we write them: they find all of it, or what was there
 * before.
 *
 *     co_write_whole("/run/job/report.json", text, strlen(text), &err);
 *
 * A draft in the same directory replaces the file by rename(2). A device or a pipe is never
 * replaced, but written to: "/dev/stdout" is as good a name as any other. */
#ifndef DDP_COMMON_WHOLE_H
#define DDP_COMMON_WHOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct co_error;

/* Whether rename(2) may put a file there: no file has that name, or a regular file does, except a
 * link in /dev. The answer is yes for a name that cannot be examined; rename(2) will then report
 * why it fails. */
bool co_may_replace(const char *path);

/* Write `n` bytes as the file `path`; mode 0666 less the umask. Not synced to the disk.
 * returns 0, or -errno with a text that names the file; what was there is untouched then, and no
 * draft is left */
int co_write_whole(const char *path, const void *bytes, size_t n, struct co_error *err);

/* Write all of n bytes to a descriptor that may take them one after the other. returns 0, -errno */
int co_write_all(int fd, const void *bytes, size_t n);

/* Read up to `max` bytes, fewer only at the end of the file. returns how many; -errno */
ssize_t co_read_all(int fd, void *to, size_t max);

/* Drop what has come on a socket, without waiting: 16 KiB at most, so that no peer can keep the
 * caller here. returns whether the connection is still open, as far as that was read */
bool co_drain_socket(int fd);

#endif
