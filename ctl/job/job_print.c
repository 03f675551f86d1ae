#include "job_print.h"

#include "common/duration.h"
#include "common/scope.h"
#include "ctl/base/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

char *job_print_size(int64_t bytes, char buf[JOB_TEXT_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double size = (double)bytes;
    size_t unit = 0;
    while (size >= 1024 && unit < sizeof units / sizeof *units - 1) {
        size /= 1024;
        unit++;
    }
    snprintf(buf, JOB_TEXT_BYTES, unit == 0 || size >= 100 ? "%.0f %s" : "%.1f %s", size,
             units[unit]);
    return buf;
}

/* --- Values of an answer --- */

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "-";
}

static bool has_number(const json_t *object, const char *key)
{
    return json_is_integer(json_object_get(object, key));
}

static int64_t number_at(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* Of a value in seconds; 0 for one that is none, or out of reason. */
static int64_t milliseconds_at(const json_t *object, const char *key)
{
    const double s = json_number_value(json_object_get(object, key));
    return s > 0 && s < 1e12 ? (int64_t)(s * 1000 + 0.5) : 0;
}

static void add_number(struct table *t, const json_t *object, const char *key)
{
    if (has_number(object, key))
        table_add(t, "%" PRId64, number_at(object, key));
    else
        table_add(t, "-");
}

static void add_duration(struct table *t, const json_t *object, const char *key)
{
    char buf[JOB_TEXT_BYTES];
    table_add(t, "%s",
              has_number(object, key) ? co_duration_text(number_at(object, key), buf) : "-");
}

static void add_size(struct table *t, const json_t *object, const char *key)
{
    char buf[JOB_TEXT_BYTES];
    table_add(t, "%s", has_number(object, key) ? job_print_size(number_at(object, key), buf) : "-");
}

/* The words of the program, without directories. returns malloc'ed, NULL if memory runs out */
static char *make_program(const json_t *status)
{
    char *text = NULL;
    size_t n = 0, i;
    const json_t *word;
    FILE *out = open_memstream(&text, &n);
    if (out == NULL)
        return NULL;
    json_array_foreach(json_object_get(status, "program"), i, word)
    {
        const char *said = json_string_value(word);
        const char *slash = said != NULL && i == 0 ? strrchr(said, '/') : NULL;
        fprintf(out, "%s%s", i > 0 ? " " : "",
                said == NULL    ? "?"
                : slash != NULL ? slash + 1
                                : said);
    }
    fclose(out);
    return text;
}

/* --- The list --- */

static int64_t count_running(const json_t *status)
{
    int64_t n = 0;
    size_t i;
    const json_t *rank;
    json_array_foreach(json_object_get(status, "ranks"), i, rank) n +=
        strcmp(text_at(rank, "state"), "running") == 0;
    return n;
}

static void add_job(struct table *t, const json_t *status)
{
    co_autofree char *program = make_program(status);
    table_add(t, "%s", text_at(status, "job"));
    add_number(t, status, "pid");
    table_add(t, "%s", text_at(status, "state"));
    table_add(t, "%" PRId64 "/%" PRId64, number_at(status, "node"), number_at(status, "nodes"));
    table_add(t, "%" PRId64 "/%" PRId64, count_running(status), number_at(status, "world"));
    add_number(t, status, "generation");
    add_duration(t, status, "age_ms");
    table_add(t, "%s", program != NULL ? program : "-");
}

static void add_silent_job(struct table *t, const struct job_print_row *row)
{
    table_add(t, "?");
    if (row->pid != 0)
        table_add(t, "%d", row->pid);
    else
        table_add(t, "-");
    table_add(t, "no answer");
    for (int i = 0; i < 4; i++)
        table_add(t, "-");
    table_add(t, "%s", row->directory != NULL ? row->directory : "-");
}

static void add_user(struct table *t, uid_t uid)
{
    if (uid == (uid_t)-1)
        table_add(t, "-");
    else
        table_add(t, "%ju", (uintmax_t)uid);
}

int job_print_list(const struct job_print_row *rows, size_t n, bool has_users, int width, FILE *out)
{
    static const char *const heads[] = {">UID",   "JOB",  ">PID",    "STATE",  ">NODE",
                                        ">RANKS", ">GEN", ">UPTIME", "PROGRAM"};
    const int n_left_out = has_users ? 0 : 1;
    struct table t;
    table_init(&t, heads + n_left_out, (int)(sizeof heads / sizeof *heads) - n_left_out);
    for (size_t i = 0; i < n; i++) {
        if (has_users)
            add_user(&t, rows[i].uid);
        if (rows[i].status != NULL)
            add_job(&t, rows[i].status);
        else
            add_silent_job(&t, &rows[i]);
    }
    int rc = table_print(&t, 0, width, out);
    table_fini(&t);
    return rc;
}

/* --- One node --- */

/* "running", "stopped" (by a signal: it waits to be continued), "exit status 3", "SIGSEGV" */
static void add_state(struct table *t, const json_t *rank)
{
    const char *process = text_at(rank, "process_state");
    const char *name = sigabbrev_np((int)number_at(rank, "signal"));
    if (has_number(rank, "exit_code"))
        table_add(t, "exit status %" PRId64, number_at(rank, "exit_code"));
    else if (has_number(rank, "signal"))
        table_add(t, "SIG%s", name != NULL ? name : "?");
    else if (process[0] == 'T')
        table_add(t, "stopped");
    else if (process[0] == 't')
        table_add(t, "traced");
    else
        table_add(t, "%s", text_at(rank, "state"));
}

static void add_ms(struct table *t, const json_t *object, const char *key)
{
    const json_t *ms = json_object_get(object, key);
    if (json_is_real(ms))
        table_add(t, "%.3g ms", json_real_value(ms));
    else
        table_add(t, "-");
}

/* has_steps   with the columns that libddp reports */
static void add_rank(struct table *t, const json_t *rank, bool has_steps)
{
    const json_t *cpu = json_object_get(rank, "cpu_percent");
    add_number(t, rank, "rank");
    add_number(t, rank, "pid");
    add_state(t, rank);
    add_duration(t, rank, "age_ms");
    add_number(t, rank, "restarts");
    if (json_is_real(cpu))
        table_add(t, "%.0f %%", json_real_value(cpu));
    else
        table_add(t, "-");
    add_size(t, rank, "rss_bytes");
    if (has_steps) {
        add_number(t, rank, "steps");
        add_ms(t, rank, "own_ms");
        table_add(t, "%s", text_at(rank, "call"));
    }
    table_add(t, "%s", text_at(rank, "last_line"));
}

/* Cut to the terminal's width. */
static void print_line(const char *line, int width, FILE *out)
{
    co_autofree char *plain = strdup(line);
    if (plain == NULL)
        return;
    table_plain(plain);
    fprintf(out, "%.*s\n", (int)table_cut(plain, width > 0 ? (size_t)width : SIZE_MAX), plain);
}

/* "  step 812, 12.3 ms each; the slowest is rank 3: the others would save 12 % of a step" */
static void print_pace(const json_t *pace, int width, FILE *out)
{
    char line[256];
    if (!json_is_object(pace))
        return;
    snprintf(line, sizeof line,
             "  step %" PRId64 ", step time %.3g ms; the slowest rank is %" PRId64
             ": without it the step time would be %.0f %% less",
             number_at(pace, "steps"), json_real_value(json_object_get(pace, "step_ms")),
             number_at(pace, "slowest"), 100 * json_real_value(json_object_get(pace, "share")));
    print_line(line, width, out);
}

/* "  goodput 93.1 % of 12 min 3 s; the rest: start 3.20 s, restart 10.10 s" */
static void print_goodput(const json_t *goodput, int width, FILE *out)
{
    char took[JOB_TEXT_BYTES];
    co_autofree char *line = NULL;
    size_t n = 0;
    const char *cause;
    json_t *seconds;
    const char *before = "; the rest: ";
    if (!json_is_object(goodput))
        return;
    FILE *text = open_memstream(&line, &n);
    if (text == NULL)
        return;
    fprintf(text, "  goodput %.1f %% of %s%s",
            100 * json_number_value(json_object_get(goodput, "ratio")),
            co_duration_text(milliseconds_at(goodput, "total_s"), took),
            json_is_false(json_object_get(goodput, "by_steps")) ? " (no steps are reported)" : "");
    json_object_foreach(json_object_get(goodput, "seconds"), cause, seconds)
    {
        const int64_t ms = milliseconds_at(json_object_get(goodput, "seconds"), cause);
        if (ms == 0 || strcmp(cause, "productive") == 0)
            continue;
        fprintf(text, "%s%s %s", before, cause, co_duration_text(ms, took));
        before = ", ";
    }
    if (fclose(text) == 0)
        print_line(line, width, out);
}

/* "rank 3", or as the communicator knows it: "its rank 3 (pid 4711 on 10.0.0.7)" */
static void print_nccl_rank(const json_t *rank, FILE *out)
{
    if (has_number(rank, "job_rank"))
        fprintf(out, "rank %" PRId64, number_at(rank, "job_rank"));
    else if (has_number(rank, "pid"))
        fprintf(out, "its rank %" PRId64 " (pid %" PRId64 " on %s)", number_at(rank, "rank"),
                number_at(rank, "pid"), text_at(rank, "host"));
    else
        fprintf(out, "its rank %" PRId64, number_at(rank, "rank"));
}

typedef void print_fact(const json_t *rank, FILE *out);

static void print_lag(const json_t *rank, FILE *out)
{
    fprintf(out, " lags: it has started %" PRId64 " %s, others %" PRId64, number_at(rank, "count"),
            text_at(rank, "op"), number_at(rank, "most"));
}

static void print_missing(const json_t *rank, FILE *out)
{
    fprintf(out, " does not answer%s",
            json_is_true(json_object_get(rank, "dead")) ? ": NCCL considers it dead" : "");
}

static void print_error(const json_t *rank, FILE *out)
{
    fprintf(out, " has reported NCCL error %" PRId64, number_at(rank, "async_error"));
}

/* A line for each rank, with its communicator; *left: how many more may be printed. */
static void print_nccl_ranks(const json_t *comm, const char *list, print_fact *print, int *left,
                             int width, FILE *out)
{
    size_t i;
    const json_t *rank;
    json_array_foreach(json_object_get(comm, list), i, rank)
    {
        co_autofree char *line = NULL;
        size_t n = 0;
        FILE *text = *left > 0 ? open_memstream(&line, &n) : NULL;
        if (text == NULL)
            return;
        (*left)--;
        fprintf(text, "  NCCL communicator %s of %" PRId64 " ranks: ", text_at(comm, "hash"),
                number_at(comm, "size"));
        print_nccl_rank(rank, text);
        print(rank, text);
        if (fclose(text) == 0)
            print_line(line, width, out);
    }
}

/* What NCCL's RAS reported last. */
static void print_nccl(const json_t *nccl, int width, FILE *out)
{
    enum { MOST = 8 };
    char age[JOB_TEXT_BYTES], line[256];
    const json_t *comms = json_object_get(nccl, "communicators");
    const json_t *comm;
    int left = MOST;
    size_t i;
    if (!json_is_object(nccl))
        return;
    json_array_foreach(comms, i, comm)
    {
        print_nccl_ranks(comm, "lagging", print_lag, &left, width, out);
        print_nccl_ranks(comm, "missing", print_missing, &left, width, out);
        print_nccl_ranks(comm, "errors", print_error, &left, width, out);
    }
    co_duration_text(number_at(nccl, "age_ms"), age);
    if (!json_is_array(comms))
        snprintf(line, sizeof line, "  NCCL's RAS, %s ago: %.160s", age, text_at(nccl, "trouble"));
    else if (left == MOST)
        snprintf(line, sizeof line,
                 "  NCCL %.40s, %s ago: %" PRId64 " communicator%s, no rank lags",
                 text_at(nccl, "nccl"), age, number_at(nccl, "count"),
                 number_at(nccl, "count") == 1 ? "" : "s");
    else
        return;
    print_line(line, width, out);
}

static int print_head(const json_t *status, int width, FILE *out)
{
    char age[JOB_TEXT_BYTES];
    co_autofree char *program = make_program(status);
    co_autofree char *line = NULL;
    co_autofree char *what = NULL;
    if (asprintf(&line,
                 "job %s: %s, generation %" PRId64 ", uptime %s; node %" PRId64 " of %" PRId64
                 " on %s, pid %" PRId64,
                 text_at(status, "job"), text_at(status, "state"), number_at(status, "generation"),
                 co_duration_text(number_at(status, "age_ms"), age), number_at(status, "node"),
                 number_at(status, "nodes"), text_at(status, "host"),
                 number_at(status, "pid")) < 0 ||
        asprintf(&what, "  %s", program != NULL ? program : "-") < 0)
        return -ENOMEM;
    print_line(line, width, out);
    print_line(what, width, out);
    if (json_is_string(json_object_get(status, "waiting")))
        print_line(text_at(status, "waiting"), width, out);
    print_pace(json_object_get(status, "pace"), width, out);
    print_goodput(json_object_get(status, "goodput"), width, out);
    print_nccl(json_object_get(status, "nccl"), width, out);
    return 0;
}

/* "  rank 1 cannot connect to rank 2 on node 2 (n3) at 10.77.0.3 port 4711 ..." */
static void print_unreachable(const json_t *ranks, int width, FILE *out)
{
    enum { MOST = 8 };
    const json_t *rank;
    size_t i;
    int n = 0;
    json_array_foreach(ranks, i, rank)
    {
        co_autofree char *line = NULL;
        const char *text = text_at(rank, "unreachable");
        if (!json_is_string(json_object_get(rank, "unreachable")) || n++ == MOST)
            continue;
        if (asprintf(&line, "  rank %" PRId64 " %s", number_at(rank, "rank"), text) >= 0)
            print_line(line, width, out);
    }
}

/* Nodes of the job that take part in no generation, and why. */
static void print_unhealthy(const json_t *status, int width, FILE *out)
{
    enum { MOST = 4 };
    size_t i;
    const json_t *node;
    json_array_foreach(json_object_get(status, "unhealthy"), i, node)
    {
        co_autofree char *line = NULL;
        if (i < MOST && asprintf(&line, "  node %s is unhealthy: %s", text_at(node, "node"),
                                 text_at(node, "reason")) >= 0)
            print_line(line, width, out);
    }
}

static bool any_has(const json_t *ranks, const char *key)
{
    size_t i;
    const json_t *rank;
    json_array_foreach(ranks, i, rank) if (has_number(rank, key)) return true;
    return false;
}

int job_print_status(const json_t *status, int width, FILE *out)
{
    static const char *const heads[] = {">RANK",     ">PID", "STATE",   ">UPTIME",
                                        ">RESTARTS", ">CPU", ">MEMORY", "LAST LINE"};
    static const char *const more_heads[] = {">RANK",     ">PID",      "STATE",    ">UPTIME",
                                             ">RESTARTS", ">CPU",      ">MEMORY",  ">STEPS",
                                             ">OWN",      "LAST CALL", "LAST LINE"};
    struct table t;
    size_t i;
    const json_t *rank;
    const json_t *ranks = json_object_get(status, "ranks");
    bool has_steps = any_has(ranks, "steps");
    int rc = print_head(status, width, out);
    print_unreachable(ranks, width, out);
    print_unhealthy(status, width, out);
    if (has_steps)
        table_init(&t, more_heads, sizeof more_heads / sizeof *more_heads);
    else
        table_init(&t, heads, sizeof heads / sizeof *heads);
    json_array_foreach(ranks, i, rank) add_rank(&t, rank, has_steps);
    if (rc == 0)
        rc = table_print(&t, 2, width, out);
    table_fini(&t);
    return rc;
}

/* --- How it started --- */

static const char *const stages[] = {"started_ms", "came_ms", "joined_ms", "first_step_ms"};

enum { N_STAGES = sizeof stages / sizeof *stages, CAME = 1 };

/* The rank that reached a stage last, or first. returns   NULL: no rank has */
static const json_t *find_extreme(const json_t *ranks, int stage, bool is_last)
{
    const json_t *found = NULL;
    const json_t *rank;
    size_t i;
    json_array_foreach(ranks, i, rank)
    {
        int64_t ms = number_at(rank, stages[stage]);
        if (has_number(rank, stages[stage]) &&
            (found == NULL || (is_last ? ms > number_at(found, stages[stage])
                                       : ms < number_at(found, stages[stage]))))
            found = rank;
    }
    return found;
}

/* When all ranks of the job had reached the rendezvous. Unknown if the status has only some of the
 * ranks, as with several nodes.
 *
 * returns   -1: unknown, or some have not */
static int64_t find_meeting_ms(const json_t *status)
{
    const json_t *ranks = json_object_get(status, "ranks");
    const json_t *last = find_extreme(ranks, CAME, true);
    const json_t *rank;
    int64_t n = 0;
    size_t i;
    json_array_foreach(ranks, i, rank) n += has_number(rank, stages[CAME]);
    return last != NULL && n == number_at(status, "world") ? number_at(last, stages[CAME]) : -1;
}

/* How long the others had to wait for the one that needed most to get so far. */
static void print_late(const json_t *ranks, FILE *out)
{
    const json_t *first = find_extreme(ranks, CAME, false);
    const json_t *last = find_extreme(ranks, CAME, true);
    char when[JOB_TEXT_BYTES];
    if (first == last)
        return;
    int64_t late_ms = number_at(last, stages[CAME]) - number_at(first, stages[CAME]);
    fprintf(out, "  slowest: rank %" PRId64 " reached the rendezvous %s after the first one\n",
            number_at(last, "rank"), co_duration_text(late_ms, when));
}

/* The last stage that ranks have reached, and the rank that reached it last. */
static void print_slowest(const json_t *ranks, FILE *out)
{
    static const char *const actions[N_STAGES] = {"was executed", "reached the rendezvous",
                                                  "joined its peers", "completed its first step"};
    char when[JOB_TEXT_BYTES];
    for (int stage = N_STAGES - 1; stage >= 0; stage--) {
        const json_t *slowest = find_extreme(ranks, stage, true);
        if (slowest == NULL)
            continue;
        fprintf(out, "  last: rank %" PRId64 " %s after %s\n", number_at(slowest, "rank"),
                actions[stage], co_duration_text(number_at(slowest, stages[stage]), when));
        return;
    }
}

int job_print_start(const json_t *status, int width, FILE *out)
{
    static const char *const heads[] = {">RANK",       ">EXEC", ">IMPORT",
                                        ">RENDEZVOUS", ">INIT", ">FIRST STEP"};
    int64_t meeting_ms = find_meeting_ms(status);
    char when[JOB_TEXT_BYTES];
    struct table t;
    size_t i;
    const json_t *rank;
    const json_t *ranks = json_object_get(status, "ranks");
    int rc = print_head(status, width, out);
    table_init(&t, heads, sizeof heads / sizeof *heads);
    json_array_foreach(ranks, i, rank)
    {
        add_number(&t, rank, "rank");
        for (int stage = 0; stage < N_STAGES; stage++) {
            add_duration(&t, rank, stages[stage]);
            if (stage == CAME)
                table_add(&t, "%s", meeting_ms >= 0 ? co_duration_text(meeting_ms, when) : "-");
        }
    }
    if (rc == 0)
        rc = table_print(&t, 2, width, out);
    if (rc == 0) {
        print_late(ranks, out);
        print_slowest(ranks, out);
    }
    table_fini(&t);
    return rc;
}
