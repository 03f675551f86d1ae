/* history.c - builds lists of runs, stops, and marks out of lines of events.
 *
 * Read history_add() first: a line is parsed, take_event() checks that it belongs to this job, and
 * the function in `kinds` for its event adds to the lists. A run is open between its rank_start and
 * its rank_exit. history_finish() sorts the lists and finds how each run ended; history_page.c
 * prints them. */
#include "history.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Lists --- */

/* Make space for one more in a list of n. returns whether it succeeded */
static bool make_room(void **list, size_t n, size_t bytes)
{
    if (n > 0 && (n & (n - 1)) != 0) /* grown at powers of two */
        return true;
    void *grown = realloc(*list, (n > 0 ? 2 * n : 1) * bytes);
    if (grown == NULL)
        return false;
    *list = grown;
    return true;
}

void history_init(struct history *h, const char *job)
{
    *h = (struct history){.max_events = HISTORY_MAX_EVENTS};
    if (job != NULL)
        snprintf(h->job, sizeof h->job, "%s", job);
}

void history_fini(struct history *h)
{
    for (size_t i = 0; i < h->n_marks; i++)
        free(h->marks[i].text);
    tdestroy(h->open_runs, free);
    free(h->marks);
    free(h->stops);
    free(h->runs);
    free(h->paces);
    free(h->program);
    *h = (struct history){0};
}

/* --- An event --- */

struct event {
    const json_t *line;
    const char *name;
    double at_s;
    int generation, node;
};

static const char *text_of(const struct event *e, const char *key)
{
    const char *text = json_string_value(json_object_get(e->line, key));
    return text != NULL ? text : "";
}

/* -1 for a value that is not an integer from 0 to 9999999. */
static int number_of(const struct event *e, const char *key)
{
    const json_t *value = json_object_get(e->line, key);
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    return number >= 0 && number <= 9999999 ? (int)number : -1;
}

static bool is_true(const struct event *e, const char *key)
{
    return json_is_true(json_object_get(e->line, key));
}

/* text: printf()'s */
__attribute__((format(printf, 4, 5))) static int add_mark(struct history *h, const struct event *e,
                                                          const char *kind, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0)
        return -ENOMEM;
    if (!make_room((void **)&h->marks, h->n_marks, sizeof *h->marks)) {
        free(text);
        return -ENOMEM;
    }
    h->marks[h->n_marks++] = (struct history_mark){.at_s = e->at_s,
                                                   .n_nodes = 1,
                                                   .generation = e->generation,
                                                   .node = e->node,
                                                   .rank = number_of(e, "rank"),
                                                   .kind = kind,
                                                   .text = text};
    return 0;
}

static int add_trouble(struct history *h, int rc)
{
    if (rc == 0)
        h->marks[h->n_marks - 1].is_trouble = true;
    return rc;
}

/* --- Runs whose end was not read yet --- */

/* A tree, because it stays fast with a file that was crafted to be slow to read. */
struct open_run {
    int rank;
    int64_t pid;
    char host[HISTORY_NAME_BYTES];
    size_t last; /* the index of the latest run in the list, plus 1; 0: none is open */
};

static int64_t pid_of(const struct event *e)
{
    return json_integer_value(json_object_get(e->line, "pid"));
}

static int compare_open(const void *a, const void *b)
{
    const struct open_run *one = a, *other = b;
    if (one->rank != other->rank)
        return one->rank < other->rank ? -1 : 1;
    if (one->pid != other->pid)
        return one->pid < other->pid ? -1 : 1;
    return strcmp(one->host, other->host);
}

/* run: the last one of the list */
static int open_run(struct history *h, struct history_run *run)
{
    struct open_run *mine = calloc(1, sizeof *mine);
    if (mine == NULL)
        return -ENOMEM;
    mine->rank = run->rank;
    mine->pid = run->pid;
    memcpy(mine->host, run->host, sizeof mine->host);
    struct open_run **there = tsearch(mine, &h->open_runs, compare_open);
    if (there == NULL || *there != mine) {
        struct open_run *same = there != NULL ? *there : NULL;
        free(mine);
        mine = same;
    }
    if (mine == NULL)
        return -ENOMEM;
    run->open_before = mine->last;
    mine->last = h->n_runs;
    return 0;
}

