#include "early_exit.h"

#include "common/clock.h"
#include "common/process.h"
#include "common/scope.h"

#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { FIRST_WAIT_MS = 1, LAST_WAIT_MS = 512, LOWEST_PRIORITY = 19 };

/* A first thread that ends by itself, by pthread_exit(3), leaves others that go on, and 0. */
bool early_exit_is_ending(pid_t pid)
{
    struct co_process p;
    return co_process_look(pid, &p, NULL) == 0 && p.is_ending &&
           (p.exit_status != 0 || p.n_threads <= 1);
}

bool early_exit_has_failed(pid_t pid, int *ret_status)
{
    struct co_process p;
    if (co_process_look(pid, &p, NULL) < 0 || !p.is_ending || p.exit_status == 0)
        return false;
    *ret_status = p.exit_status;
    return true;
}

void early_exit_step_aside(pid_t pid)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    co_autoclose_dir DIR *threads = opendir(path); /* whichever of them ends last frees it */
    for (struct dirent *t; threads != NULL && (t = readdir(threads)) != NULL;) {
        const pid_t tid = (pid_t)strtol(t->d_name, NULL, 10);
        if (tid > 0)
            setpriority(PRIO_PROCESS, (id_t)tid, LOWEST_PRIORITY);
    }
}

void early_exit_watch_begin(struct early_exit_watch *w, uint64_t now_ms)
{
    *w = (struct early_exit_watch){.wait_ms = FIRST_WAIT_MS, .next_ms = now_ms};
}

uint64_t early_exit_watch_next_ms(const struct early_exit_watch *w)
{
    return w->wait_ms != 0 ? w->next_ms : CO_NEVER_MS;
}

bool early_exit_watch_take(struct early_exit_watch *w, uint64_t now_ms)
{
    if (now_ms < early_exit_watch_next_ms(w))
        return false;
    w->next_ms = now_ms + w->wait_ms;
    w->wait_ms = w->wait_ms <= LAST_WAIT_MS ? 2 * w->wait_ms : 0;
    return true;
}
