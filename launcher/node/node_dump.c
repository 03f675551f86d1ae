/* node_dump.c - what is kept of a failure. A generation takes its dump through these states:
 *
 *     NONE       nothing has failed
 *     COLLECTS   a failure is held back, while stacks are collected (node_dump_waits(),
 *                node_dump_holds()); in HANGS node_hang.c collects them, and holds nothing
 *     BEGUN      the ranks end; the report is awaited
 *     WRITTEN    the page exists, or could not be written
 *
 * Read begin_collecting(), on_stacks() and node_dump_finish() in this order. The next generation
 * begins in NONE. A failure without ranks to look at, such as one during the start, goes to BEGUN
 * with its report. A generation whose ranks live on has no report: its page is written when it
 * ends. */
#include "node_dump.h"

#include "launcher/diagnosis/flight_recorder.h"
#include "launcher/diagnosis/kernel_log.h"
#include "launcher/diagnosis/ras_query.h"
#include "launcher/diagnosis/stacks.h"
#include "launcher/job/job_spec.h"
#include "launcher/reporting/failure_page.h"
#include "launcher/reporting/report.h"
#include "launcher/stdio/log_files.h"
#include "node_stacks.h"

#include "common/error.h"
#include "common/scope.h"
#include "common/whole.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_HELD = 4 };

enum dump_state { DUMP_NONE, DUMP_COLLECTS, DUMP_HANGS, DUMP_BEGUN, DUMP_WRITTEN };

struct node_dump {
    const struct node_view *n;
    char *job_dir;    /* owned */
    int kernel_fd;    /* -1: the log cannot be read ... */
    int kernel_error; /* ... -errno */
    enum dump_state state;
    int n_dumps;
    struct stacks *stacks;    /* being collected; NULL: none, or node_hang.c has them */
    void (*go_on)(void *arg); /* NULL: no exit is held back */
    void *arg;
    struct supervisor_event held[MAX_HELD];
    int n_held;
    bool is_exit_first; /* it came before those events */
    /* of this failure; owned, NULL: not known */
    char **rank_stacks; /* by local rank */
    char *missing, *nccl, *recorder, *report;
    bool has_stacks;
    bool lives; /* its ranks live on */
};

static bool is_running(const struct node_dump *d)
{
    return supervisor_get_state(d->n->supervisor) == SUPERVISOR_RUNNING;
}

/* --- Files ------------------------------------------------------------------------------------ */

static void write_file(const struct node_dump *d, const char *name, const char *text)
{
    char path[PATH_MAX];
    struct co_error err;
    if (text == NULL || *text == '\0')
        return;
    log_files_path(d->job_dir, d->n->io->generation, -1, name, path, sizeof path);
    if (co_write_whole(path, text, strlen(text), &err) < 0)
        node_say(d->n, CO_WARNING, "--on-failure-dump: %s", err.text);
}

static void write_json(const struct node_dump *d, const char *name, json_t *value)
{
    co_autofree char *text = value != NULL ? json_dumps(value, JSON_INDENT(2)) : NULL;
    write_file(d, name, text);
    json_decref(value);
}

/* returns whether this failure is written down, and where it is exists */
static bool make_dir(struct node_dump *d)
{
    char path[PATH_MAX];
    if (d->n_dumps == NODE_DUMPS_MAX)
        return false;
    log_files_path(d->job_dir, d->n->io->generation, -1, "", path, sizeof path);
    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        node_say(d->n, CO_WARNING, "--on-failure-dump: cannot make '%s': %s", path,
                 strerror(errno));
        d->state = DUMP_WRITTEN; /* it is tried once in a generation */
        return false;
    }
    if (++d->n_dumps == NODE_DUMPS_MAX)
        node_say(d->n, CO_NOTE,
                 "this is failure %d that --on-failure-dump records: later ones are not recorded",
                 NODE_DUMPS_MAX);
    return true;
}

/* --- Stacks ----------------------------------------------------------------------------------- */

static char *make_text(void (*print)(const void *what, FILE *out), const void *what)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    print(what, out);
    fclose(out);
    return text;
}

struct stack_list {
    const struct stack *list;
    int n;
};

static void print_missing(const void *what, FILE *out)
{
    const struct stack_list *all = what;
    stack_print_missing(all->list, all->n, out);
}

static void print_stack(const void *what, FILE *out)
{
    stack_print(what, out);
}

static void print_nccl(const void *what, FILE *out)
{
    ras_query_print(what, out);
}