/* The run that ends: the last one of that rank, pid and host. returns NULL: not found */
static struct history_run *close_run(struct history *h, const struct event *e)
{
    struct open_run key = {.rank = number_of(e, "rank"), .pid = pid_of(e)};
    snprintf(key.host, sizeof key.host, "%s", text_of(e, "host"));
    struct open_run *const *there = tfind(&key, &h->open_runs, compare_open);
    if (there == NULL || (*there)->last == 0)
        return NULL;
    struct history_run *run = &h->runs[(*there)->last - 1];
    (*there)->last = run->open_before;
    return run;
}

/* --- Each kind of event --- */

typedef int reader(struct history *h, const struct event *e);

static int read_job_start(struct history *h, const struct event *e)
{
    size_t n = 0, i;
    const json_t *word;
    char *text = NULL;
    FILE *out = open_memstream(&text, &n);
    if (out == NULL)
        return -ENOMEM;
    json_array_foreach(json_object_get(e->line, "argv"), i, word)
    {
        const char *said = json_string_value(word);
        fprintf(out, "%s%s", i > 0 ? " " : "", said != NULL ? said : "?");
    }
    if (fclose(out) != 0)
        return -ENOMEM;
    free(h->program);
    h->program = text;
    int n_ranks = number_of(e, "ranks");
    int rc = add_mark(h, e, HISTORY_JOB_START, "%s started with %d rank%s", text_of(e, "host"),
                      n_ranks, n_ranks == 1 ? "" : "s");
    if (rc == 0)
        h->marks[h->n_marks - 1].number = n_ranks;
    return rc;
}

static int read_rank_start(struct history *h, const struct event *e)
{
    if (number_of(e, "rank") < 0) {
        h->n_unread++;
        return 0;
    }
    if (!make_room((void **)&h->runs, h->n_runs, sizeof *h->runs))
        return -ENOMEM;
    struct history_run *run = &h->runs[h->n_runs++];
    *run = (struct history_run){.rank = number_of(e, "rank"),
                                .node = e->node,
                                .generation = e->generation,
                                .pid = pid_of(e),
                                .begun_s = e->at_s,
                                .code = -1};
    snprintf(run->host, sizeof run->host, "%s", text_of(e, "host"));
    return open_run(h, run);
}

static int read_start_failed(struct history *h, const struct event *e)
{
    int number = number_of(e, "errno");
    return add_trouble(h, add_mark(h, e, "rank_start_failed", "rank %d cannot be started: %s",
                                   number_of(e, "rank"),
                                   number > 0 ? strerror(number) : "reason unknown"));
}

static int read_rank_exit(struct history *h, const struct event *e)
{
    struct history_run *run = close_run(h, e);
    if (run == NULL) {
        h->n_unread++;
        return 0;
    }
    run->has_ended = true;
    run->ended_s = e->at_s;
    run->code = number_of(e, "code");
    run->lost_peer = is_true(e, "lost_peer");
    snprintf(run->signal, sizeof run->signal, "%s", text_of(e, "signal"));
    return 0;
}

static int add_stop(struct history *h, const struct event *e)
{
    if (!make_room((void **)&h->stops, h->n_stops, sizeof *h->stops))
        return -ENOMEM;
    h->stops[h->n_stops++] = (struct history_stop){.at_s = e->at_s,
                                                   .generation = e->generation,
                                                   .node = e->node,
                                                   .rank = number_of(e, "rank")};
    return 0;
}

static int read_stop(struct history *h, const struct event *e)
{
    if (add_stop(h, e) < 0)
        return -ENOMEM;
    const char *why = text_of(e, "why");
    if (strcmp(why, "failure") == 0 && number_of(e, "rank") >= 0)
        return add_trouble(
            h, add_mark(h, e, "stop", "rank %d failed: stopping its peers", number_of(e, "rank")));
    if (strcmp(why, "signal") == 0)
        return add_mark(h, e, "stop", "stopped by %s", text_of(e, "signal"));
    if (strcmp(why, "restart") == 0)
        return add_mark(h, e, "stop", "restart requested");
    if (strcmp(why, "timeout") == 0)
        return add_trouble(h, add_mark(h, e, "stop", "the job timed out"));
    return add_trouble(h, add_mark(h, e, "stop", "stopped (%s): %s", why, text_of(e, "text")));
}

static int read_restart(struct history *h, const struct event *e)
{
    return add_mark(h, e, "restart", "restarting all ranks (delay %d ms%s)",
                    number_of(e, "wait_ms"), is_true(e, "counted") ? "" : "; not counted");
}

static int read_replace(struct history *h, const struct event *e)
{
    return add_trouble(h, add_mark(h, e, "replace", "rank %d failed: replacing it%s",
                                   number_of(e, "rank"),
                                   is_true(e, "counted") ? "" : " (not counted)"));
}

