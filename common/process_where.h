/* process_where.h - where in the kernel a process is, according to /proc: for a process that hangs.
 *
 * Like process.h it never waits for the process. How much /proc shows depends on the caller's
 * permissions: the kernel's stack is for root only, the system call for processes that may trace
 * this one. */
#ifndef DDP_COMMON_PROCESS_WHERE_H
#define DDP_COMMON_PROCESS_WHERE_H

#include "process.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CO_WHERE_KERNEL_BYTES 1024

struct co_process_where {
    char wchan[CO_PROCESS_NAME_BYTES];  /* the kernel's function in which it sleeps; "": none, or
                                         * not permitted */
    int syscall;                        /* its number; -1: in none, or not permitted */
    pid_t tracer;                       /* the process that traces it, such as a debugger; 0:
                                         * none */
    uint64_t caught;                    /* bit N - 1: it has a handler for signal N */
    char kernel[CO_WHERE_KERNEL_BYTES]; /* functions of the kernel's stack, the innermost first,
                                         * each ended by a newline; "": not permitted */
};

/* Of its first thread. What cannot be read is left empty. */
void co_process_where(pid_t pid, struct co_process_where *ret);

bool co_process_catches(const struct co_process_where *w, int sig);

/* "futex"; NULL: one that has no name here. */
const char *co_process_syscall_name(int number);

/* Is what it executes a Python interpreter? */
bool co_process_is_python(pid_t pid);

/* --- Pure: texts of /proc --- */

/* Of "syscall": "202 0x7f... ...", "running", "-1 0x... 0x...". returns the number, or -1 */
int co_process_parse_syscall(const char *text);

/* Of "status": TracerPid and SigCgt, left alone where they are missing. */
void co_process_parse_status(const char *text, pid_t *ret_tracer, uint64_t *ret_caught);

/* Of "stack": "[<0>] futex_wait+0x61/0x80" on each line. */
void co_process_parse_stack(const char *text, char kernel[CO_WHERE_KERNEL_BYTES]);

#endif
