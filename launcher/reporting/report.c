/* The report after a job. report_print() chooses by the outcome: print_rank_failed() begins with
 * the root cause and continues with the outcome of the other ranks, those with the same text in one
 * line (print_others()); print_verdict() is for jobs of several nodes. The first functions of the
 * file make words of signals, statuses and times, for other files too. Read report_print()
 * first. */
#include "report.h"

#include "launcher/diagnosis/hang_report.h"
#include "launcher/diagnosis/oom.h"
#include "launcher/diagnosis/oom_report.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/membership/member.h"
#include "rendezvous/membership/roster.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

char *report_signal(int sig, char *buf, size_t n)
{
    const char *abbreviation = sigabbrev_np(sig);
    if (abbreviation != NULL)
        snprintf(buf, n, "SIG%s", abbreviation);
    else
        snprintf(buf, n, "signal %d", sig);
    return buf;
}

char *report_status(int status, char *buf, size_t n)
{
    if (!WIFSIGNALED(status)) {
        snprintf(buf, n, "exit status %d", WEXITSTATUS(status));
        return buf;
    }
    char name[REPORT_SIGNAL_BYTES];
    const char *words = sigdescr_np(WTERMSIG(status));
    report_signal(WTERMSIG(status), name, sizeof name);
    snprintf(buf, n, "killed by %s%s%s%s%s", name, words != NULL ? " (" : "",
             words != NULL ? words : "", words != NULL ? ")" : "",
             WCOREDUMP(status) ? ", core dumped" : "");
    return buf;
}

static bool was_forwarded(const struct supervisor_rank *r)
{
    return WIFSIGNALED(r->status) && WTERMSIG(r->status) == r->forwarded;
}

char *report_end(const struct supervisor_rank *r, char *buf, size_t n)
{
    char status[REPORT_STATUS_BYTES];
    char name[REPORT_SIGNAL_BYTES];
    if (r->was_failing && supervisor_is_of_ours(r))
        snprintf(buf, n, "stopped by ddprun (%s) while it failed",
                 report_signal(WTERMSIG(r->status), name, sizeof name));
    else
        snprintf(buf, n, "%s%s", report_status(r->status, status, sizeof status),
                 was_forwarded(r) ? ", which ddprun forwarded" : "");
    return buf;
}