static int read_shrink(struct history *h, const struct event *e)
{
    return add_trouble(h, add_mark(h, e, "shrink", "rank %d failed: continuing without it%s",
                                   number_of(e, "rank"),
                                   is_true(e, "counted") ? "" : " (not counted)"));
}

static int read_hang(struct history *h, const struct event *e)
{
    const json_t *call = json_object_get(e->line, "call");
    const char *op = json_string_value(json_object_get(call, "op"));
    char where[128] = "";
    if (op != NULL)
        snprintf(where, sizeof where, ": its peers wait in %.60s #%" JSON_INTEGER_FORMAT, op,
                 json_integer_value(json_object_get(call, "number")));
    return add_trouble(h, add_mark(h, e, "hang", "rank %d hangs (%s)%s", number_of(e, "rank"),
                                   text_of(e, "kind"), where));
}

static int read_oom(struct history *h, const struct event *e)
{
    return add_trouble(h, add_mark(h, e, "oom", "out of memory: the OOM killer killed rank %d (%s)",
                                   number_of(e, "rank"), text_of(e, "blame")));
}

static int read_place(struct history *h, const struct event *e)
{
    return add_mark(h, e, "rdzv", "%s is node %d of %d, in a world of %d ranks", text_of(e, "host"),
                    e->node, number_of(e, "nodes"), number_of(e, "world"));
}

static int read_wait(struct history *h, const struct event *e)
{
    return add_mark(h, e, "node_wait", "%s: %d of %d nodes joined", text_of(e, "host"),
                    number_of(e, "have"), number_of(e, "want"));
}

static int read_save(struct history *h, const struct event *e)
{
    return add_mark(h, e, "save", "checkpoint %s", text_of(e, "state"));
}

static int read_coordinator(struct history *h, const struct event *e)
{
    return add_mark(h, e, "coordinator", "the coordinator of %s was %s; the generation continues",
                    text_of(e, "host"), text_of(e, "state"));
}

static int read_suspend(struct history *h, const struct event *e)
{
    return add_mark(h, e, "suspend", "the ranks of %s were %s: the coordinator's host %s",
                    text_of(e, "host"), text_of(e, "state"),
                    strcmp(text_of(e, "state"), "resumed") == 0 ? "answers again"
                                                                : "does not answer");
}

static const struct {
    const char *state, *text;
} leavings[] = {
    {"announced", "asking the ranks to save their state before they are stopped"},
    {"saved", "all ranks saved their state in time"},
    {"late", "timed out before all ranks saved their state"},
    {"ended", "the ranks ended for another reason before the deadline"},
};

static int read_leaving(struct history *h, const struct event *e)
{
    const char *state = text_of(e, "state");
    for (size_t i = 0; i < sizeof leavings / sizeof *leavings; i++)
        if (strcmp(leavings[i].state, state) == 0)
            return add_mark(h, e, "leaving", "%s: %s (%s)", text_of(e, "host"), leavings[i].text,
                            text_of(e, "signal"));
    return add_mark(h, e, "leaving", "%s: leaving, %s", text_of(e, "host"), state);
}

static int read_leave(struct history *h, const struct event *e)
{
    return add_mark(h, e, "leave", "%s leaves: %s", text_of(e, "host"), text_of(e, "text"));
}

static int read_health(struct history *h, const struct event *e)
{
    const char *state = text_of(e, "state");
    if (strcmp(state, "unhealthy") != 0)
        return add_mark(h, e, "leave", "node %s: %s", text_of(e, "about"), state);
    return add_mark(h, e, "leave", "node %s is unhealthy: %s", text_of(e, "about"),
                    text_of(e, "reason"));
}

/* Is it a number that a page can show? */
static double real_of(const struct event *e, const char *key)
{
    double value = json_number_value(json_object_get(e->line, key));
    return isfinite(value) && value >= 0 && value < 1e12 ? value : 0;
}

static int read_pace(struct history *h, const struct event *e)
{
    if (!make_room((void **)&h->paces, h->n_paces, sizeof *h->paces))
        return -ENOMEM;
    h->paces[h->n_paces++] = (struct history_pace){
        .at_s = e->at_s,
        .generation = e->generation,
        .node = e->node,
        .steps = json_integer_value(json_object_get(e->line, "steps")),
        .step_ms = real_of(e, "step_ms"),
        .slowest = number_of(e, "slowest"),
        .share = real_of(e, "share") < 1 ? real_of(e, "share") : 1,
    };
    return 0;
}

