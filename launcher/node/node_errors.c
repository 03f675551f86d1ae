#include "node_errors.h"

#include "launcher/diagnosis/error_file.h"
#include "launcher/diagnosis/error_text.h"
#include "launcher/job/job_spec.h"
#include "launcher/supervisor/supervisor.h"
#include "node_hang.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* A rank that runs fails with an exception if that is the last that it wrote, and not long ago: it
 * may have handled others. */
enum { LINES_AFTER = 5, AGE_MS = 60000 };

struct node_errors {
    enum error_kind *seen; /* owned; by rank: the error in its output when ddprun stopped it */
};

/* torch's @record, if the standard error has no exception. */
static enum error_kind judge_file(const struct node_view *n, int rank)
{
    char path[PATH_MAX];
    co_autofree char *message = NULL, *text = NULL;
    struct co_error err;
    rank_io_error_file(n->io, n->runtime_dir, rank, path, sizeof path);
    if (error_file_read(path, &message, &text, &err) < 0)
        return ERROR_UNKNOWN;
    return error_text_says_peer_lost(message, strlen(message)) ? ERROR_PEER_LOST : ERROR_OWN;
}

static enum error_kind judge(const struct node_view *n, int rank, bool runs)
{
    size_t len = 0;
    uint64_t age_ms = 0;
    co_autofree char *words = rank_io_last_words(n->io, rank, &len, &age_ms);
    const struct error_text of_stderr =
        words != NULL ? error_text_judge(words, len) : (struct error_text){0};
    if (runs && (of_stderr.n_after > LINES_AFTER || age_ms > AGE_MS))
        return judge_file(n, rank);
    if (of_stderr.is_exception)
        return of_stderr.kind;
    const enum error_kind of_file = judge_file(n, rank);
    return of_file != ERROR_UNKNOWN ? of_file : of_stderr.kind;
}

/* A rank that a crash or the kernel ends does not end because of the error that it wrote. An abort
 * may be that of an uncaught C++ exception. */
static bool ends_by_its_error(const struct node_view *n, const struct supervisor_exit *x)
{
    if (WIFSIGNALED(x->status))
        return WTERMSIG(x->status) == SIGABRT &&
               node_hang_of(n, supervisor_get_rank(n->supervisor, x->rank)->pid) == NULL;
    return x->status != 0;
}

/* Once the cause is known, the errors of others do not matter. */
static bool is_cause_open(const struct supervisor *s)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(s);
    return v->outcome == OUTCOME_NONE || v->outcome == OUTCOME_ORDERED ||
           (v->outcome == OUTCOME_RANK_FAILED && v->rank >= 0 &&
            supervisor_get_rank(s, v->rank)->lost_peer);
}

void node_errors_note_exit(const struct node_view *n, struct supervisor_exit *x)
{
    enum error_kind kind = n->parts->errors->seen[x->rank];
    if (kind == ERROR_UNKNOWN && ends_by_its_error(n, x) && is_cause_open(n->supervisor))
        kind = judge(n, x->rank, false);
    x->lost_peer |= kind == ERROR_PEER_LOST && x->status != 0;
    x->was_failing = n->parts->errors->seen[x->rank] == ERROR_OWN;
}

bool node_errors_says_peer_lost(const struct node_view *n, int rank)
{
    return judge(n, rank, true) == ERROR_PEER_LOST;
}

/* Ranks that stop for a node that joins or leaves, or for a signal, have not failed, though they
 * may have printed an exception that they handled. */
static bool is_stop_of_failure(const struct node_view *n, enum supervisor_state from,
                               const struct supervisor_event *e)
{
    const enum supervisor_state to = supervisor_get_state(n->supervisor);
    const enum supervisor_outcome outcome = supervisor_get_verdict(n->supervisor)->outcome;
    return from != to && from != SUPERVISOR_STOPPING &&
           (to == SUPERVISOR_STOPPING || to == SUPERVISOR_KILLING) &&
           (outcome == OUTCOME_RANK_FAILED || (outcome == OUTCOME_ORDERED && e->for_failure));
}

void node_errors_note_stop(const struct node_view *n, enum supervisor_state from,
                           const struct supervisor_event *e)
{
    if (!is_stop_of_failure(n, from, e))
        return;
    for (int i = 0; i < supervisor_n_ranks(n->supervisor); i++)
        if (supervisor_get_rank(n->supervisor, i)->phase == RANK_RUNS)
            n->parts->errors->seen[i] = judge(n, i, true);
}

static int errors_open(const struct node_view *n, struct co_error *err)
{
    struct node_errors *e = calloc(1, sizeof *e);
    n->parts->errors = e;
    if (e != NULL)
        e->seen = calloc((size_t)n->spec->n_local, sizeof *e->seen);
    return e != NULL && e->seen != NULL ? 0 : co_fail(err, -ENOMEM, "out of memory");
}

static void errors_on_event(const struct node_view *n, const struct supervisor_event *e)
{
    if (e->type == SUPERVISOR_EV_STARTED && e->rank >= 0 && e->rank < n->spec->n_local)
        n->parts->errors->seen[e->rank] = ERROR_UNKNOWN;
}

static void errors_close(const struct node_view *n)
{
    if (n->parts->errors != NULL)
        free(n->parts->errors->seen);
    free(n->parts->errors);
    n->parts->errors = NULL;
}

const struct node_feature node_errors_feature = {
    .open = errors_open, .on_event = errors_on_event, .close = errors_close};
