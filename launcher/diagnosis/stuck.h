/* stuck.h - a process that SIGKILL does not end: where in the kernel it waits, and for which file.
 *
 * Reads only what the kernel shows without waiting for the process: not its memory, whose lock it
 * may hold. */
#ifndef DDP_LAUNCHER_DIAGNOSIS_STUCK_H
#define DDP_LAUNCHER_DIAGNOSIS_STUCK_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { STUCK_MOUNT_BYTES = 256, STUCK_TEXT_BYTES = 1024 };

/* Describe a process: "sleeps in percpu_rwsem_wait and cannot be woken, system call write, on
 * /data/log (/data, ext4 of /dev/loop0)"; as much of it as is known.
 *
 * parents   it is a child of one of these: else another process has the pid by now
 * returns   whether it is still there */
bool stuck_describe(pid_t pid, const pid_t parents[2], char ret[STUCK_TEXT_BYTES]);

/* --- Pure: texts of /proc --- */

/* Of "syscall", for a call whose first argument is a descriptor: that; -1: another one */
int stuck_parse_fd(const char *text);

/* Of "mountinfo": the mount of a path, as "/data, ext4 of /dev/loop0"; "": not found. */
void stuck_find_mount(const char *mountinfo, const char *path, char ret[STUCK_MOUNT_BYTES]);

#endif