static void print_recorder(const void *what, FILE *out)
{
    flight_recorder_print(what, out);
}

void node_dump_take(const struct node_view *n, const struct stack *list, int n_stacks,
                    const struct flights *flights, const struct ras_query *ras)
{
    struct node_dump *d = n->parts->dump;
    const struct rank_numbers numbers = node_numbers(n);
    json_t *all = json_array();
    if (d == NULL || (d->state != DUMP_COLLECTS && d->state != DUMP_HANGS)) {
        json_decref(all);
        return;
    }
    for (int i = 0; i < n_stacks; i++) {
        const int local_rank = rank_of_number(numbers, n->spec->n_local, list[i].rank);
        json_array_append_new(all, stack_json_make(&list[i]));
        if (local_rank >= 0 && d->rank_stacks[local_rank] == NULL)
            d->rank_stacks[local_rank] = make_text(print_stack, &list[i]);
    }
    write_json(d, "stacks.json", all);
    if (ras_query_report(ras) != NULL)
        write_json(d, "nccl_ras.json", ras_report_json_make(ras_query_report(ras)));
    d->missing = make_text(print_missing, &(struct stack_list){list, n_stacks});
    d->nccl = make_text(print_nccl, ras);
    d->recorder = make_text(print_recorder, flights);
    d->has_stacks = true;
    d->state = DUMP_BEGUN;
}

/* The supervisor hears what it was not to hear before. */
static void release(struct node_dump *d)
{
    void (*go_on)(void *arg) = d->go_on;
    d->go_on = NULL;
    d->state = DUMP_BEGUN;
    if (go_on != NULL && d->is_exit_first)
        go_on(d->arg);
    for (int i = 0; i < d->n_held; i++)
        node_post(d->n, &d->held[i]);
    d->n_held = 0;
    if (go_on != NULL && !d->is_exit_first)
        go_on(d->arg);
}

static void on_stacks(void *arg, const struct stack *list, int n, const struct flights *flights,
                      const struct ras_query *ras)
{
    struct node_dump *d = arg;
    d->stacks = NULL;
    node_dump_take(d->n, list, n, flights, ras);
    release(d);
}

/* returns whether stacks are being collected */
static bool begin_collecting(struct node_dump *d)
{
    struct co_error err;
    const struct node_stacks_opts opts = {.local_rank = -1,
                                          .tool_rank = -1,
                                          .has_tools = true,
                                          .tool_ms = STACKS_TOOL_HANG_MS,
                                          .total_ms = JOB_FAILURE_DUMP_MS,
                                          .all_dump = true,
                                          .on_done = on_stacks,
                                          .arg = d};
    if (d->state == DUMP_COLLECTS)
        return true;
    if (d->state != DUMP_NONE || !is_running(d) || !make_dir(d))
        return false;
    d->state = node_stacks_begin(d->n, &opts, &d->stacks, &err) == 0 ? DUMP_COLLECTS : DUMP_BEGUN;
    return d->state == DUMP_COLLECTS;
}

bool node_dump_waits(const struct node_view *n, void (*go_on)(void *arg), void *arg)
{
    struct node_dump *d = n->parts->dump;
    if (d == NULL || d->go_on != NULL || !begin_collecting(d))
        return false;
    d->go_on = go_on;
    d->arg = arg;
    d->is_exit_first = d->n_held == 0;
    return true;
}

static bool is_end_of_generation(const struct supervisor_event *e)
{
    return e->type == SUPERVISOR_EV_TIMEOUT ||
           (e->type == SUPERVISOR_EV_ORDER_STOP && e->for_failure);
}

bool node_dump_holds(const struct node_view *n, const struct supervisor_event *e)
{
    struct node_dump *d = n->parts->dump;
    if (d == NULL || !is_end_of_generation(e) || d->n_held == MAX_HELD || !begin_collecting(d))
        return false;
    d->held[d->n_held++] = *e;
    return true;
}

bool node_dump_is_busy(const struct node_view *n)
{
    return n->parts->dump != NULL && n->parts->dump->state == DUMP_COLLECTS;
}

bool node_dump_begin(const struct node_view *n)
{
    struct node_dump *d = n->parts->dump;
    if (d == NULL || d->state != DUMP_NONE || !make_dir(d))
        return false;
    d->state = DUMP_HANGS;
    return true;
}

