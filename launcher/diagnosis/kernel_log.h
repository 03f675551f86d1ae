/* kernel_log.h - what the kernel has logged since a job began: a GPU that fell off the bus, a disk
 * or a network file system that does not answer, a link that went down, a process that crashed.
 *
 * Messages about failures are kept: the level "warning" and worse, and others that name a process
 * that crashed, a GPU, or a link. The reader needs the permission to read /dev/kmsg, which
 * kernel.dmesg_restrict leaves to root. */
#ifndef DDP_LAUNCHER_DIAGNOSIS_KERNEL_LOG_H
#define DDP_LAUNCHER_DIAGNOSIS_KERNEL_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    KERNEL_LOG_LINES = 200,      /* the last ones are kept */
    KERNEL_LOG_TEXT_BYTES = 256, /* of a message; the rest is cut */
};

struct kernel_log { /* zeroed: nothing read yet */
    size_t n;       /* ever; the last of them are at their number modulo KERNEL_LOG_LINES */
    bool is_lossy;  /* the kernel has overwritten some before they were read */
    struct kernel_log_line {
        uint64_t us; /* since the kernel's start */
        char text[KERNEL_LOG_TEXT_BYTES];
    } lines[KERNEL_LOG_LINES];
};

/* --- Pure --- */

/* A record as /dev/kmsg has it: "4,812,1106524895,-;text", and lines that begin with a blank. Kept
 * if it is about a failure; what a process has written into the log is not. */
void kernel_log_add(struct kernel_log *log, const char *record, size_t n);

/* "[1106.524895] text", a line for each; nothing for an empty log. */
void kernel_log_print(const struct kernel_log *log, FILE *out);

/* --- The log --- */

/* root      put in front of /dev; "" except in tests
 * returns   a descriptor that has what is logged from now on; -errno */
int kernel_log_open(const char *root);

/* Read what was logged since the last call, some thousand records at most. */
void kernel_log_read(int fd, struct kernel_log *ret);

#endif
