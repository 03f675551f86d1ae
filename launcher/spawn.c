#include "spawn.h"

#include "image.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct plan { /* shared with the child while it borrows our memory */
    struct image *image;
    const int *fds;
    pid_t nursery;
    enum spawn_stage stage;
    int error;
};

/* The child runs on a stack of its own, which the sanitizers know nothing of. */
#define IN_BORROWED_MEMORY __attribute__((no_sanitize("address", "undefined", "thread")))

IN_BORROWED_MEMORY static int give_up(struct plan *plan, enum spawn_stage stage)
{
    plan->stage = stage;
    plan->error = errno;
    return 127;
}

/* As execvp() does: a file the kernel knows no format for is a script for the shell. */
IN_BORROWED_MEMORY static void execute(const struct image *image)
{
    execve(image->path, image->argv, image->env);
    if (errno != ENOEXEC)
        return;
    image->argv[-1] = (char *)"/bin/sh";
    image->argv[0] = image->path;
    execve("/bin/sh", image->argv - 1, image->env);
}

IN_BORROWED_MEMORY static int child(void *arg)
{
    struct plan *plan = arg;

    setsid(); /* cannot fail: a new process leads no group */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return give_up(plan, SPAWN_SETUP);
    if (getppid() != plan->nursery) /* it died before the line above: nobody will kill us */
        return 127;
    for (int i = 0; i < SPAWN_N_FDS; i++) {
        if (plan->fds[i] < 0)
            close(i);
        else if (dup2(plan->fds[i], i) < 0)
            return give_up(plan, SPAWN_SETUP);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execute(plan->image);
    return give_up(plan, SPAWN_EXEC);
}

int spawn_worker(struct image *image, const int fds[SPAWN_N_FDS], pid_t *ret_pid,
                 enum spawn_stage *ret_stage)
{
    static _Alignas(64) uint8_t stack[32 * 1024]; /* one child at a time: clone() waits for it */
    struct plan plan = {.image = image, .fds = fds, .nursery = getpid()};

    pid_t pid = clone(child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &plan);
    if (pid < 0) {
        *ret_stage = SPAWN_CLONE;
        return -errno;
    }
    if (plan.error != 0) {
        waitpid(pid, NULL, 0);
        *ret_stage = plan.stage;
        return -plan.error;
    }
    *ret_pid = pid;
    return 0;
}
