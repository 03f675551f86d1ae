#include "post_mortem.h"

#include "error_file.h"
#include "job_spec.h"
#include "rank_io.h"
#include "rendezvous/member.h"
#include "report.h"
#include "report_json.h"
#include "supervisor.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"

#include <ddp/env.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Tell whoever started us, in torchrun's way. */
static int pass_root_cause_on(const struct post_mortem *p, const char *text, struct co_error *err)
{
    const int rank = supervisor_get_verdict(p->supervisor)->rank;
    const struct supervisor_rank *root = supervisor_get_rank(p->supervisor, rank);
    const char *path = getenv(DDP_ENV_ERROR_FILE);
    if (path == NULL || path[0] == '\0')
        return 0;
    char status[160];
    char message[256];
    snprintf(message, sizeof message, "rank %d failed: %s",
             (p->job != NULL ? p->job->first_rank : 0) + rank,
             report_status(root->status, status, sizeof status));
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

char *post_mortem(const struct post_mortem *p)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(p->supervisor);

    bool is_well = p->job != NULL ? p->job->end->exit_code == 0 : v->outcome == OUTCOME_WELL;
    if (is_well && !v->some_hang && p->spec->report == NULL)
        return NULL;
    co_autofree char *message = NULL;
    co_autofree char *text = NULL;
    co_autofree char *tail = NULL;
    struct co_error err;
    char host[256] = "";
    char path[4096];
    gethostname(host, sizeof host - 1);

    struct report r = {.supervisor = p->supervisor,
                       .host = host,
                       .program = p->spec->shown,
                       .path = p->spec->path,
                       .begun_ms = p->begun_ms,
                       .now_ms = co_now_ms(),
                       .job = p->job,
                       .max_restarts = p->spec->restart_window_ms == 0 ? p->spec->max_restarts : 0};
    if (v->outcome == OUTCOME_RANK_FAILED && report_is_ours(&r)) {
        rank_io_error_file(p->io, p->runtime_dir, v->rank, path, sizeof path);
        int rc = error_file_read(path, &message, &text, &err);
        if (rc < 0 && rc != -ENOENT)
            r.note = err.text;
        rc = v->restarts ? 0 : pass_root_cause_on(p, text, &err);
        if (rc < 0)
            r.note = err.text;
        tail = rank_io_tail(p->io, v->rank);
        r.error = message;
        r.tail = tail;
    }
    if (p->spec->report != NULL && !v->restarts &&
        report_json_write(p->spec->report, &r, p->spec->run_id, &err) < 0)
        r.note = err.text;
    if (p->spec->n_local == 1) /* they stand right above */
        r.tail = NULL;
    return print(&r);
}
