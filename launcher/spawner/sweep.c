#include "sweep.h"

#include "common/clock.h"
#include "common/scope.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

/* The numbers in /proc/self/task/TID/children, which may be longer than any buffer. */
static int visit_list(int fd, void (*visit)(void *arg, pid_t pid), void *arg)
{
    char text[4096];
    pid_t pid = 0;
    for (;;) {
        ssize_t n = read(fd, text, sizeof text);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        for (ssize_t i = 0; i < n; i++) {
            if (isdigit((unsigned char)text[i])) {
                pid = pid * 10 + (text[i] - '0');
                continue;
            }
            if (pid > 0)
                visit(arg, pid);
            pid = 0;
        }
    }
    if (pid > 0)
        visit(arg, pid);
    return 0;
}

/* The parent of pid, by /proc/PID/stat: "12 (any name) S 1 ..."; 0 if it is gone. */
static pid_t parent_of(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    char text[512];
    ssize_t n = read(fd, text, sizeof text - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *after_name = strrchr(text, ')');
    int parent = 0;
    if (after_name == NULL || sscanf(after_name + 1, " %*c %d", &parent) != 1)
        return 0;
    return parent;
}

/* For kernels built without lists of children. */
static int visit_by_parent(void (*visit)(void *arg, pid_t pid), void *arg)
{
    DIR *proc = opendir("/proc");
    if (proc == NULL)
        return -errno;
    pid_t self = getpid();
    for (const struct dirent *d; (d = readdir(proc)) != NULL;) {
        pid_t pid = (pid_t)strtol(d->d_name, NULL, 10);
        if (pid > 0 && parent_of(pid) == self)
            visit(arg, pid);
    }
    closedir(proc);
    return 0;
}

int sweep_children(void (*visit)(void *arg, pid_t pid), void *arg)
{
    DIR *tasks = opendir("/proc/self/task"); /* the kernel keeps a list per thread */
    if (tasks == NULL)
        return -errno;
    bool have_lists = false;
    for (const struct dirent *d; (d = readdir(tasks)) != NULL;) {
        if (!isdigit((unsigned char)d->d_name[0]))
            continue;
        char path[64];
        snprintf(path, sizeof path, "/proc/self/task/%.20s/children", d->d_name);
        co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && visit_list(fd, visit, arg) == 0)
            have_lists = true;
    }
    closedir(tasks);
    return have_lists ? 0 : visit_by_parent(visit, arg);
}

static void kill_child(void *arg, pid_t pid)
{
    (void)arg;
    kill(pid, SIGKILL);
}

int sweep_kill_all(uint64_t deadline_ms)
{
    sigset_t child_ended;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    for (;;) {
        pid_t pid;
        do {
            pid = waitpid(-1, NULL, WNOHANG);
        } while (pid > 0);
        if (pid < 0)
            return 0; /* ECHILD */
        int left_ms = co_left_ms(deadline_ms);
        if (left_ms == 0)
            return -ETIMEDOUT;
        if (left_ms < 0 || left_ms > 1000)
            left_ms = 1000; /* in case a list was incomplete */
        /* Killing comes right before waiting: whoever is adopted after this line is adopted from a
         * child that died, and that death ends the wait. */
        sweep_children(kill_child, NULL);
        struct timespec wait = {left_ms / 1000, left_ms % 1000 * 1000000L};
        sigtimedwait(&child_ended, NULL, &wait);
    }
}
