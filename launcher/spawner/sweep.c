#include "sweep.h"

#include "common/clock.h"
#include "common/process.h"
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

/* For kernels built without lists of children. */
static int visit_by_parent(pid_t parent, void (*visit)(void *arg, pid_t pid), void *arg)
{
    co_autoclose_dir DIR *proc = opendir("/proc");
    if (proc == NULL)
        return -errno;
    for (const struct dirent *d; (d = readdir(proc)) != NULL;) {
        struct co_process p;
        pid_t pid = (pid_t)strtol(d->d_name, NULL, 10);
        if (pid > 0 && co_process_look(pid, &p, NULL) == 0 && p.parent == parent)
            visit(arg, pid);
    }
    return 0;
}

static int visit_children(pid_t parent, void (*visit)(void *arg, pid_t pid), void *arg)
{
    /* the kernel keeps a list per thread */
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)parent);
    co_autoclose_dir DIR *tasks = opendir(path);
    if (tasks == NULL)
        return -errno;
    bool have_lists = false;
    for (const struct dirent *d; (d = readdir(tasks)) != NULL;) {
        if (!isdigit((unsigned char)d->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/children", (int)parent, d->d_name);
        co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && visit_list(fd, visit, arg) == 0)
            have_lists = true;
    }
    return have_lists ? 0 : visit_by_parent(parent, visit, arg);
}

int sweep_children(void (*visit)(void *arg, pid_t pid), void *arg)
{
    return visit_children(getpid(), visit, arg);
}

static void note_teardown(void *arg, pid_t pid)
{
    pid_t *found = arg;
    if (*found == 0 && co_process_tears_down(pid))
        *found = pid;
}

pid_t sweep_find_teardown(pid_t parent)
{
    pid_t found = 0;
    visit_children(parent, note_teardown, &found);
    return found;
}

static void kill_child(void *arg, pid_t pid)
{
    (void)arg;
    kill(pid, SIGKILL);
}

bool sweep_await_child(uint64_t deadline_ms)
{
    sigset_t child_ended;
    int left_ms = co_left_ms(deadline_ms);
    if (left_ms == 0)
        return false;
    if (left_ms < 0 || left_ms > 1000)
        left_ms = 1000;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    struct timespec wait = {left_ms / 1000, left_ms % 1000 * 1000000L};
    sigtimedwait(&child_ended, NULL, &wait);
    return true;
}

int sweep_kill_all(uint64_t deadline_ms)
{
    for (;;) {
        pid_t pid;
        do {
            pid = waitpid(-1, NULL, WNOHANG);
        } while (pid > 0);
        if (pid < 0)
            return 0; /* ECHILD */
        /* Killing comes right before waiting: a process that is adopted after this line is adopted
         * from a child that died, and that death ends the wait. */
        sweep_children(kill_child, NULL);
        if (!sweep_await_child(deadline_ms))
            return -ETIMEDOUT;
    }
}