char *report_duration(uint64_t ms, char *buf, size_t n)
{
    uint64_t s = ms / 1000;
    if (s < 60)
        snprintf(buf, n, "%" PRIu64 ".%02" PRIu64 " s", s, ms % 1000 / 10);
    else if (s < 3600)
        snprintf(buf, n, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
    else
        snprintf(buf, n, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s % 3600 / 60);
    return buf;
}

void report_fate(const struct supervisor_rank *r, char *buf, size_t n)
{
    char sent[REPORT_SIGNAL_BYTES];
    report_signal(r->signaled_first, sent, sizeof sent);
    switch (r->phase) {
    case RANK_NOT_STARTED:
    case RANK_ASKED:
        snprintf(buf, n, "not started");
        return;
    case RANK_FAILED_TO_START:
        snprintf(buf, n, "could not be started: %s", strerror(r->status));
        return;
    case RANK_RUNS:
        snprintf(buf, n, "killed by ddprun");
        return;
    case RANK_ENDED:
        break;
    }
    char status[REPORT_END_BYTES];
    report_end(r, status, sizeof status);
    if (r->was_failing && supervisor_is_of_ours(r)) {
        snprintf(buf, n, "%s", status);
    } else if (r->lost_peer && supervisor_is_of_ours(r)) {
        snprintf(buf, n, "stopped by ddprun (%s) after a peer was lost",
                 report_signal(WTERMSIG(r->status), sent, sizeof sent));
    } else if (r->lost_peer && r->status != 0) {
        snprintf(buf, n, "%s after a peer was lost", status);
    } else if (r->signaled_first == 0 || was_forwarded(r)) {
        snprintf(buf, n, "%s", r->status == 0 ? "succeeded" : status);
    } else if (supervisor_is_of_ours(r)) {
        report_signal(WTERMSIG(r->status), sent, sizeof sent);
        snprintf(buf, n, "stopped by ddprun (%s)", sent);
    } else {
        snprintf(buf, n, "%s after %s from ddprun", status, sent);
    }
}

/* The job's number of a local rank. */
static int number(const struct report *r, int local_rank)
{
    return rank_number(report_numbers(r), local_rank);
}

/* A rank that the job continued without was reported when it was dropped, and no longer has a
 * number. */
static bool is_other(const struct supervisor *s, int rank, int root)
{
    return rank != root && !supervisor_get_rank(s, rank)->is_dropped;
}

/* Print "  ranks 0, 2-7: TEXT" for the ranks from first on that share first's fate. */
static void print_group(FILE *out, const struct report *r, int first, int root, const char *text)
{
    const struct supervisor *s = r->supervisor;
    char other[REPORT_FATE_BYTES];
    int n = 0;
    int last = -2; /* end of the current range */
    bool open_range = false;
    for (int i = first; i < supervisor_n_ranks(s); i++) {
        report_fate(supervisor_get_rank(s, i), other, sizeof other);
        n += is_other(s, i, root) && strcmp(other, text) == 0;
    }
    fprintf(out, n == 1 ? "  rank " : "  ranks ");
    for (int i = first; i < supervisor_n_ranks(s); i++) {
        report_fate(supervisor_get_rank(s, i), other, sizeof other);
        if (!is_other(s, i, root) || strcmp(other, text) != 0)
            continue;
        if (i == last + 1) {
            open_range = true;
        } else {
            if (open_range)
                fprintf(out, "-%d", number(r, last));
            fprintf(out, "%s%d", last < 0 ? "" : ", ", number(r, i));
            open_range = false;
        }
        last = i;
    }
    if (open_range)
        fprintf(out, "-%d", number(r, last));
    fprintf(out, ": %s\n", text);
}

static bool was_printed(const struct supervisor *s, int rank, int root, const char *text)
{
    char other[REPORT_FATE_BYTES];
    for (int i = 0; i < rank; i++) {
        report_fate(supervisor_get_rank(s, i), other, sizeof other);
        if (is_other(s, i, root) && strcmp(other, text) == 0)
            return true;
    }
    return false;
}

static void print_others(FILE *out, const struct report *r, int root)
{
    const struct supervisor *s = r->supervisor;
    char text[REPORT_FATE_BYTES];
    for (int i = 0; i < supervisor_n_ranks(s); i++) {
        if (!is_other(s, i, root))
            continue;
        report_fate(supervisor_get_rank(s, i), text, sizeof text);
        if (!was_printed(s, i, root, text))
            print_group(out, r, i, root, text);
    }
}

/* Each line of text after a margin. */
static void print_lines(FILE *out, const char *margin, const char *text)
{
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");
        fprintf(out, "%s%.*s\n", margin, (int)n, text);
        text += n + (text[n] == '\n');
    }
}

/* From the last Python traceback on, else the last few lines. */
static const char *worth_printing(const char *tail)
{
    const char *start = NULL;
    for (const char *p = tail; (p = strstr(p, "Traceback (most recent call last)")) != NULL; p++)
        start = p;
    while (start != NULL && start > tail && start[-1] != '\n')
        start--; /* "[rank1]: Traceback ..." */
    if (start != NULL)
        return start;
    const char *p = tail + strlen(tail);
    for (int n_lines = 0; p > tail; p--) {
        if (p[-1] == '\n' && n_lines++ == REPORT_TAIL_LINES)
            break;
    }
    return p;
}

static void print_files(FILE *out, const struct report *r)
{
    if (r->log != NULL)
        fprintf(out, "  its standard error is in %s\n", r->log);
    if (r->log_trouble != NULL)
        fprintf(out, "  its log files may be incomplete: %s\n", r->log_trouble);
    if (r->error_file != NULL)
        fprintf(out, "  its error file is %s\n", r->error_file);
}

/* Errors that other ranks have reported; one line for all that lost a peer. */
static void print_other_errors(FILE *out, const struct report *r)
{
    for (int i = 0; i < r->n_others; i++) {
        const struct report_other *o = &r->others[i];
        fprintf(out, "  rank %d %s: %s\n", number(r, o->rank),
                o->is_own ? "also failed" : "lost a peer", o->error);
        if (o->is_own && o->tail != NULL)
            print_lines(out, "    | ", worth_printing(o->tail));
    }
}

