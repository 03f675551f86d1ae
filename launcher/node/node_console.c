#include "node_console.h"

#include "console.h"
#include "launcher/diagnosis/flight_recorder.h"
#include "launcher/diagnosis/stack.h"
#include "launcher/diagnosis/stacks.h"
#include "launcher/generation/generation.h"
#include "launcher/generation/node_memory.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/worker_env.h"
#include "launcher/platform/json_value.h"
#include "launcher/reporting/report.h"
#include "launcher/reporting/status_json.h"
#include "launcher/stdio/output.h"
#include "launcher/supervisor/pace.h"
#include "node_goodput.h"
#include "node_leave.h"
#include "node_roster.h"
#include "node_stacks.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "console/job_request.h"
#include "rendezvous/server/server.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPEN_MS = 10 };

struct rank_facts {
    uint32_t n_starts;
    uint64_t came_ms; /* the last time; a rank may come before we hear that it was started */
    char *tail;       /* owned while a status is made */
};

struct node_console {
    const struct node_view *node;
    struct console *console;       /* NULL: not open */
    struct stacks *stacks;         /* being collected; NULL: none */
    struct console_client *waiter; /* the client that gets them */
    uv_timer_t timer;
    uint64_t n_looked_at;  /* connections that the store had had when arrivals were looked for */
    uint64_t looked_in_ms; /* and the beginning of the generation then */
    struct rank_facts ranks[];
};

static void note_event(const struct node_view *n, const struct supervisor_event *e)
{
    struct rank_facts *ranks = n->parts->console->ranks;
    if (e->type == SUPERVISOR_EV_STARTED)
        ranks[e->rank].n_starts++;
    else if (e->type == SUPERVISOR_EV_JOINED)
        ranks[e->rank].came_ms = co_now_ms();
}

/* --- status --- */

/* The last one that is not empty, in place. */
static const char *last_line(char *tail)
{
    if (tail == NULL)
        return NULL;
    size_t n = strlen(tail);
    while (n > 0 && tail[n - 1] == '\n')
        tail[--n] = '\0';
    const char *newline = strrchr(tail, '\n');
    return newline != NULL ? newline + 1 : tail;
}

/* What is in memory: a request must not make the loop wait for a slow file system. */
static char *tail_at_hand(const struct rank_io *io, int local_rank)
{
    return rank_io_bypasses(io, local_rank) ? NULL : rank_io_tail(io, local_rank);
}

/* A rank that reports nothing itself may have connected to the store. Look again when a connection
 * has arrived since. */
static void look_for_arrivals(struct node_console *nc, uint64_t generation_ms)
{
    const struct node_view *n = nc->node;
    int n_local = n->spec->n_local;
    uint64_t n_connections = n->gen->store != NULL ? server_n_connections(n->gen->store) : 0;
    if (n_connections == 0 ||
        (n_connections == nc->n_looked_at && generation_ms == nc->looked_in_ms))
        return;
    co_autofree struct arrival *list = calloc((size_t)n_local, sizeof *list);
    nc->n_looked_at = n_connections;
    nc->looked_in_ms = generation_ms;
    for (int i = 0; list != NULL && i < n_local; i++) {
        const struct supervisor_rank *r = supervisor_get_rank(n->supervisor, i);
        if (r->phase == RANK_RUNS && nc->ranks[i].came_ms < generation_ms)
            list[i].pid = r->pid;
    }
    if (list != NULL)
        store_arrivals_find(n->gen->store, list, n_local);
    for (int i = 0; list != NULL && i < n_local; i++)
        if (list[i].came_ms != 0)
            nc->ranks[i].came_ms = list[i].came_ms;
}

