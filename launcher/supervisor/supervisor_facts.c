/* supervisor_facts.c - what an event tells, written down before anything is decided. */
#include "supervisor_priv.h"

#include <sys/wait.h> /* W..., and the signals' numbers */

bool supervisor_is_stop(const struct supervisor *s, int sig)
{
    return sig == SIGTERM || sig == SIGINT || sig == SIGHUP || sig == SIGQUIT ||
           (sig > 0 && sig < 64 && (s->limits.stop_signals >> sig & 1) != 0);
}

/* Nothing that we know of made it fail. */
static bool is_primary(const struct supervisor_rank *r, const struct supervisor_event *e)
{
    bool of_ours = WIFSIGNALED(e->status) && (WTERMSIG(e->status) == r->signaled_first ||
                                              WTERMSIG(e->status) == r->signaled_last);
    return e->status != 0 && !e->lost_peer && !e->blames && !of_ours &&
           (r->signaled_first == 0 || e->was_ending);
}

void supervisor_note_facts(struct supervisor *s, const struct supervisor_event *e)
{
    struct supervisor_rank *r = &s->ranks[e->rank];
    switch (e->type) {
    case SUPERVISOR_EV_STARTED:
        *r = (struct supervisor_rank){.phase = RANK_RUNS,
                                      .pid = e->pid,
                                      .started_ms = e->now_ms,
                                      .joined = r->joined, /* it may have been faster ... */
                                      .called = r->called, /* ... by a generation, even */
                                      .asks = r->asks,
                                      .signaled_first = r->signaled_first,
                                      .signaled_last = r->signaled_last};
        s->n_answered++;
        s->n_running++;
        s->empty = false;
        break;
    case SUPERVISOR_EV_START_FAILED:
        r->phase = RANK_FAILED_TO_START;
        r->status = e->status;
        r->ended_ms = e->now_ms;
        s->n_answered++;
        s->empty = e->empty;
        break;
    case SUPERVISOR_EV_EXITED:
        r->phase = RANK_ENDED;
        r->status = e->status;
        r->called = false;
        r->lost_peer = e->lost_peer;
        r->ended_ms = e->now_ms;
        if (s->primary < 0 && is_primary(r, e))
            s->primary = e->rank;
        if (s->verdict.outcome == OUTCOME_NONE) /* a farewell of ranks that are stopped is none */
            s->progress = e->progress;
        s->n_running--;
        s->empty = e->empty;
        break;
    case SUPERVISOR_EV_JOINED:
        r->joined = e->recovers ? RANK_RECOVERABLE : RANK_JOINED;
        r->called = false;
        break;
    case SUPERVISOR_EV_ASKED:
        r->asks = true;
        break;
    case SUPERVISOR_EV_EMPTY:
        s->empty = true;
        break;
    case SUPERVISOR_EV_SIGNAL:
        if (e->sig == SIGINT)
            s->n_interrupts++;
        if (s->stop_signal == 0 && !s->timed_out && supervisor_is_stop(s, e->sig))
            s->stop_signal = e->sig;
        break;
    case SUPERVISOR_EV_TIMEOUT:
        s->timed_out = s->stop_signal == 0;
        break;
    default:
        break;
    }
}