static void print_rank_failed(FILE *out, const struct report *r, int rank)
{
    const struct supervisor_rank *root = supervisor_get_rank(r->supervisor, rank);
    char status[REPORT_END_BYTES];
    char lived[REPORT_DURATION_BYTES];
    char hang[HANG_TEXT_BYTES];
    fprintf(out, "ddprun: error: rank %d failed: %s, %s after its start\n", number(r, rank),
            report_end(root, status, sizeof status),
            report_duration(root->ended_ms - root->started_ms, lived, sizeof lived));
    fprintf(out, "  host %s, local rank %d, pid %d, %s\n", r->host, rank, (int)root->pid,
            r->program);
    if (r->hang != NULL)
        fprintf(out, "  terminated by ddprun because it hung: %s\n",
                hang_text(r->hang, report_numbers(r), hang));
    if (r->oom != NULL)
        oom_text_print(out, r->oom);
    if (r->error != NULL) {
        size_t first_line = strcspn(r->error, "\n");
        fprintf(out, "  error: %.*s\n", (int)first_line, r->error);
        if (r->error[first_line] != '\0')
            print_lines(out, "         ", r->error + first_line + 1);
    }
    if (r->tail != NULL) {
        fprintf(out, "  last lines of its stderr:\n");
        print_lines(out, "    | ", worth_printing(r->tail));
    }
    print_files(out, r);
}

static void print_internal(FILE *out, const struct report *r, int rank)
{
    if (rank < 0) {
        fprintf(
            out,
            "ddprun: error: internal error: the process that starts and reaps the ranks is gone; "
            "all ranks were killed\n");
        return;
    }
    int code = supervisor_get_rank(r->supervisor, rank)->status;
    fprintf(out, "ddprun: error: cannot start rank %d: %s\n", number(r, rank), strerror(code));
    if (code == EAGAIN)
        fprintf(out, "  the limit on processes is reached: check ulimit -u and the control group's "
                     "pids.max\n");
    else if (code == EMFILE)
        fprintf(out, "  the limit on open files is reached: raise it with ulimit -n\n");
    else if (code == EPERM || code == ENOSYS)
        fprintf(out, "  ddprun needs memfd_create(2) and clone(2): a seccomp filter or the kernel "
                     "refuses one of them\n");
}

/* What is known of the failure that all ranks are started again for. It may be no rank's. */
static void print_why_restart(FILE *out, const struct report *r)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(r->supervisor);
    char status[REPORT_END_BYTES];
    char time[REPORT_DURATION_BYTES];
    if (v->rank < 0) {
        fprintf(out, "ddprun: note: the generation failed");
        return;
    }
    const struct supervisor_rank *root = supervisor_get_rank(r->supervisor, v->rank);
    fprintf(out, "ddprun: note: rank %d failed: %s, %s after its start", number(r, v->rank),
            report_end(root, status, sizeof status),
            report_duration(root->ended_ms - root->started_ms, time, sizeof time));
}

static void print_restart(FILE *out, const struct report *r)
{
    char time[REPORT_DURATION_BYTES];
    char brief[OOM_GROUP_BYTES + REPORT_STATUS_BYTES];
    print_why_restart(out, r);
    if (r->error != NULL)
        fprintf(out, " (%.*s)", (int)strcspn(r->error, "\n"), r->error);
    if (r->oom != NULL && r->oom->blame != OOM_BLAME_NONE)
        fprintf(out, " (%s)", oom_text_brief(r->oom, brief, sizeof brief));
    fprintf(out, "; restart %" PRIu32, supervisor_generation(r->supervisor) + 1);
    if (r->restart->is_free)
        fprintf(out, " (after progress)");
    else if (r->after_progress && r->max_restarts > 0)
        fprintf(out, " (%" PRIu32 " of %d without progress)", r->restart->n_counted,
                r->max_restarts);
    else if (r->max_restarts > 0)
        fprintf(out, " of %d", r->max_restarts);
    if (r->restart->wait_ms > 0)
        fprintf(out, " in %s", report_duration(r->restart->wait_ms, time, sizeof time));
    fprintf(out, "\n");
}

static void print_stopped(FILE *out, const struct report *r, int sig)
{
    char name[REPORT_SIGNAL_BYTES];
    char took[REPORT_DURATION_BYTES];
    fprintf(out, "ddprun: note: stopped by %s after %s\n", report_signal(sig, name, sizeof name),
            report_duration(r->now_ms - r->begun_ms, took, sizeof took));
}

bool report_is_ours(const struct report *r)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(r->supervisor);
    if (r->job == NULL)
        return true;
    const struct member_end *end = r->job->end;
    return end->by_roster &&
           (end->outcome == MESSAGE_RANK_FAILED || end->outcome == MESSAGE_STUCK) && v->rank >= 0 &&
           end->rank == number(r, v->rank);
}