static void fill_ranks(struct node_console *nc, struct status_rank *ranks)
{
    uint64_t generation_ms = supervisor_generation_ms(nc->node->supervisor);
    look_for_arrivals(nc, generation_ms);
    for (int i = 0; i < nc->node->spec->n_local; i++) {
        struct rank_facts *r = &nc->ranks[i];
        r->tail = tail_at_hand(nc->node->io, i);
        ranks[i] = (struct status_rank){.last_line = last_line(r->tail),
                                        .came_ms = r->came_ms >= generation_ms ? r->came_ms : 0,
                                        .restarts = r->n_starts > 0 ? r->n_starts - 1 : 0};
    }
}

/* How fast the steps are, as libddp's ranks report. */
static void judge_pace(const struct node_view *n, struct status_rank *ranks, struct pace *ret)
{
    int n_local = n->spec->n_local;
    co_autofree struct pace_rank *paces = calloc((size_t)n_local, sizeof *paces);
    *ret = (struct pace){.slowest = -1};
    for (int i = 0; paces != NULL && i < n_local; i++) {
        uint64_t digest;
        struct status_rank *r = &ranks[i];
        r->wait = node_memory_wait_of(n->gen->memory, i);
        r->has_progress = node_memory_read_progress(n->gen->memory, i, &r->progress, &digest);
        paces[i] = pace_of(r->has_progress ? &r->progress : NULL);
        r->own_ns = paces[i].is_known ? paces[i].own_ns : 0;
    }
    if (paces != NULL)
        pace_judge(paces, n_local, ret);
}

static char *make_status(struct node_console *nc)
{
    const struct node_view *n = nc->node;
    co_autofree struct status_rank *ranks = calloc((size_t)n->spec->n_local, sizeof *ranks);
    char host[256] = "";
    if (ranks == NULL)
        return NULL;
    gethostname(host, sizeof host - 1);
    struct pace pace;
    fill_ranks(nc, ranks);
    judge_pace(n, ranks, &pace);
    const uint64_t now_ms = co_now_ms();
    const struct goodput_sums goodput = node_goodput_read(n, now_ms);
    struct status s = {.spec = n->spec,
                       .supervisor = n->supervisor,
                       .ranks = ranks,
                       .pace = &pace,
                       .goodput = &goodput,
                       .host = host,
                       .version = DDPRUN_VERSION,
                       .events = n->events->real_path,
                       .pid = getpid(),
                       .now_ms = now_ms,
                       .begun_ms = n->begun_ms,
                       .generation_ms = supervisor_generation_ms(n->supervisor)};
    struct generation_place place = {0};
    node_roster_fill_place(nc->node->parts->roster, &place, &s.first_rank);
    s.node = place.node_rank;
    s.n_nodes = place.n_nodes;
    s.world = place.world_size;
    s.waiting = node_roster_waiting(nc->node->parts->roster);
    char *text = status_json_make(&s);
    for (int i = 0; i < n->spec->n_local; i++) {
        free(nc->ranks[i].tail);
        nc->ranks[i].tail = NULL;
    }
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

static char *make_text(const struct stack *list, int n, const struct flights *flights)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    if (out == NULL)
        return NULL;
    stack_print_missing(list, n, out);
    for (int i = 0; i < n; i++)
        stack_print(&list[i], out);
    flight_recorder_print(flights, out);
    fclose(out);
    return text;
}

static void on_stacks(void *arg, const struct stack *list, int n, const struct flights *flights)
{
    struct node_console *nc = arg;
    struct console_client *client = nc->waiter;
    co_autofree char *text = make_text(list, n, flights);
    json_t *ranks = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(ranks, stack_json_make(&list[i]));
    json_t *answer = json_pack("{s:i,s:o,s:o,s:o,s:o}", "v", 1, "job",
                               json_value_text(nc->node->spec->run_id), "ranks", ranks, "dumps",
                               flight_recorder_json_make(flights), "text", json_value_text(text));
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
    struct node_console *nc =
        calloc(1, sizeof *nc + (size_t)n->spec->n_local * sizeof nc->ranks[0]);
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

const struct node_feature node_console_feature = {
    .open = open_console, .on_event = note_event, .close = close_console};
