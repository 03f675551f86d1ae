/* step_store_start() clones the process that serves the store, run_store(), which reports by a pipe
 * whether it listens; then it serves until the kernel kills it, because its parent has ended.
 *
 * Invariant: signals for the step, which schedulers send to each process of it, do not end the
 * store: a rank that handles them may still need it. */
#include "step_store.h"

#include "launcher/platform/title.h"
#include "listen.h"

#include "common/error.h"
#include "common/scope.h"
#include "rendezvous/server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uv.h>

enum { REPORT_FD = STDERR_FILENO + 1 };

struct report { /* from one process to the other, by a pipe */
    int code;
    struct co_error err;
};

/* returns   0; -ESRCH the parent has ended already; -errno */
static int settle(int report_fd, pid_t parent)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGPIPE, SIG_IGN);
    setsid();
    title_set("ddp-store");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return -errno;
    if (getppid() != parent)
        return -ESRCH;
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
        (report_fd != REPORT_FD && dup2(report_fd, REPORT_FD) < 0))
        return -errno;
    closefrom(REPORT_FD + 1);
    return 0;
}

static int open_store(const struct step_store_opts *opts, uv_loop_t *loop, struct co_error *err)
{
    const struct server_opts server_opts = {
        .allow = opts->allow, .on_refused = opts->on_refused, .arg = opts->arg};
    struct server *server;
    int rc = uv_loop_init(loop);
    if (rc < 0)
        return co_fail(err, rc, "cannot make an event loop: %s", uv_strerror(rc));
    return server_create(loop, &server_opts, &server, err)
               ?: listen_for(server, opts->host, opts->port, err);
}

static _Noreturn void run_store(const struct step_store_opts *opts, int report_fd, pid_t parent)
{
    uv_loop_t loop;
    struct report r = {.code = settle(report_fd, parent)};
    if (r.code < 0)
        _exit(1); /* the parent sees the end of the pipe */
    r.code = open_store(opts, &loop, &r.err);
    if (write(REPORT_FD, &r, sizeof r) != (ssize_t)sizeof r || r.code < 0)
        _exit(1);
    close(REPORT_FD);
    uv_run(&loop, UV_RUN_DEFAULT);
    _exit(0);
}

int step_store_start(const struct step_store_opts *opts, struct co_error *err)
{
    struct report r;
    int ends[2];
    ssize_t n;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return co_fail(err, -errno, "cannot make a pipe: %s", strerror(errno));
    const pid_t parent = getpid();
    /* as fork(), but without SIGCHLD at its end; arguments that are 0 have no order */
    const long pid = syscall(SYS_clone, 0UL, 0UL, 0UL, 0UL, 0UL);
    if (pid == 0)
        run_store(opts, ends[1], parent);
    const int clone_error = errno;
    co_autoclose_fd int in = ends[0];
    close(ends[1]);
    if (pid < 0)
        return co_fail(err, -clone_error, "cannot start another process: %s",
                       strerror(clone_error));
    do
        n = read(in, &r, sizeof r);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof r)
        return co_fail(err, -EIO, "the process that serves the store exited");
    return r.code < 0 ? co_fail(err, r.code, "%s", r.err.text) : 0;
}
