/* fuzz_file_timers.c - any bytes in the pipe of torch's timers, whole and in two pieces. */
#include "fuzz.h"
#include "launcher/torch/file_timers.h"

#include <math.h>
#include <string.h>

static uint64_t find_process(void *arg, pid_t pid)
{
    (void)arg;
    require(pid > 0);
    return pid % 5 == 0 ? 0 : (uint64_t)pid;
}

static const struct file_timers_opts opts = {.now_ms = 1, .find_process = find_process};

static void check(const struct file_timers *t)
{
    require(t->n <= FILE_TIMERS_MAX && t->len <= sizeof t->line);
    for (size_t i = 0; i < t->n; i++) {
        const struct file_timer *timer = &t->list[i];
        require(timer->pid > 0 && timer->process == (uint64_t)timer->pid);
        require(isfinite(timer->expires_s) && timer->expires_s >= 0);
        require(timer->signal >= 0 && timer->signal <= FILE_TIMERS_SIGNAL_MAX);
        require(strlen(timer->scope) < FILE_TIMERS_LINE_BYTES);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct file_timers whole = {0}, pieces = {0};
    const size_t n = size > 0 ? data[0] % size : 0;
    file_timers_feed(&whole, (const char *)data, size, &opts);
    file_timers_feed(&pieces, (const char *)data, n, &opts);
    file_timers_feed(&pieces, (const char *)data + n, size - n, &opts);
    check(&whole);
    require(whole.n == pieces.n && whole.n_bad == pieces.n_bad && whole.len == pieces.len);
    double last_s = 0;
    for (const struct file_timer *t; (t = file_timers_first(&whole)) != NULL;) {
        require(t->expires_s >= last_s);
        last_s = t->expires_s;
        file_timers_drop(&whole, t);
    }
    if (pieces.n > 0)
        file_timers_drop_process(&pieces, pieces.list[0].pid);
    file_timers_fini(&whole);
    file_timers_fini(&pieces);
    return 0;
}
