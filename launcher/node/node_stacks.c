#include "node_stacks.h"

#include "launcher/diagnosis/flight_recorder.h"
#include "launcher/diagnosis/ras_query.h"
#include "launcher/diagnosis/stack.h"
#include "launcher/diagnosis/stacks.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/worker_env.h"
#include "launcher/platform/own_addresses.h"
#include "launcher/reporting/status_json.h"
#include "launcher/stdio/log_files.h"
#include "launcher/stdio/output.h"
#include "launcher/torch/torch_hook.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/process.h"
#include "common/scope.h"

#include <ddp/env.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- torch's flight recorder --- */

static const char *get_variable(const char *name)
{
    return getenv(name);
}

/* A stopped process would never answer. */
static bool can_dump(const struct node_view *n, int local_rank)
{
    const struct supervisor_rank *r = supervisor_get_rank(n->supervisor, local_rank);
    struct co_process process;
    return r->phase == RANK_RUNS && co_process_look(r->pid, &process, NULL) == 0 &&
           process.state != 'T' && process.state != 't';
}

/* Where copies are put: among the log files, else into the dump of this failure, if there is one.
 * NULL: nowhere. */
static const char *find_dir(const struct node_view *n, char dir[PATH_MAX])
{
    const char *job_dir = n->io->log_dir != NULL ? n->io->log_dir : n->parts->dump_dir;
    return job_dir != NULL
               ? log_files_path(job_dir, n->io->generation, -1, "flight_recorder", dir, PATH_MAX)
               : NULL;
}

static void forget(const struct node_view *n)
{
    flight_recorder_destroy(n->parts->flights);
    n->parts->flights = NULL;
}

/* The ranks' environment is ours, and what ddprun adds to it has nothing to do with this. */
static struct flights *ask_flights(const struct node_view *n, int local_rank)
{
    struct flight_recorder_names names;
    struct flights *flights = NULL;
    char dir[PATH_MAX];
    const struct rank_numbers numbers = node_numbers(n);
    int n_asked = 0;
    co_autofree int *ranks = calloc((size_t)n->spec->n_local, sizeof *ranks);
    flight_recorder_find_names(&names, get_variable);
    if (ranks == NULL || names.pipe[0] == '\0')
        return NULL;
    for (int i = 0; i < n->spec->n_local; i++)
        if ((local_rank < 0 || local_rank == i) && can_dump(n, i))
            ranks[n_asked++] = rank_number(numbers, i);
    flight_recorder_ask(&names, ranks, n_asked, find_dir(n, dir), co_now_ms(), &flights, NULL);
    if (flights != NULL && local_rank < 0)
        forget(n);
    return flights;
}

/* What is there already is not of the ranks that are about to be started. */
static int watch(const struct node_view *n)
{
    struct flight_recorder_names names;
    char dir[PATH_MAX];
    const struct rank_numbers numbers = node_numbers(n);
    co_autofree int *ranks = calloc((size_t)n->spec->n_local, sizeof *ranks);
    forget(n);
    flight_recorder_find_names(&names, get_variable);
    if (ranks == NULL || !names.is_chosen)
        return 0;
    for (int i = 0; i < n->spec->n_local; i++)
        ranks[i] = rank_number(numbers, i);
    flight_recorder_watch(&names, ranks, n->spec->n_local, find_dir(n, dir), &n->parts->flights,
                          NULL);
    return 0;
}

void node_stacks_tell_flights(const struct node_view *n)
{
    char *text = NULL;
    size_t size = 0;
    if (n->parts->flights == NULL ||
        supervisor_get_verdict(n->supervisor)->outcome != OUTCOME_RANK_FAILED)
        return;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return;
    flight_recorder_take(n->parts->flights);
    flight_recorder_print(n->parts->flights, out);
    if (fclose(out) == 0 && size > 0)
        output_report(n->output, text);
    free(text);
    forget(n);
}

enum { RAS_LOOK_MS = 50 }; /* at a poll that is under way */

struct node_ras {
    const struct node_view *n;
    uv_timer_t timer;
    struct ras_query *query; /* under way; NULL: none */
    struct ras_query *last;  /* over, and it has a report or a reason; NULL: none */
    uint64_t last_ms;
};

