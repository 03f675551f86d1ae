/* After the last rank: post_mortem() gathers the evidence (gather_of_rank(): the error file, the
 * OOM killer, the last lines; explain_start() if a rank could not be executed), passes the root
 * cause on to the process that started ddprun, writes the JSON report and returns the text of the
 * report. Read post_mortem() first.
 *
 * Invariant: what struct report borrows lives in struct evidence until the text is made. */
#include "post_mortem.h"

#include "events.h"
#include "launcher/diagnosis/error_file.h"
#include "launcher/diagnosis/hang_report.h"
#include "launcher/diagnosis/oom_report.h"
#include "launcher/diagnosis/oom_watch.h"
#include "launcher/job/job_spec.h"
#include "launcher/platform/exec_error.h"
#include "launcher/platform/json_value.h"
#include "launcher/stdio/rank_io.h"
#include "launcher/supervisor/rank_numbers.h"
#include "launcher/supervisor/supervisor.h"
#include "report.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "common/whole.h"
#include "rendezvous/membership/member.h"

#include <ddp/env.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Tell whoever started us, in torchrun's way. */
static int pass_root_cause_on(const struct post_mortem *p, const char *text,
                              const struct oom_finding *oom, struct co_error *err)
{
    const int rank = supervisor_get_verdict(p->supervisor)->rank;
    const struct supervisor_rank *root = supervisor_get_rank(p->supervisor, rank);
    const char *path = getenv(DDP_ENV_ERROR_FILE);
    if (path == NULL || path[0] == '\0')
        return 0;
    char status[160];
    char brief[OOM_GROUP_BYTES + 160];
    char message[sizeof brief + 256];
    const struct rank_numbers numbers = {.first = p->job != NULL ? p->job->first_rank : 0,
                                         .supervisor = p->supervisor};
    oom_text_brief(oom, brief, sizeof brief);
    snprintf(message, sizeof message, "rank %d failed: %s%s%s", rank_number(numbers, rank),
             report_status(root->status, status, sizeof status), brief[0] != '\0' ? ": " : "",
             brief);
    int exit_code = WIFSIGNALED(root->status) ? -WTERMSIG(root->status) : WEXITSTATUS(root->status);
    return error_file_write(path, text, message, exit_code, (int64_t)time(NULL), err);
}

static char *print(const struct report *r)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (out == NULL)
        return NULL;
    report_print(out, r);
    fclose(out);
    return text;
}

/* What the report borrows. */
struct evidence {
    char *message, *text, *tail; /* owned */
    struct co_error trouble;     /* of ours */
    struct co_error exec_error;
    struct oom_finding oom;
};

static void evidence_fini(struct evidence *e)
{
    free(e->message);
    free(e->text);
    free(e->tail);
}

/* Did the OOM killer have a part in it? A SIGKILL of ours says nothing. */
static void look_for_oom(const struct post_mortem *p, const struct supervisor_rank *root,
                         struct oom_finding *f)
{
    bool killed = WIFSIGNALED(root->status) && WTERMSIG(root->status) == SIGKILL &&
                  root->signaled_last != SIGKILL;
    oom_watch_find(p->oom, root->pid, killed, f);
    bool other_known = f->blame == OOM_BLAME_OTHER && f->victim.pid != 0;
    for (int i = 0; other_known && i < supervisor_n_ranks(p->supervisor); i++)
        if (supervisor_get_rank(p->supervisor, i)->pid == f->victim.pid)
            f->victim_rank = i;
    events_oom(p->events, p->supervisor, f);
}

/* What the rank left behind. */
static void gather_of_rank(const struct post_mortem *p, struct evidence *e, struct report *r)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(p->supervisor);
    char path[4096];
    rank_io_error_file(p->io, p->runtime_dir, v->rank, path, sizeof path);
    int rc = error_file_read(path, &e->message, &e->text, &e->trouble);
    if (rc < 0 && rc != -ENOENT)
        r->note = e->trouble.text;
    const struct supervisor_rank *root = supervisor_get_rank(p->supervisor, v->rank);
    look_for_oom(p, root, &e->oom);
    r->oom = &e->oom;
    if (p->restart == NULL && pass_root_cause_on(p, e->text, &e->oom, &e->trouble) < 0)
        r->note = e->trouble.text;
    e->tail = rank_io_tail(p->io, v->rank);
    r->error = e->message;
    r->tail = e->tail;
}

static void explain_start(const struct post_mortem *p, struct evidence *e, struct report *r)
{
    int rank = supervisor_get_verdict(p->supervisor)->rank;
    int error = supervisor_get_rank(p->supervisor, rank)->status;
    exec_error_explain(job_spec_program(p->spec, rank).path, error, &e->exec_error);
    r->error = e->exec_error.text;
}

char *post_mortem(const struct post_mortem *p)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(p->supervisor);

    bool is_well = p->job != NULL ? p->job->end->exit_code == 0 : v->outcome == OUTCOME_WELL;
    if (is_well && !v->some_hang && p->spec->report == NULL)
        return NULL;
    __attribute__((cleanup(evidence_fini))) struct evidence e = {0};
    char host[256] = "";
    gethostname(host, sizeof host - 1);

    struct report r = {.supervisor = p->supervisor,
                       .hang = p->hang,
                       .host = host,
                       .program = job_spec_program(p->spec, v->rank > 0 ? v->rank : 0).shown,
                       .begun_ms = p->begun_ms,
                       .now_ms = co_now_ms(),
                       .after_progress = p->spec->restart_after_progress,
                       .max_restarts = p->spec->restart_window_ms == 0 ? p->spec->max_restarts : 0,
                       .job = p->job,
                       .restart = p->restart};
    if (v->outcome == OUTCOME_RANK_FAILED && report_is_ours(&r))
        gather_of_rank(p, &e, &r);
    else if (v->outcome == OUTCOME_START_FAILED)
        explain_start(p, &e, &r);
    if (p->spec->report != NULL && p->restart == NULL &&
        report_json_write(p->spec->report, &r, p->spec->run_id, &e.trouble) < 0)
        r.note = e.trouble.text;
    if (p->spec->n_local == 1) /* they stand right above */
        r.tail = NULL;
    return print(&r);
}

/* --- the report for programs --- */

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
    return dump != NULL ? co_format("%s\n", dump) : NULL;
}

int report_json_write(const char *path, const struct report *r, const char *run_id,
                      struct co_error *err)
{
    co_autofree char *text = make_text(r, run_id);
    if (text == NULL)
        return co_fail(err, -ENOMEM, "no memory for %s", path);
    return co_write_whole(path, text, strlen(text), err);
}
