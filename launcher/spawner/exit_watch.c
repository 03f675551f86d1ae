/* Two threads of each rank are in an epoll set (watch_thread()). exit_watch_look() adds threads at
 * growing intervals until each rank has its two; exit_watch_hear() returns whether some thread has
 * ended. The second part decides what that means: early_exit_has_failed() asks the kernel for the
 * status of a process that cannot be reaped yet, and struct early_exit_watch has the time to ask
 * again. Read exit_watch_look() first. */
#include "exit_watch.h"

#include "common/clock.h"
#include "common/process.h"
#include "common/scope.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    FIRST_WAIT_MS = 125,
    CALM_WAIT_MS = 1000, /* threads that come and go must not keep us busy */
    LAST_WAIT_MS = 128 * 1000,
    OF_A_THREAD = O_EXCL, /* PIDFD_THREAD of Linux 6.9, whose header may be older */
    AT_ONCE = 16
};

void exit_watch_init(struct exit_watch *w)
{
    *w = (struct exit_watch){.fd = -1, .next_ms = CO_NEVER_MS};
}

static void drop_at(struct exit_watch *w, int i)
{
    close(w->of[i].fd); /* and epoll forgets it */
    w->of[i] = w->of[--w->n];
}

void exit_watch_fini(struct exit_watch *w)
{
    while (w->n > 0)
        drop_at(w, 0);
    if (w->fd >= 0)
        close(w->fd);
    exit_watch_init(w);
}

static void look_in(struct exit_watch *w, uint64_t wait_ms, uint64_t now_ms)
{
    w->wait_ms = wait_ms;
    w->next_ms = now_ms + wait_ms;
}

void exit_watch_begin(struct exit_watch *w, uint64_t now_ms)
{
    look_in(w, FIRST_WAIT_MS, now_ms);
}

void exit_watch_forget(struct exit_watch *w, pid_t rank)
{
    for (int i = w->n - 1; i >= 0; i--)
        if (w->of[i].rank == rank)
            drop_at(w, i);
}

static int count_watched(const struct exit_watch *w, pid_t rank)
{
    int n = 0;
    for (int i = 0; i < w->n; i++)
        n += w->of[i].rank == rank;
    return n;
}

static int find_watched(const struct exit_watch *w, pid_t thread)
{
    for (int i = 0; i < w->n; i++)
        if (w->of[i].thread == thread)
            return i;
    return -1;
}

/* It may have ended meanwhile, and an older kernel has no descriptor for a thread: then it is not
 * watched. Should another one have got its number, its end costs a look, and no more. */
static void watch_thread(struct exit_watch *w, pid_t rank, pid_t thread)
{
    const int fd = (int)syscall(SYS_pidfd_open, thread, OF_A_THREAD);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)thread};
    if (fd < 0)
        return;
    if (w->fd < 0)
        w->fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ctl(w->fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        close(fd);
        return;
    }
    w->of[w->n++] = (struct exit_watch_one){.rank = rank, .thread = thread, .fd = fd};
}

/* The oldest ones, which the kernel lists first: they are the last to end while the rank lives. Its
 * first thread is not one of them: some kernels report its end together with that of the last
 * one. */
static void watch_rank(struct exit_watch *w, pid_t rank)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)rank);
    co_autoclose_dir DIR *threads = opendir(path);
    const struct dirent *d;
    while (threads != NULL && count_watched(w, rank) < EXIT_WATCH_EACH &&
           (d = readdir(threads)) != NULL) {
        const pid_t thread = isdigit((unsigned char)d->d_name[0]) ? atoi(d->d_name) : rank;
        if (thread != rank && find_watched(w, thread) < 0)
            watch_thread(w, rank, thread);
    }
}

void exit_watch_look(struct exit_watch *w, const pid_t *ranks, int n_ranks, uint64_t now_ms)
{
    if (now_ms < w->next_ms)
        return;
    bool is_whole = true;
    for (int i = 0; i < n_ranks && i < EXIT_WATCH_RANKS; i++) {
        if (ranks[i] == 0 || count_watched(w, ranks[i]) == EXIT_WATCH_EACH)
            continue;
        if (w->n + EXIT_WATCH_EACH <= (int)(sizeof w->of / sizeof *w->of))
            watch_rank(w, ranks[i]);
        is_whole = is_whole && count_watched(w, ranks[i]) == EXIT_WATCH_EACH;
    }
    look_in(w, 2 * w->wait_ms, now_ms);
    if (is_whole || w->wait_ms > LAST_WAIT_MS)
        w->next_ms = CO_NEVER_MS;
}

bool exit_watch_hear(struct exit_watch *w, uint64_t now_ms)
{
    struct epoll_event ended[AT_ONCE];
    const int n = w->fd >= 0 ? epoll_wait(w->fd, ended, AT_ONCE, 0) : 0;
    for (int i = 0; i < n; i++) {
        const int at = find_watched(w, (pid_t)ended[i].data.u32);
        if (at >= 0)
            drop_at(w, at);
    }
    if (n > 0)
        look_in(w, CALM_WAIT_MS, now_ms);
    return n > 0;
}

/* --- ranks that are as good as ended --- */

enum { FIRST_LOOK_MS = 1, LAST_LOOK_MS = 512, LOWEST_PRIORITY = 19 };

/* A first thread that ends by itself, by pthread_exit(3), leaves others that continue, and 0. */
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

static void set_nice(pid_t pid, int nice)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    co_autoclose_dir DIR *threads = opendir(path); /* whichever of them ends last frees it */
    for (struct dirent *t; threads != NULL && (t = readdir(threads)) != NULL;) {
        const pid_t tid = (pid_t)strtol(t->d_name, NULL, 10);
        if (tid > 0)
            setpriority(PRIO_PROCESS, (id_t)tid, nice);
    }
}

void early_exit_step_aside(pid_t pid)
{
    set_nice(pid, LOWEST_PRIORITY);
}

void early_exit_step_back(pid_t pid)
{
    if (early_exit_is_ending(pid))
        set_nice(pid, getpriority(PRIO_PROCESS, 0));
}

void early_exit_watch_begin(struct early_exit_watch *w, uint64_t now_ms)
{
    *w = (struct early_exit_watch){.wait_ms = FIRST_LOOK_MS, .next_ms = now_ms};
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
    w->wait_ms = w->wait_ms <= LAST_LOOK_MS ? 2 * w->wait_ms : 0;
    return true;
}