/* --- NCCL's RAS: asking --- */

struct ras_ranks { /* which processes are ranks of this node */
    const struct node_view *n;
    char host[RAS_TEXT_BYTES]; /* that was asked for last ... */
    bool is_here;              /* ... and whether it is this one */
};

static int rank_of_process(void *arg, const char *host, pid_t pid)
{
    struct ras_ranks *r = arg;
    if (strcmp(host, r->host) != 0) {
        snprintf(r->host, sizeof r->host, "%s", host);
        r->is_here = own_addresses_have(host);
    }
    const int local_rank = r->is_here ? node_rank_above(r->n, pid) : -1;
    return local_rank >= 0 ? rank_number(node_numbers(r->n), local_rank) : -1;
}

enum { ADDRESS_BYTES = 32 };

/* The ranks have our environment, and ddprun adds an address where it has none.
 * returns   NULL: the ranks have no RAS that is known */
static const char *find_address(const struct node_view *n, char own[ADDRESS_BYTES])
{
    const char *address = getenv(DDP_ENV_NCCL_RAS_ADDR);
    if (address != NULL && *address != '\0')
        return address;
    if (n->start->place.ras_port == 0)
        return NULL;
    snprintf(own, ADDRESS_BYTES, "127.0.0.1:%u", (unsigned)n->start->place.ras_port);
    return own;
}

/* returns   ras_query_destroy() it; NULL: the ranks have no RAS that is known, or memory is out */
static struct ras_query *ask_nccl(const struct node_view *n)
{
    char own[ADDRESS_BYTES];
    const char *address = find_address(n, own);
    struct ras_query *query;
    struct ras_ranks *ranks = address != NULL ? calloc(1, sizeof *ranks) : NULL;
    if (ranks == NULL)
        return NULL;
    ranks->n = n;
    const struct ras_query_opts opts = {
        .address = address, .rank_of = rank_of_process, .on_free = free, .arg = ranks};
    if (ras_query_begin(&opts, co_now_ms(), &query) == 0)
        return query;
    free(ranks);
    return NULL;
}

/* --- NCCL's RAS: polling --- */

static void set_timer(struct node_ras *p, uint64_t ms);

/* returns whether a process has answered, or could have */
static bool keep(struct node_ras *p)
{
    const bool is_any =
        ras_query_report(p->query) != NULL || ras_query_trouble(p->query)[0] != '\0';
    ras_query_destroy(is_any ? p->last : p->query);
    if (is_any) {
        p->last = p->query;
        p->last_ms = co_now_ms();
    }
    p->query = NULL;
    return is_any;
}

static void on_time(uv_timer_t *timer)
{
    struct node_ras *p = timer->data;
    const bool wants = supervisor_get_state(p->n->supervisor) == SUPERVISOR_RUNNING &&
                       p->n->start->place.node_rank == 0;
    if (p->query == NULL && wants)
        p->query = ask_nccl(p->n);
    if (ras_query_look(p->query, co_now_ms()))
        set_timer(p, RAS_LOOK_MS);
    else if (p->query != NULL && keep(p))
        set_timer(p, RAS_POLL_MS);
    else
        set_timer(p, RAS_FIRST_MS);
}

static void set_timer(struct node_ras *p, uint64_t ms)
{
    uv_timer_start(&p->timer, on_time, ms, 0);
}

void node_stacks_fill_nccl(const struct node_view *n, struct status *s)
{
    const struct node_ras *p = n->parts->ras;
    if (p == NULL || p->last == NULL)
        return;
    s->nccl = ras_query_report(p->last);
    s->nccl_trouble = ras_query_trouble(p->last);
    s->nccl_ms = p->last_ms;
}

static void forget_ras(struct node_ras *p)
{
    ras_query_destroy(p->query);
    ras_query_destroy(p->last);
    p->query = p->last = NULL;
}

