#include "init_reaper.h"

#include "sweep.h"

#include "common/error.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

struct init_reaper {
    uv_poll_t poll;
    int fd;
    pid_t spawner;
};

static void reap(void *arg, pid_t pid)
{
    const struct init_reaper *s = arg;
    if (pid != s->spawner)
        waitpid(pid, NULL, WNOHANG);
}

/* One signal may stand for several ends, so all children are looked at. */
static void on_child(uv_poll_t *poll, int status, int events)
{
    struct init_reaper *s = poll->data;
    struct signalfd_siginfo info;
    (void)status, (void)events;
    while (read(s->fd, &info, sizeof info) == (ssize_t)sizeof info) {
    }
    sweep_children(reap, s);
}

int init_reaper_open(uv_loop_t *loop, pid_t spawner, struct init_reaper **ret, struct co_error *err)
{
    sigset_t set;
    *ret = NULL;
    if (getpid() != 1)
        return 0;
    struct init_reaper *s = calloc(1, sizeof *s);
    if (s == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    s->spawner = spawner;
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    int rc = s->fd < 0 ? -errno : uv_poll_init(loop, &s->poll, s->fd);
    if (rc < 0) {
        if (s->fd >= 0)
            close(s->fd);
        free(s);
        return co_fail(err, rc, "cannot watch for exiting processes: %s", strerror(-rc));
    }
    s->poll.data = s;
    uv_poll_start(&s->poll, UV_READABLE, on_child);
    sweep_children(reap, s); /* those that ended before */
    *ret = s;
    return 0;
}

static void on_reaper_closed(uv_handle_t *handle)
{
    struct init_reaper *s = handle->data;
    close(s->fd);
    free(s);
}

void init_reaper_close(struct init_reaper *s)
{
    if (s != NULL)
        uv_close((uv_handle_t *)&s->poll, on_reaper_closed);
}
