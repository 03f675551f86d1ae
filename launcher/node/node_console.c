#include "node_console.h"

#include "launcher/diagnosis/flight_recorder.h"
#include "launcher/diagnosis/ras_query.h"
#include "launcher/diagnosis/stack.h"
#include "launcher/diagnosis/stacks.h"
#include "launcher/generation/generation.h"
#include "launcher/job/job_spec.h"
#include "launcher/platform/json_value.h"
#include "launcher/reporting/report.h"
#include "launcher/reporting/status_json.h"
#include "launcher/stdio/output.h"
#include "node_leave.h"
#include "node_roster.h"
#include "node_stacks.h"
#include "node_status.h"

#include "common/error.h"
#include "common/scope.h"
#include "console/console.h"
#include "console/job_request.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN_MS = 10 };

struct node_console {
    const struct node_view *node;
    struct console *console;       /* NULL: not open */
    struct stacks *stacks;         /* being collected; NULL: none */
    struct console_client *waiter; /* the client that gets them */
    uv_timer_t timer;
};

/* --- status --- */

static char *make_status(struct node_console *nc)
{
    struct node_status_data data;
    if (node_status_collect(nc->node, &data) < 0)
        return NULL;
    char *text = status_json_make(&data.status);
    node_status_release(&data);
    return text;
}

/* --- logs --- */

/* A rank's number here. returns -1 for one of another node, which is answered */
static int find_rank(struct node_console *nc, struct console_client *client, int rank)
{
    const struct node_view *n = nc->node;
    char why[96];
    const struct rank_numbers numbers = node_numbers(n);
    const int local_rank = rank_of_number(numbers, n->spec->n_local, rank);
    if (local_rank >= 0)
        return local_rank;
    snprintf(why, sizeof why, "rank %d is not on this node, which has ranks %d to %d", rank,
             numbers.first, rank_number(numbers, n->spec->n_local) - 1);
    console_refuse(client, why);
    return -1;
}

static json_t *log_path(const struct node_view *n, int local_rank, int which)
{
    char path[PATH_MAX];
    return json_value_text(rank_io_log_path(n->io, local_rank, which, path, sizeof path));
}

static void answer_logs(struct node_console *nc, struct console_client *client,
                        const struct job_request *r)
{
    const struct node_view *n = nc->node;
    size_t from = 0, len = 0;
    int local_rank = find_rank(nc, client, r->rank);
    if (local_rank < 0)
        return;
    co_autofree char *bytes = output_since(n->output, local_rank, (size_t)r->from, &from, &len);
    json_t *answer = json_pack(
        "{s:i,s:i,s:I,s:I,s:o,s:o,s:o}", "v", 1, "rank", r->rank, "from", (json_int_t)from, "to",
        (json_int_t)(from + len), "text", json_value_bytes(bytes != NULL ? bytes : "", len),
        "stdout_file", log_path(n, local_rank, 0), "stderr_file", log_path(n, local_rank, 1));
    console_answer(client, answer != NULL ? json_dumps(answer, JSON_COMPACT) : NULL);
    json_decref(answer);
}

/* --- stack --- */

static char *make_text(const struct stack *list, int n, const struct flights *flights,
                       const struct ras_query *ras)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    if (out == NULL)
        return NULL;
    stack_print_missing(list, n, out);
    for (int i = 0; i < n; i++)
        stack_print(&list[i], out);
    ras_query_print(ras, out);
    flight_recorder_print(flights, out);
    fclose(out);
    return text;
}

static void on_stacks(void *arg, const struct stack *list, int n, const struct flights *flights,
                      const struct ras_query *ras)
{
    struct node_console *nc = arg;
    struct console_client *client = nc->waiter;
    co_autofree char *text = make_text(list, n, flights, ras);
    const struct ras_report *nccl = ras_query_report(ras);
    json_t *ranks = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(ranks, stack_json_make(&list[i]));
    json_t *answer = json_pack(
        "{s:i,s:o,s:o,s:o,s:o,s:o}", "v", 1, "job", json_value_text(nc->node->spec->run_id),
        "ranks", ranks, "dumps", flight_recorder_json_make(flights), "nccl",
        nccl != NULL ? ras_report_json_make(nccl) : json_null(), "text", json_value_text(text));
    nc->stacks = NULL;
    nc->waiter = NULL;
    console_answer(client, answer != NULL ? json_dumps(answer, JSON_COMPACT) : NULL);
    json_decref(answer);
}

static void on_gone(void *arg, struct console_client *client)
{
    struct node_console *nc = arg;
    if (client != nc->waiter)
        return;
    stacks_cancel(nc->stacks);
    nc->stacks = NULL;
    nc->waiter = NULL;
}

