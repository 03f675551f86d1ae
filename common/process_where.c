#include "process_where.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TEXT_BYTES = 8192 };

/* Those in which a process waits for something. */
static const struct {
    int number;
    const char *name;
} syscalls[] = {
    {SYS_accept, "accept"},
    {SYS_accept4, "accept4"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_connect, "connect"},
    {SYS_epoll_pwait, "epoll_pwait"},
#ifdef SYS_epoll_wait /* those that newer architectures never had */
    {SYS_epoll_wait, "epoll_wait"},
#endif
    {SYS_fdatasync, "fdatasync"},
    {SYS_flock, "flock"},
    {SYS_fsync, "fsync"},
    {SYS_futex, "futex"},
#ifdef SYS_futex_waitv /* and those that older headers do not have */
    {SYS_futex_waitv, "futex_waitv"},
#endif
    {SYS_ioctl, "ioctl"},
    {SYS_mmap, "mmap"},
    {SYS_munmap, "munmap"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_openat, "openat"},
#ifdef SYS_pause
    {SYS_pause, "pause"},
#endif
#ifdef SYS_poll
    {SYS_poll, "poll"},
#endif
    {SYS_ppoll, "ppoll"},
    {SYS_pread64, "pread64"},
    {SYS_pselect6, "pselect6"},
    {SYS_pwrite64, "pwrite64"},
    {SYS_read, "read"},
    {SYS_readv, "readv"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_restart_syscall, "restart_syscall"},
    {SYS_rt_sigsuspend, "rt_sigsuspend"},
    {SYS_rt_sigtimedwait, "rt_sigtimedwait"},
    {SYS_sched_yield, "sched_yield"},
#ifdef SYS_select
    {SYS_select, "select"},
#endif
    {SYS_sendmsg, "sendmsg"},
    {SYS_sendto, "sendto"},
    {SYS_wait4, "wait4"},
    {SYS_waitid, "waitid"},
    {SYS_write, "write"},
    {SYS_writev, "writev"},
};

const char *co_process_syscall_name(int number)
{
    for (size_t i = 0; i < sizeof syscalls / sizeof *syscalls; i++)
        if (syscalls[i].number == number)
            return syscalls[i].name;
    return NULL;
}

int co_process_parse_syscall(const char *text)
{
    int number;
    return sscanf(text, "%d ", &number) == 1 && number >= 0 ? number : -1;
}

void co_process_parse_status(const char *text, pid_t *ret_tracer, uint64_t *ret_caught)
{
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (sscanf(line, "TracerPid: %d", ret_tracer) != 1)
            sscanf(line, "SigCgt: %" SCNx64, ret_caught);
    }
}

void co_process_parse_stack(const char *text, char kernel[CO_WHERE_KERNEL_BYTES])
{
    size_t used = 0;
    kernel[0] = '\0';
    for (const char *line = text; *line != '\0'; line += *line == '\n') {
        const char *end = line + strcspn(line, "\n");
        const char *name = memchr(line, ']', (size_t)(end - line));
        if (name != NULL) {
            name += 1 + strspn(name + 1, " ");
            size_t n = strcspn(name, "+\n ");
            if (n > 0 && n < CO_WHERE_KERNEL_BYTES - 2 - used)
                used += (size_t)snprintf(kernel + used, CO_WHERE_KERNEL_BYTES - used, "%.*s\n",
                                         (int)n, name);
        }
        line = end;
    }
}

bool co_process_catches(const struct co_process_where *w, int sig)
{
    return sig > 0 && sig <= 64 && (w->caught >> (sig - 1) & 1) != 0;
}

bool co_process_is_python(pid_t pid)
{
    char path[64], target[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0)
        return false;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    return strncmp(slash != NULL ? slash + 1 : target, "python", 6) == 0;
}

void co_process_where(pid_t pid, struct co_process_where *ret)
{
    char text[TEXT_BYTES];
    *ret = (struct co_process_where){.syscall = -1};
    if (co_process_read(pid, "wchan", ret->wchan, sizeof ret->wchan) < 0 ||
        strcmp(ret->wchan, "0") == 0)
        ret->wchan[0] = '\0';
    if (co_process_read(pid, "syscall", text, sizeof text) > 0)
        ret->syscall = co_process_parse_syscall(text);
    if (co_process_read(pid, "status", text, sizeof text) > 0)
        co_process_parse_status(text, &ret->tracer, &ret->caught);
    if (co_process_read(pid, "stack", text, sizeof text) > 0)
        co_process_parse_stack(text, ret->kernel);
}