static int stacks_open(const struct node_view *n, struct co_error *err)
{
    struct node_ras *p = calloc(1, sizeof *p);
    if (p == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    p->n = n;
    uv_timer_init(n->loop, &p->timer);
    p->timer.data = p;
    n->parts->ras = p;
    return 0;
}

static void begin_polling(const struct node_view *n)
{
    struct node_ras *p = n->parts->ras;
    char own[ADDRESS_BYTES];
    if (find_address(n, own) != NULL && !uv_is_active((uv_handle_t *)&p->timer))
        set_timer(p, RAS_FIRST_MS);
}

static void stacks_on_end(const struct node_view *n, bool lives)
{
    forget_ras(n->parts->ras);
    if (!lives)
        uv_timer_stop(&n->parts->ras->timer);
}

static void close_ras(const struct node_view *n)
{
    struct node_ras *p = n->parts->ras;
    n->parts->ras = NULL;
    if (p == NULL)
        return;
    forget_ras(p);
    uv_close((uv_handle_t *)&p->timer, node_free_data);
}

static int stacks_on_generation(const struct node_view *n)
{
    begin_polling(n);
    return watch(n);
}

static void stacks_close(const struct node_view *n)
{
    forget(n);
    close_ras(n);
}

const struct node_feature node_stacks_feature = {.open = stacks_open,
                                                 .on_generation = stacks_on_generation,
                                                 .on_end = stacks_on_end,
                                                 .close = stacks_close};

/* --- Stacks --- */

/* The path of its log, if its stderr does not come through us. returns malloc'ed, or NULL */
static char *find_stderr(const struct node_view *n, int local_rank)
{
    char path[PATH_MAX];
    if (!rank_io_bypasses(n->io, local_rank))
        return NULL;
    const char *found = rank_io_log_path(n->io, local_rank, 1, path, sizeof path);
    return found != NULL ? strdup(found) : NULL;
}

struct servers {
    const struct node_view *n;
    char **paths; /* by local rank */
};

/* The rank itself before its children. */
static void on_server(void *arg, pid_t pid, const char *path)
{
    const struct servers *s = arg;
    const int rank = node_rank_above(s->n, pid);
    if (rank < 0 ||
        (s->paths[rank] != NULL && supervisor_get_rank(s->n->supervisor, rank)->pid != pid))
        return;
    free(s->paths[rank]);
    s->paths[rank] = strdup(path);
}

char **node_stacks_find_servers(const struct node_view *n)
{
    struct servers s = {.n = n, .paths = calloc((size_t)n->spec->n_local, sizeof *s.paths)};
    if (s.paths != NULL)
        torch_hook_list(n->torch_hook, on_server, &s);
    return s.paths;
}

/* What the list of ranks borrows, for each of them. */
struct rank_more {
    char *stderr_path; /* owned */
    struct progress progress;
};

/* returns how many run */
static int list_ranks(const struct node_view *n, const struct node_stacks_opts *opts,
                      char *const *servers, struct stacks_rank *ranks, struct rank_more *more)
{
    const struct rank_numbers numbers = node_numbers(n);
    int n_found = 0;
    for (int i = 0; i < n->spec->n_local; i++) {
        const struct supervisor_rank *r = supervisor_get_rank(n->supervisor, i);
        struct rank_more *m = &more[n_found];
        uint64_t digest;
        if (r->phase != RANK_RUNS || (opts->local_rank >= 0 && opts->local_rank != i))
            continue;
        bool has_page = generation_read_progress(n->gen, i, &m->progress, &digest);
        m->stderr_path = find_stderr(n, i);
        ranks[n_found++] =
            (struct stacks_rank){.local_rank = i,
                                 .rank = rank_number(numbers, i),
                                 .pid = r->pid,
                                 .progress = has_page ? &m->progress : NULL,
                                 .stderr_path = m->stderr_path,
                                 .server = servers[i],
                                 .signal = generation_stack_signal(n->gen, i),
                                 .no_tool = opts->tool_rank >= 0 && opts->tool_rank != i};
    }
    return n_found;
}

int node_stacks_begin(const struct node_view *n, const struct node_stacks_opts *opts,
                      struct stacks **ret, struct co_error *err)
{
    size_t n_local = (size_t)n->spec->n_local;
    co_autofree struct stacks_rank *ranks = calloc(n_local, sizeof *ranks);
    co_autofree struct rank_more *more = calloc(n_local, sizeof *more);
    co_autofree char **servers = node_stacks_find_servers(n);
    if (ranks == NULL || more == NULL || servers == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int n_found = list_ranks(n, opts, servers, ranks, more);
    struct flights *flights =
        n_found > 0 ? ask_flights(n, opts->all_dump ? -1 : opts->local_rank) : NULL;
    const struct stacks_opts all = {.parent = n->spawner->pid,
                                    .output = n->output,
                                    .signal = opts->signal,
                                    .has_tools = opts->has_tools,
                                    .tool_ms = opts->tool_ms,
                                    .total_ms =
                                        opts->total_ms != 0 ? opts->total_ms : STACKS_TOTAL_MS,
                                    .flights = flights,
                                    .ras = n_found > 0 ? ask_nccl(n) : NULL,
                                    .on_done = opts->on_done,
                                    .arg = opts->arg};
    int rc = n_found > 0             ? stacks_begin(n->loop, &all, ranks, n_found, ret, err)
             : opts->local_rank >= 0 ? co_fail(err, -ESRCH, "this rank is not running")
                                     : co_fail(err, -ESRCH, "no rank is running on this node");
    for (size_t i = 0; i < n_local; i++) {
        free(more[i].stderr_path);
        free(servers[i]);
    }
    if (rc < 0) {
        flight_recorder_destroy(flights);
        ras_query_destroy(all.ras);
    }
    return rc;
}

/* --- In a message --- */

enum {
    SHOWN_STACKS = 16,
    STACK_LINES = 48, /* of each */
};

/* After "|", as the last lines of a rank's stderr are. */
static void print_lines(FILE *out, const char *line)
{
    for (int i = 0; i < STACK_LINES && *line != '\0'; i++) {
        const size_t n = strcspn(line, "\n");
        fprintf(out, "    | %.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
    if (*line != '\0')
        fprintf(out, "    | ...\n");
}

/* Its frames, else the kernel's stack (only root can read it), else why it has no frames. */
static void tell_stack(const struct node_view *n, const struct stack *stack)
{
    char *text = NULL;
    size_t size = 0;
    const char *note = stack->note;
    const char *lines = stack->text != NULL ? stack->text : stack->where.kernel;
    if (*lines == '\0' && *note == '\0')
        return;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return;
    fprintf(out, "  where rank %d is%s%s%s%s:\n", stack->rank,
            stack->text == NULL && *lines != '\0' ? " in the kernel" : "",
            *note != '\0' ? " (" : "", note, *note != '\0' ? ")" : "");
    print_lines(out, *lines != '\0' ? lines : "no stack available");
    if (fclose(out) == 0)
        output_report(n->output, text);
    free(text);
}

/* By torch's calls. */
static void tell_missing(const struct node_view *v, const struct stack *list, int n)
{
    char *text = NULL, line[512];
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return;
    stack_print_missing_in_torch(list, n, out);
    if (fclose(out) == 0)
        for (const char *at = text; *at != '\0'; at += strcspn(at, "\n") + 1) {
            snprintf(line, sizeof line, "  %.*s\n", (int)strcspn(at, "\n"), at);
            output_report(v->output, line);
        }
    free(text);
}

static void tell_dumps(const struct node_view *v, const struct flights *flights,
                       const struct ras_query *ras)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return;
    ras_query_print(ras, out);
    flight_recorder_print(flights, out);
    if (fclose(out) == 0 && size > 0)
        output_report(v->output, text);
    free(text);
}

void node_stacks_tell(const struct node_view *v, int first, const struct stack *list, int n,
                      const struct flights *flights, const struct ras_query *ras)
{
    int n_shown = 0;
    tell_missing(v, list, n);
    for (int i = 0; i < n; i++)
        if (list[i].rank == first)
            tell_stack(v, &list[i]);
    for (int i = 0; i < n && n_shown < SHOWN_STACKS; i++)
        if (list[i].rank != first && list[i].text != NULL) {
            tell_stack(v, &list[i]);
            n_shown++;
        }
    tell_dumps(v, flights, ras);
}
