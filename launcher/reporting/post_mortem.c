/* After the last rank: post_mortem() gathers the evidence (gather_of_rank(): the error file, the
 * OOM killer, the last lines; explain_start() if a rank could not be executed), passes the root
 * cause on to the process that started ddprun, makes this node's part of the file of --report and
 * returns the text of the report. Read post_mortem() first.
 *
 * Invariant: what struct report borrows lives in struct evidence until the text is made. */
#include "post_mortem.h"

#include "events.h"
#include "launcher/diagnosis/error_file.h"
#include "launcher/diagnosis/error_text.h"
#include "launcher/diagnosis/oom_report.h"
#include "launcher/diagnosis/oom_watch.h"
#include "launcher/diagnosis/stuck.h"
#include "launcher/job/job_spec.h"
#include "launcher/platform/exec_error.h"
#include "launcher/stdio/rank_io.h"
#include "launcher/supervisor/rank_numbers.h"
#include "launcher/supervisor/supervisor.h"
#include "node_result.h"
#include "report.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "common/utf8.h"
#include "rendezvous/membership/member.h"

#include <ddp/env.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Report it to the process that started us, in torchrun's way. */
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

enum { MAX_OTHERS = 4 }; /* other ranks whose errors are reported */

/* What the report borrows. */
enum { MAX_STUCK = 16 };

struct evidence {
    char *message, *text, *tail;            /* owned */
    struct report_other others[MAX_OTHERS]; /* their strings are also owned */
    int n_others;
    char log[PATH_MAX], error_file[PATH_MAX];
    struct co_error log_trouble;
    struct co_error trouble; /* of ours */
    struct co_error exec_error;
    struct oom_finding oom;
    struct report_stuck stuck[MAX_STUCK];
    char stuck_texts[MAX_STUCK][STUCK_TEXT_BYTES];
    int n_stuck;
};

static void evidence_fini(struct evidence *e)
{
    free(e->message);
    free(e->text);
    free(e->tail);
    for (int i = 0; i < e->n_others; i++) {
        free((char *)e->others[i].error);
        free((char *)e->others[i].tail);
    }
}

/* Did the OOM killer have a part in it? A SIGKILL of ours is not evidence. */
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

/* Where to read on, and whether what is there is all. */
static void gather_files(const struct post_mortem *p, struct evidence *e, struct report *r)
{
    const int rank = supervisor_get_verdict(p->supervisor)->rank;
    r->log = rank_io_log_path(p->io, rank, 1, e->log, sizeof e->log);
    if (e->message != NULL && p->io->log_dir != NULL)
        r->error_file =
            rank_io_error_file(p->io, p->runtime_dir, rank, e->error_file, sizeof e->error_file);
    if (rank_io_bypasses(p->io, rank) && rank_io_check_room(p->io, rank, &e->log_trouble) < 0)
        r->log_trouble = e->log_trouble.text;
}

/* What the rank has left. */
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
    gather_files(p, e, r);
}

/* By itself: of others an exception may come of our signal. */
static bool has_failed(const struct supervisor_rank *r)
{
    return r->phase == RANK_ENDED && r->status != 0 &&
           (r->was_failing || r->lost_peer || r->signaled_first == 0);
}

/* Another rank's exception; of those that lost a peer only the first one. */
static void gather_error(const struct post_mortem *p, struct evidence *e, int rank, bool is_own)
{
    size_t n = 0;
    co_autofree char *words = rank_io_last_words(p->io, rank, &n, NULL);
    const struct error_text t = words != NULL ? error_text_judge(words, n) : (struct error_text){0};
    if (!t.is_exception || (t.kind == ERROR_OWN) != is_own)
        return;
    const size_t n_error = t.n < ERROR_TEXT_LINE_BYTES ? t.n : ERROR_TEXT_LINE_BYTES;
    co_autofree char *error = calloc(n_error + 1, 1);
    if (error == NULL)
        return;
    memcpy(error, t.line, n_error);
    co_utf8_clean(error, n_error);
    e->others[e->n_others++] = (struct report_other){
        .rank = rank,
        .is_own = is_own,
        .error = co_take(&error),
        .tail = is_own ? rank_io_tail(p->io, rank) : NULL,
    };
}

static void gather_others(const struct post_mortem *p, struct evidence *e, struct report *r)
{
    const struct supervisor *s = p->supervisor;
    const int root = report_is_ours(r) ? supervisor_get_verdict(s)->rank : -1;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < supervisor_n_ranks(s) && e->n_others < MAX_OTHERS; i++) {
            const bool is_own = pass == 0;
            if (i != root && has_failed(supervisor_get_rank(s, i)) &&
                (is_own || e->n_others == 0 || e->others[e->n_others - 1].is_own))
                gather_error(p, e, i, is_own);
        }
    r->others = e->others;
    r->n_others = e->n_others;
}

/* Orphans of the spawner are ours. */
static void gather_stuck(const struct post_mortem *p, struct evidence *e, struct report *r)
{
    const pid_t parents[2] = {p->spawner, getpid()};
    for (int i = 0; i < supervisor_n_ranks(p->supervisor) && e->n_stuck < MAX_STUCK; i++) {
        const struct supervisor_rank *rank = supervisor_get_rank(p->supervisor, i);
        char *text = e->stuck_texts[e->n_stuck];
        if (rank->pid > 0 && stuck_describe(rank->pid, parents, text))
            e->stuck[e->n_stuck++] = (struct report_stuck){.rank = i, .where = text};
    }
    r->stuck = e->stuck;
    r->n_stuck = e->n_stuck;
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
    if (is_well && !v->some_hang && p->result == NULL)
        return NULL;
    __attribute__((cleanup(evidence_fini))) struct evidence e = {0};
    char host[256] = "";
    gethostname(host, sizeof host - 1);

    struct report r = {.supervisor = p->supervisor,
                       .hang = p->hang,
                       .host = host,
                       .program = job_spec_program(p->spec, v->rank > 0 ? v->rank : 0).shown,
                       .begun_ms = p->begun_ms,
                       .now_ms = p->now_ms,
                       .goodput = p->goodput,
                       .after_progress = p->spec->restart_after_progress,
                       .no_progress = p->spec->no_progress,
                       .max_restarts = p->spec->restart_window_ms == 0 ? p->spec->max_restarts : 0,
                       .job = p->job,
                       .restart = p->restart};
    if (v->outcome == OUTCOME_RANK_FAILED && report_is_ours(&r))
        gather_of_rank(p, &e, &r);
    else if (v->outcome == OUTCOME_START_FAILED)
        explain_start(p, &e, &r);
    if (v->some_hang)
        gather_stuck(p, &e, &r);
    if (p->restart == NULL && !is_well)
        gather_others(p, &e, &r);
    if (p->result != NULL && node_result_make(&r, p->place, p->result) < 0)
        r.note = "out of memory: no report written";
    if (p->spec->n_local == 1) /* they stand right above */
        r.tail = NULL;
    return print(&r);
}
