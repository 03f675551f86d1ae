#include "spawn.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The happy path: all children are cloned one right after the other, and each is waited for until
 * it has our memory no more. The kernel tells that by a word of ours that it sets to 0
 * (CLONE_CHILD_CLEARTID), when the child executes as well as when it ends.
 *
 * Children share our errno with each other and with us, so none of them can say why it failed, and
 * until the last one is gone we cannot trust it either. A start that failed is made once more,
 * alone (CLONE_VFORK): then errno is its own. Nobody has seen the first attempt. */

struct plan { /* shared with the child while it borrows our memory */
    const struct spawn_order *order;
    pid_t nursery;
    bool is_alone;
    bool failed;
    enum spawn_stage stage;
    int error; /* meaningful if it is alone */
    pid_t pid;
    _Atomic pid_t borrows; /* 0: it has gone, or executes */
};

/* A child runs on a stack of its own, which the sanitizers know nothing of. */
#define IN_BORROWED_MEMORY __attribute__((no_sanitize("address", "undefined", "thread")))

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
    if (getppid() != plan->nursery) /* it died before the line above: nobody will kill us */
        return 127;
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
    struct plan plan = {.order = order, .nursery = getpid(), .is_alone = true};
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

static void begin(struct plan *plan, uint8_t *stack_top)
{
    atomic_store(&plan->borrows, 1);
    plan->pid = clone(child, stack_top, CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD, plan, NULL, NULL,
                      &plan->borrows);
    if (plan->pid < 0) {
        plan->failed = true;
        atomic_store(&plan->borrows, 0);
    }
}

/* Until the child has no more to do with our memory. A futex that is not private, since that is
 * what the kernel wakes. */
static void finish(struct plan *plan)
{
    while (atomic_load(&plan->borrows) != 0)
        syscall(SYS_futex, &plan->borrows, FUTEX_WAIT, 1, NULL, NULL, 0);
    if (plan->failed && plan->pid > 0)
        waitpid(plan->pid, NULL, 0);
}

void spawn_workers(struct spawn_order *orders, int n)
{
    struct plan plans[SPAWN_AT_ONCE];
    pid_t nursery = getpid();

    for (int i = 0; i < n; i++)
        orders[i].pid = 0;
    if (n == 1) {
        start_alone(&orders[0]);
        return;
    }
    for (int i = 0; i < n; i++) {
        plans[i] = (struct plan){.order = &orders[i], .nursery = nursery};
        begin(&plans[i], stacks[i] + sizeof stacks[i]);
    }
    for (int i = 0; i < n; i++)
        finish(&plans[i]);
    for (int i = 0; i < n; i++) {
        if (plans[i].failed)
            start_alone(&orders[i]);
        else
            orders[i].pid = plans[i].pid;
    }
}
