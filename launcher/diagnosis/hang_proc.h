/* hang_proc.h - what the kernel says of a process that does not move. */
#ifndef DDP_LAUNCHER_DIAGNOSIS_HANG_PROC_H
#define DDP_LAUNCHER_DIAGNOSIS_HANG_PROC_H

#include "launcher/supervisor/hang.h"

#include <sys/types.h>

struct hang_proc {
    char state; /* as proc_pid_stat(5) has it: 'R', 'S', 'D', 'T', ...; '?': gone */
    char place[HANG_PLACE_BYTES]; /* the kernel's function in which its main thread sleeps; "" */
};

/* Never waits. What cannot be read is left out. */
void hang_proc_read(pid_t pid, struct hang_proc *ret);

/* Of the text of /proc/PID/stat. Pure. returns '?': it is none */
char hang_proc_state(const char *stat_text);

/* "sleeps in futex_wait", "is stopped", "runs". returns buf */
char *hang_proc_text(const struct hang_proc *p, char *buf, size_t n);

#endif
