#include "step_signals.h"

#include "common/process.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SAME_MS = 1000 }; /* the spawner hears a signal of a step some microseconds before ddprun */
enum { STATUS_BYTES = 32768 }; /* SigIgn comes after the groups, which may be thousands */

static bool has(uint64_t signals, int sig)
{
    return sig > 0 && sig < STEP_SIGNALS_N && (signals >> sig & 1) != 0;
}

void step_signals_begin(struct step_signals *s, uint64_t ignored, uint64_t once,
                        sigset_t *ret_heard)
{
    *s = (struct step_signals){.ignored = ignored, .once = once};
    sigemptyset(ret_heard);
    for (int sig = 1; sig < STEP_SIGNALS_N; sig++) {
        if (has(ignored, sig))
            signal(sig, SIG_IGN);
        if (has(once, sig))
            sigaddset(ret_heard, sig);
    }
}

void step_signals_hear(struct step_signals *s, int sig, uint64_t now_ms)
{
    if (sig > 0 && sig < STEP_SIGNALS_N)
        s->came_ms[sig] = now_ms;
}

static bool is_ignored_by(pid_t pid, int sig)
{
    static const char name[] = "\nSigIgn:";
    char text[STATUS_BYTES];
    if (co_process_read(pid, "status", text, sizeof text) < 0)
        return false;
    const char *at = strstr(text, name);
    return at != NULL && (strtoull(at + sizeof name - 1, NULL, 16) >> (sig - 1) & 1) != 0;
}

int step_signals_choose(const struct step_signals *s, int sig, pid_t rank, uint64_t now_ms)
{
    if (has(s->once, sig) && s->came_ms[sig] != 0 && now_ms - s->came_ms[sig] < SAME_MS)
        return 0;
    return has(s->ignored, sig) && is_ignored_by(rank, sig) ? SIGTERM : sig;
}
