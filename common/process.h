/* process.h - what the kernel reports about a process, /proc/PID.
 *
 * None of these calls waits for the process, whatever state it is in: files that need its memory
 * (cmdline, environ, maps) are not read. */
#ifndef DDP_COMMON_PROCESS_H
#define DDP_COMMON_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct co_error;

#define CO_PROCESS_NAME_BYTES 65 /* for its name, or that of a kernel function */

struct co_process {
    char state;                       /* R runs, S sleeps, D in the kernel, T stopped, t traced,
                                         Z ended, ... */
    char name[CO_PROCESS_NAME_BYTES]; /* as in its file, or as it set it itself */
    pid_t parent;
    uint64_t cpu_ms;      /* it and the children it has waited for, user and system */
    uint64_t start_ticks; /* since boot: distinguishes it from another process with the same pid */
    uint64_t rss_bytes;
    int n_threads;
    bool is_ending;  /* its first thread runs no code of the program any more; its memory and its
                        files may be there for long, and it cannot be waited for yet */
    int exit_status; /* is_ending: what waitpid() will report; 0 also without the permission to read
                      * it */
};

/* Read the line of /proc/PID/stat. The name in it may hold anything, blanks and brackets too.
 *
 * ticks_per_s   of the times in it
 * returns       0, -EINVAL */
int co_process_parse(const char *line, size_t len, long ticks_per_s, size_t page_bytes,
                     struct co_process *ret);

/* returns   0; -ESRCH no such process; -errno; the text names the file */
int co_process_look(pid_t pid, struct co_process *ret, struct co_error *err);

/* Was it killed, or does it end, and does a thread of it run for that, or want to? So it is while
 * the kernel frees its memory, however long that takes; what hangs in the kernel does not run.
 *
 * returns   false also if it has ended */
bool co_process_tears_down(pid_t pid);

/* Read a small file of /proc, up to its end or to n - 1 bytes; a NUL follows them.
 *
 * name      "wchan"
 * returns   how many, or -errno */
ssize_t co_process_read(pid_t pid, const char *name, char *buf, size_t n);

#endif
