#include "stack_tool.h"

#include "common/buf.h"
#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The happy path: the pipe is read as it comes; the pidfd is readable when the tool has ended; what
 * the pipe still holds is read, the tool is reaped, on_done() is called. The deadline kills it, and
 * then the same happens. So it does to one that is cancelled, but nobody hears of its end; one that
 * does not die, as the kernel holds it, is left to whoever reaps what we leave. */

enum { READ_BYTES = 4096, CANCEL_MS = 2000 };

struct stack_tool {
    struct stack_tool_opts opts;
    pid_t pid; /* 0: reaped */
    int out_fd, pid_fd;
    bool timed_out, is_cancelled;
    uv_poll_t out, end;
    uv_timer_t deadline;
    int n_handles;
    struct co_buf text;
};

char *stack_tool_find(const char *name)
{
    const char *path = getenv("PATH");
    for (const char *at = path; at != NULL && *at != '\0'; at += *at == ':') {
        size_t n = strcspn(at, ":");
        char *candidate = NULL;
        if (n > 0 && asprintf(&candidate, "%.*s/%s", (int)n, at, name) > 0 &&
            access(candidate, X_OK) == 0)
            return candidate;
        free(candidate);
        at += n;
    }
    return NULL;
}

/* --- Its end --- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct stack_tool *t = handle->data;
    if (--t->n_handles > 0)
        return;
    co_buf_fini(&t->text);
    free(t);
}

static void close_handle(struct stack_tool *t, uv_handle_t *handle)
{
    t->n_handles++;
    uv_close(handle, on_handle_closed);
}

static void tool_close(struct stack_tool *t)
{
    close_handle(t, (uv_handle_t *)&t->out);
    close_handle(t, (uv_handle_t *)&t->end);
    close_handle(t, (uv_handle_t *)&t->deadline);
    close(t->out_fd);
    close(t->pid_fd);
}

/* All of its session, whose leader it is once it has come so far: it may have children. */
static void tool_kill(struct stack_tool *t)
{
    if (t->pid <= 0)
        return;
    kill(-t->pid, SIGKILL);
    kill(t->pid, SIGKILL);
}

static void tool_reap(struct stack_tool *t)
{
    while (t->pid > 0 && waitpid(t->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    t->pid = 0;
}

/* --- What it says --- */

/* returns   1 there may be more; 0 its end; -1 nothing now */
static int read_some(struct stack_tool *t)
{
    char bytes[READ_BYTES];
    ssize_t n = read(t->out_fd, bytes, sizeof bytes);
    if (n < 0)
        return errno == EAGAIN ? -1 : errno == EINTR;
    size_t left = t->opts.max_bytes - co_buf_len(&t->text);
    co_buf_append(&t->text, bytes, (size_t)n < left ? (size_t)n : left);
    return n > 0;
}

static void on_out(uv_poll_t *poll, int status, int events)
{
    struct stack_tool *t = poll->data;
    (void)status;
    (void)events;
    if (read_some(t) == 0)
        uv_poll_stop(&t->out); /* it has closed its end, and may live on */
}

static void on_end(uv_poll_t *poll, int status, int events)
{
    struct stack_tool *t = poll->data;
    (void)status;
    (void)events;
    while (!t->is_cancelled && co_buf_len(&t->text) < t->opts.max_bytes && read_some(t) > 0) {
    }
    tool_reap(t);
    if (t->is_cancelled) {
        tool_close(t);
        return;
    }
    bool is_kept = co_buf_append(&t->text, "", 1) == 0;
    t->opts.on_done(t->opts.arg, is_kept ? (const char *)co_buf_bytes(&t->text) : "", t->timed_out);
    tool_close(t);
}

static void on_deadline(uv_timer_t *timer)
{
    struct stack_tool *t = timer->data;
    t->timed_out = true;
    tool_kill(t);
}

static void on_not_dead(uv_timer_t *timer)
{
    tool_close(timer->data);
}

void stack_tool_cancel(struct stack_tool *t)
{
    if (t == NULL)
        return;
    t->is_cancelled = true;
    tool_kill(t);
    uv_poll_stop(&t->out);
    uv_update_time(t->deadline.loop);
    uv_timer_start(&t->deadline, on_not_dead, CANCEL_MS, 0);
}

/* --- Its beginning --- */

/* No signal of ours is blocked in it, nor ignored; nothing but its output is ours: our descriptors
 * are close-on-exec. */
static _Noreturn void become(const struct stack_tool_opts *opts, int out_fd)
{
    sigset_t none;
    sigemptyset(&none);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null_fd = open("/dev/null", O_RDONLY);
    if (setsid() >= 0 && null_fd >= 0 && dup2(null_fd, STDIN_FILENO) >= 0 &&
        dup2(out_fd, STDOUT_FILENO) >= 0 && dup2(out_fd, STDERR_FILENO) >= 0)
        execv(opts->path, opts->argv);
    _exit(127);
}

static int spawn(struct stack_tool *t, int out_fd)
{
    t->pid = fork();
    if (t->pid == 0)
        become(&t->opts, out_fd);
    return t->pid < 0 ? -errno : 0;
}

static int watch(struct stack_tool *t, uv_loop_t *loop)
{
    int rc = uv_poll_init(loop, &t->out, t->out_fd);
    if (rc < 0)
        return rc;
    rc = uv_poll_init(loop, &t->end, t->pid_fd);
    if (rc < 0) {
        close_handle(t, (uv_handle_t *)&t->out);
        return rc;
    }
    uv_timer_init(loop, &t->deadline);
    uv_poll_start(&t->out, UV_READABLE, on_out);
    uv_poll_start(&t->end, UV_READABLE, on_end);
    uv_update_time(loop);
    uv_timer_start(&t->deadline, on_deadline, t->opts.timeout_ms, 0);
    return 0;
}

static int tool_start(struct stack_tool *t, uv_loop_t *loop)
{
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return -errno;
    fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK);
    t->out_fd = pipe_fds[0];
    int rc = spawn(t, pipe_fds[1]);
    close(pipe_fds[1]);
    if (rc == 0)
        t->pid_fd = (int)syscall(SYS_pidfd_open, t->pid, 0);
    if (rc == 0 && t->pid_fd < 0)
        rc = -errno;
    return rc == 0 ? watch(t, loop) : rc;
}

int stack_tool_begin(uv_loop_t *loop, const struct stack_tool_opts *opts, struct stack_tool **ret,
                     struct co_error *err)
{
    struct stack_tool *t = calloc(1, sizeof *t);
    if (t == NULL)
        return co_fail(err, -ENOMEM, "no memory to run %s", opts->path);
    *t = (struct stack_tool){.opts = *opts, .out_fd = -1, .pid_fd = -1};
    t->out.data = t->end.data = t->deadline.data = t;
    int rc = tool_start(t, loop);
    if (rc == 0) {
        *ret = t;
        return 0;
    }
    tool_kill(t);
    tool_reap(t);
    if (t->out_fd >= 0)
        close(t->out_fd);
    if (t->pid_fd >= 0)
        close(t->pid_fd);
    if (t->n_handles == 0)
        free(t);
    return co_fail(err, rc, "cannot run %s: %s", opts->path, strerror(-rc));
}