static int read_steps(struct history *h, const struct event *e)
{
    return add_mark(h, e, "steps", "%s: %d steps completed%s", text_of(e, "host"),
                    number_of(e, "after"), is_true(e, "lives") ? ", the ranks continue" : "");
}

/* The nodes of a job have the same seconds; the first one has been there from the begin. */
static int read_goodput(struct history *h, const struct event *e)
{
    struct history_goodput *g = &h->goodput;
    const char *name;
    json_t *seconds;
    if (g->is_known && (e->node > g->node || (e->node == g->node && e->at_s < g->at_s)))
        return 0;
    *g = (struct history_goodput){.is_known = true,
                                  .node = e->node,
                                  .by_steps = is_true(e, "by_steps"),
                                  .at_s = e->at_s,
                                  .total_s = real_of(e, "total_s"),
                                  .ratio = real_of(e, "ratio") < 1 ? real_of(e, "ratio") : 1};
    json_object_foreach(json_object_get(e->line, "seconds"), name, seconds)
    {
        const double s = json_number_value(seconds);
        if (g->n_causes == HISTORY_MAX_CAUSES || !(s > 0 && s < 1e12))
            continue;
        snprintf(g->causes[g->n_causes].name, sizeof g->causes[0].name, "%s", name);
        g->causes[g->n_causes++].s = s;
    }
    return 0;
}

static int read_job_end(struct history *h, const struct event *e)
{
    int code = number_of(e, "code");
    h->has_end = true;
    if (code > h->code)
        h->code = code;
    int rc = add_mark(h, e, HISTORY_JOB_END, "%s exited with status %d", text_of(e, "host"), code);
    if (rc == 0)
        h->marks[h->n_marks - 1].number = code;
    return code != 0 ? add_trouble(h, rc) : rc;
}

static const struct {
    const char *name;
    reader *reads;
} kinds[] = {
    {"job_start", read_job_start},
    {"rank_start", read_rank_start},
    {"rank_start_failed", read_start_failed},
    {"rank_exit", read_rank_exit},
    {"stop", read_stop},
    {"restart", read_restart},
    {"replace", read_replace},
    {"shrink", read_shrink},
    {"hang", read_hang},
    {"oom", read_oom},
    {"rdzv", read_place},
    {"node_wait", read_wait},
    {"save", read_save},
    {"coordinator", read_coordinator},
    {"suspend", read_suspend},
    {"leaving", read_leaving},
    {"leave", read_leave},
    {"health", read_health},
    {"pace", read_pace},
    {"steps", read_steps},
    {"goodput", read_goodput},
    {"job_end", read_job_end},
};

/* --- Lines --- */

static int read_event(struct history *h, const struct event *e)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, e->name) == 0)
            return kinds[i].reads(h, e);
    return add_mark(h, e, "other", "%s", e->name); /* of a later version */
}

static bool is_ours(struct history *h, const struct event *e)
{
    const char *job = text_of(e, "job");
    if (h->job[0] == '\0')
        snprintf(h->job, sizeof h->job, "%s", job);
    return strncmp(h->job, job, sizeof h->job - 1) == 0;
}

static int take_event(struct history *h, const json_t *line)
{
    struct event e = {.line = line,
                      .name = json_string_value(json_object_get(line, "ev")),
                      .at_s = json_number_value(json_object_get(line, "t"))};
    if (e.name == NULL || !(e.at_s > 0 && e.at_s < 1e12)) {
        h->n_unread++;
        return 0;
    }
    if (!is_ours(h, &e)) {
        h->n_others++;
        return 0;
    }
    if (h->n_events >= h->max_events) {
        h->n_beyond++;
        return 0;
    }
    e.generation = number_of(&e, "gen") > 0 ? number_of(&e, "gen") : 0;
    e.node = number_of(&e, "node");
    if (h->n_events++ == 0 || e.at_s < h->first_s)
        h->first_s = e.at_s;
    if (e.at_s > h->last_s)
        h->last_s = e.at_s;
    return read_event(h, &e);
}

int history_add(struct history *h, const char *line, size_t len)
{
    while (len > 0 && (line[len - 1] == '\n' || line[len - 1] == '\r'))
        len--;
    if (len == 0)
        return 0;
    json_t *json = len <= HISTORY_LINE_BYTES ? json_loadb(line, len, 0, NULL) : NULL;
    if (!json_is_object(json)) {
        json_decref(json);
        h->n_unread++;
        return 0;
    }
    int rc = take_event(h, json);
    json_decref(json);
    return rc;
}
