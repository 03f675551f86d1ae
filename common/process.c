#include "process.h"

#include "error.h"
#include "scope.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STAT_BYTES = 1024, STATUS_BYTES = 4096 };
enum { STATE_FIELD = 3, EXIT_CODE_FIELD = 52 }; /* of proc_pid_stat(5) */
enum { PF_EXITING = 4 };                        /* of the kernel's flags of a thread */

/* The name is the text between the first bracket and the last one.
 * returns what follows it, NULL: it has no name */
static const char *take_name(const char *line, char name[CO_PROCESS_NAME_BYTES])
{
    const char *open = strchr(line, '(');
    const char *close = strrchr(line, ')');
    if (open == NULL || close == NULL || close < open)
        return NULL;
    size_t n = (size_t)(close - open - 1);
    if (n >= CO_PROCESS_NAME_BYTES)
        n = CO_PROCESS_NAME_BYTES - 1;
    memcpy(name, open + 1, n);
    name[n] = '\0';
    return close + 1;
}

/* The last field that we know; Linux before 3.5 has fewer.
 *
 * rest   of the line, from the blank before the third field on */
static int exit_status_of(const char *rest)
{
    for (int field = STATE_FIELD; field < EXIT_CODE_FIELD && rest != NULL; field++)
        rest = strchr(rest + 1, ' ');
    return rest != NULL ? (int)strtol(rest, NULL, 10) : 0;
}

int co_process_parse(const char *line, size_t len, long ticks_per_s, size_t page_bytes,
                     struct co_process *ret)
{
    char text[STAT_BYTES];
    struct co_process p = {0};
    uint64_t user, system, rss;
    unsigned flags;
    int64_t user_of_children, system_of_children;
    if (len >= sizeof text || memchr(line, '\0', len) != NULL || ticks_per_s <= 0)
        return -EINVAL;
    memcpy(text, line, len);
    text[len] = '\0';
    const char *rest = take_name(text, p.name);
    if (rest == NULL)
        return -EINVAL;
    /* proc(5): the fields from the third on */
    int n = sscanf(rest,
                   " %c %d %*d %*d %*d %*d %u %*u %*u %*u %*u %" SCNu64 " %" SCNu64 " %" SCNd64
                   " %" SCNd64 " %*d %*d %d %*d %" SCNu64 " %*u %" SCNu64,
                   &p.state, &p.parent, &flags, &user, &system, &user_of_children,
                   &system_of_children, &p.n_threads, &p.start_ticks, &rss);
    if (n != 10)
        return -EINVAL;
    if (user_of_children > 0)
        user += (uint64_t)user_of_children;
    if (system_of_children > 0)
        system += (uint64_t)system_of_children;
    p.cpu_ms = (user + system) * 1000 / (uint64_t)ticks_per_s;
    p.rss_bytes = rss * page_bytes;
    p.is_ending = (flags & PF_EXITING) != 0;
    p.exit_status = p.is_ending ? exit_status_of(rest) : 0;
    *ret = p;
    return 0;
}

ssize_t co_process_read(pid_t pid, const char *name, char *buf, size_t n)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    size_t len = 0;
    ssize_t more;
    while (len < n - 1 && (more = read(fd, buf + len, n - 1 - len)) > 0)
        len += (size_t)more;
    if (len < n - 1 && more < 0)
        return -errno;
    buf[len] = '\0';
    return (ssize_t)len;
}

int co_process_look(pid_t pid, struct co_process *ret, struct co_error *err)
{
    char line[STAT_BYTES];
    ssize_t n = co_process_read(pid, "stat", line, sizeof line);
    if (n == -ENOENT || n == -ESRCH)
        return co_fail(err, -ESRCH, "no such process: %d", pid);
    if (n < 0)
        return co_fail(err, (int)n, "cannot read /proc/%d/stat: %s", pid, strerror((int)-n));
    if (co_process_parse(line, (size_t)n, sysconf(_SC_CLK_TCK), (size_t)sysconf(_SC_PAGESIZE),
                         ret) < 0)
        return co_fail(err, -EINVAL, "unexpected content of /proc/%d/stat", pid);
    return 0;
}

/* It has not received it yet. */
static bool is_killed(pid_t tid)
{
    char text[STATUS_BYTES];
    unsigned long long pending = 0;
    const char *at =
        co_process_read(tid, "status", text, sizeof text) > 0 ? strstr(text, "\nSigPnd:") : NULL;
    return at != NULL && sscanf(at, "\nSigPnd: %llx", &pending) == 1 &&
           (pending >> (SIGKILL - 1) & 1) != 0;
}

/* Its first thread may have ended before the others, which /proc/PID/stat does not show. */
bool co_process_tears_down(pid_t pid)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    co_autoclose_dir DIR *threads = opendir(path);
    for (const struct dirent *t; threads != NULL && (t = readdir(threads)) != NULL;) {
        struct co_process thread;
        const pid_t tid = (pid_t)strtol(t->d_name, NULL, 10);
        if (tid > 0 && co_process_look(tid, &thread, NULL) == 0 && thread.state == 'R' &&
            (thread.is_ending || is_killed(tid)))
            return true;
    }
    return false;
}
