/* spawn.c - spawn_workers() starts a batch of ranks.
 *
 * Each child is a clone() with CLONE_VM on a stack of its own: it shares the spawner's memory until
 * execve(). A single rank uses CLONE_VFORK as well (start_alone()). For several, start_together()
 * starts all children, and a pipe that execve() closes shows when the last of them has released the
 * memory and its stack. errno is shared by children that run at once, so one that fails among
 * several is started again alone, which returns the reason.
 *
 * Invariant: between clone() and execve() a child calls only system calls, and writes only to its
 * stack and its plan. */
#include "spawn.h"

#include "launcher/placement/placement.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The happy path: all children are cloned one right after the other, each with a copy of the write
 * end of a pipe. The kernel closes that copy when the child has released our memory, because it
 * executes, or has ended: the end of the pipe means that no child borrows the memory any more.
 *
 * Children share our errno with each other and with us, so none of them can report why it failed,
 * and until the last one is gone we cannot trust it either. A start that failed is made once more,
 * alone (CLONE_VFORK): then errno is its own. The first attempt had no visible effect. */

struct plan { /* shared with the child while it borrows our memory */
    const struct spawn_order *order;
    pid_t spawner;
    bool is_alone;
    bool failed;
    enum spawn_stage stage;
    int error; /* meaningful if it is alone */
    pid_t pid;
};

/* A child runs on a stack of its own, which the sanitizers know nothing of. */
#define IN_BORROWED_MEMORY __attribute__((no_sanitize("address", "undefined", "thread")))

/* The clone() of ThreadSanitizer is for children that copy memory. Its other functions know one
 * thread here: children that run at once would be the same one. */
#if defined(__SANITIZE_THREAD__)
enum { MAY_START_TOGETHER = false };
int __clone(int (*fn)(void *), void *stack, int flags, void *arg, ...);
#define clone __clone
#else
enum { MAY_START_TOGETHER = true };
#endif

static _Alignas(64) uint8_t stacks[SPAWN_AT_ONCE][32 * 1024];

IN_BORROWED_MEMORY static int give_up(struct plan *plan, enum spawn_stage stage)
{
    plan->stage = stage;
    plan->error = errno;
    plan->failed = true;
    return 127;
}

/* As execvp() does: a file the kernel knows no format for is a script for the shell. */
IN_BORROWED_MEMORY static void execute(const struct spawn_order *order, bool is_alone)
{
    execve(order->path, order->argv, order->env);
    if (!is_alone || errno != ENOEXEC)
        return;
    order->argv[-1] = (char *)"/bin/sh";
    order->argv[0] = order->path;
    execve("/bin/sh", order->argv - 1, order->env);
}

IN_BORROWED_MEMORY static int child(void *arg)
{
    struct plan *plan = arg;
    const struct spawn_order *order = plan->order;

    setsid(); /* cannot fail: a new process leads no group */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return give_up(plan, SPAWN_SETUP);
    if (getppid() != plan->spawner) /* it died before the line above: nothing will kill us */
        return 127;
    if (order->cpus != NULL &&
        sched_setaffinity(0, sizeof *order->cpus, (const cpu_set_t *)order->cpus) < 0)
        return give_up(plan, SPAWN_SETUP);
    for (int i = 0; i < SPAWN_N_FDS; i++) {
        if (order->fds[i] < 0)
            close(i);
        else if (dup2(order->fds[i], i) < 0)
            return give_up(plan, SPAWN_SETUP);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execute(order, plan->is_alone);
    return give_up(plan, SPAWN_EXEC);
}

static void start_alone(struct spawn_order *order)
{
    struct plan plan = {.order = order, .spawner = getpid(), .is_alone = true};
    uint8_t *stack_top = stacks[0] + sizeof stacks[0];
    pid_t pid = clone(child, stack_top, CLONE_VM | CLONE_VFORK | SIGCHLD, &plan);
    if (pid < 0) {
        order->error = errno;
        order->stage = SPAWN_CLONE;
        return;
    }
    if (plan.failed) {
        waitpid(pid, NULL, 0);
        order->error = plan.error;
        order->stage = plan.stage;
        return;
    }
    order->pid = pid;
}

/* Clone the children, and wait until the last has no more to do with our memory. */
static void start_together(struct plan *plans, int n, const int pipe_fds[2])
{
    char byte;
    for (int i = 0; i < n; i++) {
        plans[i].pid = clone(child, stacks[i] + sizeof stacks[i], CLONE_VM | SIGCHLD, &plans[i]);
        if (plans[i].pid < 0)
            plans[i].failed = true;
    }
    close(pipe_fds[1]);
    while (read(pipe_fds[0], &byte, 1) < 0) { /* no process writes; errno is not reliable here */
    }
    close(pipe_fds[0]);
    for (int i = 0; i < n; i++) {
        if (plans[i].failed && plans[i].pid > 0)
            waitpid(plans[i].pid, NULL, 0);
    }
}

void spawn_workers(struct spawn_order *orders, int n)
{
    struct plan plans[SPAWN_AT_ONCE];
    int pipe_fds[2];
    bool together = MAY_START_TOGETHER && n > 1 && pipe2(pipe_fds, O_CLOEXEC) == 0;

    for (int i = 0; i < n; i++)
        plans[i] = (struct plan){.order = &orders[i], .spawner = getpid(), .failed = !together};
    if (together)
        start_together(plans, n, pipe_fds);
    for (int i = 0; i < n; i++) {
        orders[i].pid = 0;
        if (plans[i].failed)
            start_alone(&orders[i]);
        else
            orders[i].pid = plans[i].pid;
    }
}
