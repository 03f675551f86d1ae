#include "perf_ranks.h"

#include "common/error.h"
#include "common/scope.h"

#include <ddp/env.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void set_number(const char *name, long value)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", value);
    setenv(name, text, 1);
}

/* In the child. */
static void become_rank(unsigned rank, unsigned n, unsigned name, pid_t parent)
{
    char job[64];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it exited meanwhile */
        _exit(1);
    snprintf(job, sizeof job, "ddp-perf %ld %u", (long)parent, name);
    setenv(DDP_ENV_JOB_ID, job, 1);
    set_number(DDP_ENV_RANK, rank);
    set_number(DDP_ENV_WORLD_SIZE, n);
    set_number(DDP_ENV_LOCAL_RANK, rank);
    set_number(DDP_ENV_LOCAL_WORLD_SIZE, n);
}

static int wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int perf_ranks_run(unsigned n, unsigned name, int (*rank_main)(void *arg), void *arg,
                   struct co_error *err)
{
    const pid_t parent = getpid();
    co_autofree pid_t *child = calloc(n, sizeof *child);
    unsigned started = 0;
    int worst = 0, code = 0;
    if (child == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    fflush(NULL); /* else the children print it once more */
    for (; started < n && code == 0; started++) {
        child[started] = fork();
        if (child[started] == 0) {
            become_rank(started, n, name, parent);
            int status = rank_main(arg);
            _exit(fflush(NULL) == 0 ? status : 1);
        }
        if (child[started] < 0)
            code = co_fail(err, -errno, "cannot start rank %u: %s", started, strerror(errno));
    }
    for (unsigned i = 0; i < started && child[i] > 0; i++) {
        if (code != 0) /* the others would wait for those that were never started */
            kill(child[i], SIGKILL);
        const int status = wait_for(child[i]);
        worst = status > worst ? status : worst;
    }
    return code != 0 ? code : worst;
}
