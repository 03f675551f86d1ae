/* file_timers.h - the timers of torch.distributed.elastic.timer: its FileTimerClient writes a line
 * of JSON into a named pipe when a process sets a timer, and when it releases it:
 *
 *     {"version": 1, "pid": 4711, "scope_id": "step 1", "expiration_time": 1795355966.9,
 *      "signal": 9}
 *     {"version": 1, "pid": 4711, "scope_id": "step 1", "expiration_time": -1, "signal": 0}
 *
 * Times are those of the Unix clock; a negative one releases. A process has a timer of each scope.
 * With a signal of 0 or less, the end of the timer is to be reported, and nothing else. Pure. */
#ifndef DDP_LAUNCHER_TORCH_FILE_TIMERS_H
#define DDP_LAUNCHER_TORCH_FILE_TIMERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    FILE_TIMERS_MAX = 4096,        /* at a time; more are refused */
    FILE_TIMERS_LINE_BYTES = 4096, /* PIPE_BUF, which the client keeps to; a longer line is bad */
    FILE_TIMERS_SIGNAL_MAX = 64,
};

struct file_timer {
    pid_t pid;
    char *scope; /* owned; UTF-8 */
    double expires_s;
    int signal;       /* 0: none */
    uint64_t set_ms;  /* as it was passed in */
    uint64_t process; /* the same */
};

struct file_timers {         /* zeroed: none */
    struct file_timer *list; /* owned */
    size_t n, capacity;
    uint64_t n_bad;     /* lines of another form */
    uint64_t n_refused; /* timers, for want of space or memory */
    size_t len;
    bool skips; /* what arrives belongs to a line that is too long */
    char line[FILE_TIMERS_LINE_BYTES];
};

struct file_timers_opts {
    uint64_t now_ms;
    /* Which process has this pid now? A number for file_timer.process that another one does not
     * have; 0: it has ended, and gets no timer. NULL: not asked */
    uint64_t (*find_process)(void *arg, pid_t pid);
    void *arg;
};

/* Take what was read from the pipe. */
void file_timers_feed(struct file_timers *t, const char *bytes, size_t n,
                      const struct file_timers_opts *opts);

/* The one that expires first, lent until the next call; NULL: no timer is set. */
const struct file_timer *file_timers_first(const struct file_timers *t);

/* Drop a timer that was lent; or all of a process. */
void file_timers_drop(struct file_timers *t, const struct file_timer *timer);
void file_timers_drop_process(struct file_timers *t, pid_t pid);

void file_timers_fini(struct file_timers *t);

#endif