static void begin_stacks(struct node_console *nc, struct console_client *client,
                         const struct job_request *r)
{
    struct co_error err;
    int local_rank = r->rank >= 0 ? find_rank(nc, client, r->rank) : -1;
    if (r->rank >= 0 && local_rank < 0)
        return;
    if (nc->stacks != NULL) {
        console_refuse(client, "another ddpctl command is in progress; try again");
        return;
    }
    const struct node_stacks_opts opts = {.local_rank = local_rank,
                                          .tool_rank = -1,
                                          .signal = r->signal,
                                          .has_tools = r->has_tools,
                                          .tool_ms = STACKS_TOOL_MS,
                                          .on_done = on_stacks,
                                          .arg = nc};
    if (node_stacks_begin(nc->node, &opts, &nc->stacks, &err) < 0)
        console_refuse(client, err.text);
    else
        nc->waiter = client;
}

/* --- stop and restart --- */

static void answer_done(struct console_client *client)
{
    console_answer(client, strdup("{\"v\":1}"));
}

/* The answer is gone before anything happens: the job may be over, and we with it, at once. */
static void do_stop(struct node_console *nc, struct console_client *client,
                    const struct job_request *r)
{
    const struct node_view *n = nc->node;
    char name[REPORT_SIGNAL_BYTES];
    bool stops = r->signal < 64 && (n->spec->stop_signals >> r->signal & 1) != 0;
    if (r->signal != SIGTERM && r->signal != SIGINT && r->signal != SIGHUP &&
        r->signal != SIGQUIT && !stops) {
        console_refuse(client, "this signal does not stop the job; use TERM, INT, HUP or QUIT");
        return;
    }
    answer_done(client);
    node_say(n, CO_NOTE, "ddpctl stops the %s with %s", r->whole_job ? "job" : "node",
             report_signal(r->signal, name, sizeof name));
    if (r->whole_job)
        node_roster_end_job(nc->node->parts->roster);
    node_leave_signal(n, r->signal, false);
}

/* The roster does it, and is asked before the answer: until it has heard that, nothing happens
 * here. */
static void do_restart(struct node_console *nc, struct console_client *client)
{
    const struct node_view *n = nc->node;
    if (node_roster_restart(nc->node->parts->roster))
        answer_done(client);
    else
        console_refuse(client, n->spec->world.has_others
                                   ? "no ranks are running on this node, or they are being stopped"
                                   : "the ranks are already being stopped");
}

/* --- All of it --- */

static void on_request(void *arg, struct console_client *client, const struct job_request *r)
{
    struct node_console *nc = arg;
    switch (r->type) {
    case JOB_REQUEST_STATUS:
        console_answer(client, make_status(nc));
        return;
    case JOB_REQUEST_LOGS:
        answer_logs(nc, client, r);
        return;
    case JOB_REQUEST_STOP:
        do_stop(nc, client, r);
        return;
    case JOB_REQUEST_RESTART:
        do_restart(nc, client);
        return;
    case JOB_REQUEST_STACK:
        begin_stacks(nc, client, r);
        return;
    case JOB_REQUEST_N_TYPES:
        break;
    }
    console_refuse(client, "unknown request; use a ddpctl of the same version");
}

static void on_open_timer(uv_timer_t *timer)
{
    struct node_console *nc = timer->data;
    const struct node_view *n = nc->node;
    struct co_error err;
    const struct console_opts opts = {.on_request = on_request, .on_gone = on_gone, .arg = nc};
    if (console_open(n->loop, n->runtime_dir, &opts, &nc->console, &err) < 0 &&
        n->spec->verbose > 0)
        node_say(n, CO_WARNING, "ddpctl cannot reach this job: %s", err.text);
}

static int open_console(const struct node_view *n, struct co_error *err)
{
    struct node_console *nc = calloc(1, sizeof *nc);
    if (nc == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    nc->node = n;
    uv_timer_init(n->loop, &nc->timer);
    nc->timer.data = nc;
    uv_timer_start(&nc->timer, on_open_timer, OPEN_MS, 0);
    n->parts->console = nc;
    return 0;
}

static void close_console(const struct node_view *n)
{
    struct node_console *nc = n->parts->console;
    if (nc == NULL)
        return;
    console_close(nc->console);
    stacks_cancel(nc->stacks);
    uv_close((uv_handle_t *)&nc->timer, node_free_data);
}

const struct node_feature node_console_feature = {.open = open_console, .close = close_console};
