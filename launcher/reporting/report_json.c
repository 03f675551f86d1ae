#include "report_json.h"

#include "launcher/diagnosis/hang_report.h"
#include "launcher/diagnosis/oom_report.h"
#include "launcher/platform/json_value.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/membership/member.h"
#include "report.h"

#include "common/error.h"
#include "common/scope.h"
#include "common/whole.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static double seconds(uint64_t from_ms, uint64_t to_ms)
{
    return to_ms > from_ms ? (double)(to_ms - from_ms) / 1000 : 0;
}

/* What the list of ranks and the root cause have in common. */
static json_t *make_rank(const struct report *report, int local_rank)
{
    const struct supervisor_rank *r = supervisor_get_rank(report->supervisor, local_rank);
    int rank = rank_number(report_numbers(report), local_rank);
    bool ended = r->phase == RANK_ENDED;
    bool by_signal = ended && WIFSIGNALED(r->status);
    return json_pack("{s:i,s:i,s:o,s:o,s:o}", "rank", rank, "local_rank", local_rank, "pid",
                     json_value_number(r->pid != 0, r->pid), "exit_code",
                     json_value_number(ended && !by_signal, WEXITSTATUS(r->status)), "signal",
                     json_value_number(by_signal, WTERMSIG(r->status)));
}

static json_t *make_ranks(const struct report *report)
{
    const struct supervisor *s = report->supervisor;
    json_t *list = json_array();
    for (int i = 0; i < supervisor_n_ranks(s); i++) {
        const struct supervisor_rank *r = supervisor_get_rank(s, i);
        json_t *one = make_rank(report, i);
        json_object_set_new(one, "stopped_by",
                            json_value_number(r->signaled_first != 0, r->signaled_first));
        json_object_set_new(one, "lost_peer", json_boolean(r->lost_peer));
        json_object_set_new(one, "duration_s",
                            r->phase == RANK_ENDED ? json_real(seconds(r->started_ms, r->ended_ms))
                                                   : json_null());
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *make_root_cause(const struct report *r)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(r->supervisor);
    if ((v->outcome != OUTCOME_RANK_FAILED && v->outcome != OUTCOME_START_FAILED) ||
        !report_is_ours(r))
        return json_null();
    const struct supervisor_rank *rank = supervisor_get_rank(r->supervisor, v->rank);
    json_t *root = make_rank(r, v->rank);
    json_object_set_new(root, "errno",
                        json_value_number(v->outcome == OUTCOME_START_FAILED, rank->status));
    json_object_set_new(root, "oom", r->oom != NULL ? oom_json_make(r->oom) : json_null());
    json_object_set_new(root, "hang",
                        r->hang != NULL ? hang_json_make(r->hang, report_numbers(r)) : json_null());
    json_object_set_new(root, "error", json_value_text(r->error));
    json_object_set_new(root, "stderr", json_value_text(r->tail));
    return root;
}

/* Of a job of several nodes: what the roster said, or what ended it for this node. */
static json_t *make_verdict(const struct report *r)
{
    if (r->job == NULL)
        return json_null();
    const struct member_end *end = r->job->end;
    return json_pack("{s:o,s:o,s:o}", "node",
                     json_value_text(end->node != NULL && end->node[0] != '\0' ? end->node : NULL),
                     "rank", json_value_number(end->rank != MESSAGE_NO_RANK, end->rank), "text",
                     json_value_text(end->text));
}

static const char *job_outcome_name(const struct member_end *end)
{
    static const char *const names[] = {
        [MESSAGE_WELL] = "ok",         [MESSAGE_RANK_FAILED] = "rank_failed",
        [MESSAGE_TOO_FEW] = "too_few", [MESSAGE_MISSING] = "missing",
        [MESSAGE_ENDED] = "ended",     [MESSAGE_EXCLUDED] = "excluded",
    };
    return end->signal != 0 ? "signal" : names[end->outcome];
}

static const char *outcome_name(enum supervisor_outcome outcome)
{
    static const char *const names[] = {
        [OUTCOME_NONE] = "internal",           [OUTCOME_WELL] = "ok",
        [OUTCOME_RANK_FAILED] = "rank_failed", [OUTCOME_START_FAILED] = "start_failed",
        [OUTCOME_SIGNAL] = "signal",           [OUTCOME_TIMEOUT] = "timeout",
        [OUTCOME_INTERNAL] = "internal",       [OUTCOME_ORDERED] = "internal",
    };
    return names[outcome];
}

/* Bytes that are not UTF-8 become '?'. returns a string to free(); NULL: no memory */
static char *make_text(const struct report *r, const char *run_id)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(r->supervisor);
    int signal = r->job != NULL                 ? r->job->end->signal
                 : v->outcome == OUTCOME_SIGNAL ? v->signal
                                                : 0;
    json_t *root = json_pack(
        "{s:i,s:o,s:s,s:i,s:o,s:o,s:i,s:f,s:o,s:o,s:o,s:o}", "version", 1, "job",
        json_value_text(run_id), "outcome",
        r->job != NULL ? job_outcome_name(r->job->end) : outcome_name(v->outcome), "exit_code",
        supervisor_exit_code(r->supervisor), "signal", json_value_number(signal != 0, signal),
        "verdict", make_verdict(r), "restarts", (int)supervisor_generation(r->supervisor),
        "duration_s", seconds(r->begun_ms, r->now_ms), "host", json_value_text(r->host), "program",
        json_value_text(r->program), "root_cause", make_root_cause(r), "ranks", make_ranks(r));
    if (root == NULL)
        return NULL;
    co_autofree char *dump = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(root);
    char *text = NULL;
    if (dump == NULL || asprintf(&text, "%s\n", dump) < 0)
        return NULL;
    return text;
}

int report_json_write(const char *path, const struct report *r, const char *run_id,
                      struct co_error *err)
{
    co_autofree char *text = make_text(r, run_id);
    if (text == NULL)
        return co_fail(err, -ENOMEM, "no memory for %s", path);
    return co_write_whole(path, text, strlen(text), err);
}