/* What happened elsewhere, then what became of the ranks here. */
static void print_job_end(FILE *out, const struct report *r)
{
    const struct member_end *end = r->job->end;
    if (end->exit_code == 0 || r->job->is_reported_elsewhere)
        return;
    if (end->by_roster && !end->took_part && end->outcome == MESSAGE_WELL)
        fprintf(out, "ddprun: error: %s\n", end->text);
    else if (end->signal != 0)
        print_stopped(out, r, end->signal);
    else
        fprintf(out, "ddprun: error: %s\n", end->text);
    print_other_errors(out, r);
    if (supervisor_get_rank(r->supervisor, 0)->phase != RANK_NOT_STARTED)
        print_others(out, r, -1);
}

static void print_verdict(FILE *out, const struct report *r, const struct supervisor_verdict *v)
{
    char took[REPORT_DURATION_BYTES];
    switch (v->outcome) {
    case OUTCOME_NONE:
    case OUTCOME_WELL:
    case OUTCOME_ORDERED:
        break;
    case OUTCOME_RANK_FAILED:
        print_rank_failed(out, r, v->rank);
        print_other_errors(out, r);
        print_others(out, r, v->rank);
        break;
    case OUTCOME_START_FAILED:
        fprintf(out, "ddprun: error: %s\n", r->error);
        break;
    case OUTCOME_SIGNAL:
        print_stopped(out, r, v->signal);
        print_others(out, r, -1);
        break;
    case OUTCOME_TIMEOUT:
        fprintf(out, "ddprun: error: the job timed out after %s (--timeout)\n",
                report_duration(r->now_ms - r->begun_ms, took, sizeof took));
        print_others(out, r, -1);
        break;
    case OUTCOME_INTERNAL:
        print_internal(out, r, v->rank);
        break;
    }
}

/* The ranks among them are known; of what they have started, the spawner knows the processes. */
static void print_unkillable(FILE *out, const struct report *r)
{
    const char *before = ": pid ";
    fprintf(out,
            "  some processes survived SIGKILL (stuck in the kernel, for example on NFS or in a "
            "GPU driver)");
    for (int i = 0; i < supervisor_n_ranks(r->supervisor); i++) {
        const struct supervisor_rank *rank = supervisor_get_rank(r->supervisor, i);
        if (rank->phase != RANK_RUNS)
            continue;
        fprintf(out, "%s%d", before, (int)rank->pid);
        before = ", ";
    }
    fprintf(out, "\n");
    for (int i = 0; i < r->n_stuck; i++)
        fprintf(out, "    rank %d (pid %d) %s\n", number(r, r->stuck[i].rank),
                (int)supervisor_get_rank(r->supervisor, r->stuck[i].rank)->pid, r->stuck[i].where);
}

/* Of a job of several nodes only the coordinator knows the last step. */
static void print_no_progress(FILE *out, const struct report *r)
{
    fprintf(out, "  no progress: the last %" PRIu32 " generation%s completed no new step",
            r->no_progress, r->no_progress == 1 ? "" : "s");
    if (r->job == NULL && supervisor_total_steps(r->supervisor) > 0)
        fprintf(out, "; this one ended after step %" PRIu64, supervisor_total_steps(r->supervisor));
    else if (r->job == NULL)
        fprintf(out, "; no rank reported a step");
    fprintf(out, " (--no-progress); do not requeue the job unchanged\n");
}

void report_print(FILE *out, const struct report *r)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(r->supervisor);
    const uint32_t generation = supervisor_generation(r->supervisor);
    bool is_well = r->job != NULL ? r->job->end->exit_code == 0
                                  : v->outcome == OUTCOME_NONE || v->outcome == OUTCOME_WELL;
    if (r->restart != NULL && r->restart->why == MESSAGE_WHY_RESTART) {
        fprintf(out, "ddprun: note: restarting all ranks as requested; restart %" PRIu32 "\n",
                supervisor_generation(r->supervisor) + 1);
        return;
    }
    if (r->restart != NULL) {
        print_restart(out, r);
        return;
    }
    if (report_is_ours(r))
        print_verdict(out, r, v);
    else
        print_job_end(out, r);
    if (v->is_stuck && report_is_ours(r))
        print_no_progress(out, r);
    if (r->job == NULL && !is_well && generation > 0)
        fprintf(out, "  after %" PRIu32 " restart%s\n", generation, generation == 1 ? "" : "s");
    if (v->some_hang)
        print_unkillable(out, r);
    if (r->note != NULL && is_well)
        fprintf(out, "ddprun: warning: %s\n", r->note);
    else if (r->note != NULL)
        fprintf(out, "  note: %s\n", r->note);
}