/* A signal, or an order to kill, stops the ranks meanwhile. */
static void on_step(const struct node_view *n)
{
    struct node_dump *d = n->parts->dump;
    if (d != NULL && d->state == DUMP_COLLECTS && !is_running(d))
        stacks_finish(d->stacks);
}

/* --- The page --------------------------------------------------------------------------------- */

static void forget(struct node_dump *d)
{
    for (int i = 0; i < d->n->spec->n_local; i++) {
        free(d->rank_stacks[i]);
        d->rank_stacks[i] = NULL;
    }
    free(d->missing);
    free(d->nccl);
    free(d->recorder);
    free(d->report);
    d->missing = d->nccl = d->recorder = d->report = NULL;
    d->has_stacks = false;
}

/* What is reported about a rank, as a file of its own. */
static void write_rank(const struct node_dump *d, const struct failure_rank *r)
{
    char name[32];
    co_autofree char *text = NULL;
    snprintf(name, sizeof name, "rank_%d.txt", r->rank);
    if (asprintf(&text, "rank %d, pid %d: %s\n%s%s%s%s", r->rank, (int)r->pid, r->end,
                 r->stack != NULL ? "\nStack, before the ranks were stopped:\n" : "",
                 r->stack != NULL ? r->stack : "",
                 r->tail != NULL ? "\nLast lines of its standard error:\n" : "",
                 r->tail != NULL ? r->tail : "") < 0)
        text = NULL;
    write_file(d, name, text);
}

static void print_kernel(const void *what, FILE *out)
{
    kernel_log_print(what, out);
}

static void print_page(const void *what, FILE *out)
{
    failure_page_print(what, out);
}

static char *read_kernel(const struct node_dump *d)
{
    co_autofree struct kernel_log *log = calloc(1, sizeof *log);
    if (log == NULL || d->kernel_fd < 0)
        return NULL;
    kernel_log_read(d->kernel_fd, log);
    return make_text(print_kernel, log);
}

static void write_page(const struct node_dump *d, const struct failure_page *page)
{
    co_autofree char *text = make_text(print_page, page);
    write_file(d, "index.html", text);
}

/* What a rank's entry borrows. */
struct rank_texts {
    char end[REPORT_FATE_BYTES];
    char *tail; /* owned */
};

/* The one that failed; -1: none of this node. */
static int find_cause(const struct node_dump *d)
{
    const struct supervisor *s = d->n->supervisor;
    return d->lives ? supervisor_get_replacement(s)->rank : supervisor_get_verdict(s)->rank;
}

/* A rank whose place another one takes is known as it was. */
static const struct supervisor_rank *find_rank(const struct node_dump *d, int local_rank)
{
    return d->lives && find_cause(d) == local_rank
               ? &supervisor_get_replacement(d->n->supervisor)->was
               : supervisor_get_rank(d->n->supervisor, local_rank);
}

static void fill_ranks(const struct node_dump *d, struct failure_rank *ranks,
                       struct rank_texts *texts)
{
    const struct node_view *n = d->n;
    for (int i = 0; i < n->spec->n_local; i++) {
        const struct supervisor_rank *r = find_rank(d, i);
        if (d->lives && r->phase == RANK_RUNS)
            snprintf(texts[i].end, sizeof texts[i].end, "continues");
        else
            report_fate(r, texts[i].end, sizeof texts[i].end);
        texts[i].tail = rank_io_tail(n->io, i);
        ranks[i] = (struct failure_rank){.rank = rank_number(node_numbers(n), i),
                                         .pid = r->pid,
                                         .end = texts[i].end,
                                         .stack = d->rank_stacks[i],
                                         .tail = texts[i].tail};
        write_rank(d, &ranks[i]);
    }
}

static void fill_page(const struct node_dump *d, struct failure_page *page)
{
    const struct node_view *n = d->n;
    const int cause = find_cause(d);
    char host[256] = "", trouble[96] = "";
    co_autofree char *kernel = read_kernel(d);
    gethostname(host, sizeof host - 1);
    if (d->kernel_fd < 0)
        snprintf(trouble, sizeof trouble, "The kernel's log cannot be read: %s.",
                 strerror(-d->kernel_error));
    page->run_id = n->spec->run_id;
    page->host = host;
    page->program = job_spec_program(n->spec, cause > 0 ? cause : 0).shown;
    page->version = DDPRUN_VERSION;
    page->generation = n->io->generation;
    page->node = n->start->place.node_rank;
    page->at_s = (int64_t)time(NULL);
    page->report = d->report;
    page->missing = d->missing;
    page->nccl = d->nccl;
    page->recorder = d->recorder;
    page->kernel = kernel;
    page->no_kernel = trouble;
    page->no_stacks = d->has_stacks ? NULL : "No stacks: no rank ran when the failure was found.";
    page->cause = cause >= 0 ? rank_number(node_numbers(n), cause) : -1;
    write_file(d, "report.txt", d->report);
    write_file(d, "kernel.txt", kernel);
    write_page(d, page);
}

