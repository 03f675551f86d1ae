/* supervisor_verdict.c - what the ends of all ranks mean: which one is the cause, whether a restart
 * follows, and with which code ddprun ends. */
#include "supervisor_priv.h"

#include <errno.h>
#include <sys/wait.h> /* W... */

/* --- The cause --- */

/* The witness was wrong if the culprit ended well. A culprit killed by us when the grace was over
 * stays one: freeing a hundred gigabytes takes longer than that. */
static void hear_witness(struct supervisor *s)
{
    if (s->verdict.witness < 0)
        return;
    const struct supervisor_rank *culprit = &s->ranks[s->verdict.rank];
    if (culprit->phase != RANK_ENDED || culprit->status == 0)
        s->verdict.rank = s->verdict.witness;
    s->verdict.witness = -1;
}

/* All ends are known: is what was heard first a consequence of what was heard later? Who roster
 * agents may have had the ranks stopped before any was heard. */
static void find_primary(struct supervisor *s)
{
    struct supervisor_verdict *v = &s->verdict;
    bool is_consequence = (v->outcome == OUTCOME_ORDERED && s->limits.guided) ||
                          (v->outcome == OUTCOME_RANK_FAILED && s->ranks[v->rank].lost_peer);
    if (!is_consequence || s->primary < 0)
        return;
    v->outcome = OUTCOME_RANK_FAILED;
    v->rank = s->primary;
}

/* --- A restart --- */

struct restart_failure supervisor_failure(const struct supervisor *s, int exit_code,
                                          uint64_t now_ms)
{
    return (struct restart_failure){
        .exit_code = exit_code, .begun_ms = s->begun_ms, .now_ms = now_ms, .progress = s->progress};
}

void supervisor_stop_restart(struct supervisor *s)
{
    s->verdict = (struct supervisor_verdict){.outcome = OUTCOME_TIMEOUT, .witness = -1, .rank = -1};
    if (s->stop_signal != 0) {
        s->verdict.outcome = OUTCOME_SIGNAL;
        s->verdict.signal = s->stop_signal;
    }
}

/* It was asked for, and costs nothing; but a stop that was asked for, too, counts more. */
static void decide_asked_restart(struct supervisor *s)
{
    if (s->stop_signal != 0 || s->timed_out)
        supervisor_stop_restart(s);
    else if (s->alone)
        s->verdict.outcome = OUTCOME_INTERNAL;
    else
        s->verdict.restarts = s->verdict.is_free = true;
}

static void decide_restart(struct supervisor *s, uint64_t now_ms)
{
    if (s->verdict.outcome == OUTCOME_ORDERED && !s->limits.guided)
        decide_asked_restart(s);
    if (s->verdict.outcome != OUTCOME_RANK_FAILED || s->alone || s->limits.guided)
        return;
    const struct restart_failure failure = supervisor_failure(s, supervisor_exit_code(s), now_ms);
    if (!restart_policy_allows(&s->policy, &failure))
        return;
    if (s->stop_signal != 0 || s->timed_out) {
        supervisor_stop_restart(s);
        return;
    }
    s->verdict.restarts = true;
    s->verdict.is_free = restart_policy_is_free(&s->policy, &failure);
    s->verdict.wait_ms = restart_policy_take(&s->policy, &failure);
    s->verdict.n_counted = (int)s->policy.n_counted;
}

void supervisor_settle_verdict(struct supervisor *s, uint64_t now_ms)
{
    hear_witness(s);
    find_primary(s);
    decide_restart(s, now_ms);
}

/* --- The exit code --- */

int supervisor_code_of_status(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int supervisor_exit_code(const struct supervisor *s)
{
    const struct supervisor_verdict *v = &s->verdict;
    if (v->is_final)
        return v->exit_code;
    switch (v->outcome) {
    case OUTCOME_WELL:
        return 0;
    case OUTCOME_RANK_FAILED: {
        int code = supervisor_code_of_status(s->ranks[v->rank].status);
        return code != 0 ? code : 70; /* one that was late, and ends well when told to stop */
    }
    case OUTCOME_START_FAILED: {
        int error = s->ranks[v->rank].status;
        return error == ENOENT || error == ENOTDIR ? 127 : 126;
    }
    case OUTCOME_SIGNAL:
        return 128 + v->signal;
    case OUTCOME_TIMEOUT:
        return SUPERVISOR_EXIT_TIMEOUT;
    case OUTCOME_NONE:
    case OUTCOME_INTERNAL:
    case OUTCOME_ORDERED:
        break;
    }
    return 70;
}