static void write_all(const struct node_dump *d)
{
    const size_t n_local = (size_t)d->n->spec->n_local;
    co_autofree struct failure_rank *ranks = calloc(n_local, sizeof *ranks);
    co_autofree struct rank_texts *texts = calloc(n_local, sizeof *texts);
    struct failure_page page = {.ranks = ranks, .n_ranks = (int)n_local};
    char path[PATH_MAX];
    if (ranks == NULL || texts == NULL)
        return;
    fill_ranks(d, ranks, texts);
    fill_page(d, &page);
    for (size_t i = 0; i < n_local; i++)
        free(texts[i].tail);
    node_say(d->n, CO_NOTE, "what is known about this failure is in %s",
             log_files_path(d->job_dir, d->n->io->generation, -1, "index.html", path, sizeof path));
}

/* Failures of the start have no ranks to look at. */
static bool is_failure(const struct supervisor_verdict *v)
{
    return v->outcome == OUTCOME_RANK_FAILED || v->outcome == OUTCOME_TIMEOUT ||
           v->outcome == OUTCOME_INTERNAL;
}

void node_dump_note_report(const struct node_view *n, const char *report)
{
    struct node_dump *d = n->parts->dump;
    if (d == NULL)
        return;
    if (d->state == DUMP_NONE && is_failure(supervisor_get_verdict(n->supervisor)) && make_dir(d))
        d->state = DUMP_BEGUN;
    if (d->state != DUMP_BEGUN && d->state != DUMP_HANGS)
        return;
    free(d->report);
    d->report = report != NULL ? strdup(report) : NULL;
}

void node_dump_finish(const struct node_view *n)
{
    struct node_dump *d = n->parts->dump;
    if (d == NULL || (d->state != DUMP_BEGUN && d->state != DUMP_HANGS))
        return;
    write_all(d);
    forget(d);
    d->state = DUMP_WRITTEN;
}

/* --- The whole -------------------------------------------------------------------------------- */

static void on_end(const struct node_view *n, bool lives)
{
    if (n->parts->dump == NULL)
        return;
    n->parts->dump->lives = lives;
    node_dump_finish(n);
    forget(n->parts->dump);
    n->parts->dump->lives = false;
    n->parts->dump->state = DUMP_NONE;
}

static void destroy(struct node_dump *d)
{
    if (d->rank_stacks != NULL)
        forget(d);
    free(d->rank_stacks);
    free(d->job_dir);
    co_close_fd(&d->kernel_fd);
    free(d);
}

static int dump_open(const struct node_view *n, struct co_error *err)
{
    struct co_error trouble;
    if (n->spec->failure_dump == NULL)
        return 0;
    struct node_dump *d = calloc(1, sizeof *d);
    if (d == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    d->n = n;
    d->kernel_fd = d->kernel_error = kernel_log_open("");
    d->rank_stacks = calloc((size_t)n->spec->n_local, sizeof *d->rank_stacks);
    int rc = d->rank_stacks != NULL ? 0 : co_fail(&trouble, -ENOMEM, "out of memory");
    if (rc == 0)
        rc = log_files_make(n->spec->failure_dump, n->spec->run_id, &d->job_dir, &trouble);
    if (rc < 0) {
        destroy(d);
        return co_fail(err, rc, "--on-failure-dump: %s", trouble.text);
    }
    n->parts->dump = d;
    n->parts->dump_dir = d->job_dir;
    return 0;
}

/* A job that did not fail leaves nothing. */
static void dump_close(const struct node_view *n)
{
    struct node_dump *d = n->parts->dump;
    if (d == NULL)
        return;
    stacks_cancel(d->stacks);
    rmdir(d->job_dir);
    destroy(d);
    n->parts->dump = NULL;
    n->parts->dump_dir = NULL;
}

const struct node_feature node_dump_feature = {
    .open = dump_open, .on_step = on_step, .on_end = on_end, .close = dump_close};
