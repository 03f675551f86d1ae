#include "job_report.h"

#include "goodput_json.h"
#include "health_list.h"
#include "launcher/platform/json_value.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/membership/member.h"
#include "report.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "common/whole.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

struct job_report_rank {
    struct message_result_rank is;
    uint32_t node_index;
    uint32_t host; /* its place in the list */
};

void job_report_fini(struct job_report *j)
{
    for (size_t i = 0; i < j->n_hosts; i++)
        free(j->hosts[i]);
    free(j->hosts);
    free(j->ranks);
    free(j->cause);
    *j = (struct job_report){0};
}

/* --- What the nodes report --- */

static bool make_room(void **list, size_t *cap, size_t n, size_t bytes)
{
    size_t wanted = *cap > 0 ? *cap : 16;
    while (wanted < n)
        wanted *= 2;
    if (wanted == *cap)
        return true;
    void *grown = realloc(*list, wanted * bytes);
    if (grown == NULL)
        return false;
    *list = grown;
    *cap = wanted;
    return true;
}

static void forget_ranks(struct job_report *j)
{
    for (size_t i = 0; i < j->n_hosts; i++)
        free(j->hosts[i]);
    j->n_hosts = j->n_ranks = 0;
}

static int add_ranks(struct job_report *j, const struct message_result *r)
{
    const size_t room = JOB_REPORT_MAX_RANKS - j->n_ranks;
    const size_t n = r->n_ranks < room ? r->n_ranks : room;
    if (n == 0)
        return 0;
    if (!make_room((void **)&j->ranks, &j->cap_ranks, j->n_ranks + n, sizeof *j->ranks) ||
        !make_room((void **)&j->hosts, &j->cap_hosts, j->n_hosts + 1, sizeof *j->hosts) ||
        (j->hosts[j->n_hosts] = strdup(r->host)) == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        j->ranks[j->n_ranks++] = (struct job_report_rank){
            .is = r->ranks[i], .node_index = r->node_index, .host = (uint32_t)j->n_hosts};
    j->n_hosts++;
    return 0;
}

static int add_cause(struct job_report *j, const char *cause)
{
    json_t *json = cause[0] != '\0' && j->cause == NULL ? json_loads(cause, 0, NULL) : NULL;
    const bool is_cause = json_is_object(json);
    json_decref(json);
    if (!is_cause)
        return 0;
    j->cause = strdup(cause);
    return j->cause != NULL ? 0 : -ENOMEM;
}

int job_report_add(struct job_report *j, const struct message *result)
{
    const struct message_result *r = &result->result;
    int rc = add_cause(j, r->cause);
    if (result->generation == MESSAGE_NO_GENERATION ||
        (j->has_generation && result->generation < j->generation))
        return rc;
    if (j->has_generation && result->generation > j->generation)
        forget_ranks(j);
    j->has_generation = true;
    j->generation = result->generation;
    return rc ?: add_ranks(j, r);
}

/* --- The file --- */

const char *job_report_outcome(const struct member_end *end)
{
    static const char *const names[] = {
        [MESSAGE_WELL] = "ok",           [MESSAGE_RANK_FAILED] = "rank_failed",
        [MESSAGE_TOO_FEW] = "too_few",   [MESSAGE_MISSING] = "missing",
        [MESSAGE_ENDED] = "ended",       [MESSAGE_EXCLUDED] = "excluded",
        [MESSAGE_STUCK] = "no_progress",
    };
    return end->signal != 0 ? "signal" : names[end->outcome];
}

const char *job_report_outcome_alone(const struct report *r)
{
    static const char *const names[] = {
        [OUTCOME_NONE] = "internal",           [OUTCOME_WELL] = "ok",
        [OUTCOME_RANK_FAILED] = "rank_failed", [OUTCOME_START_FAILED] = "start_failed",
        [OUTCOME_SIGNAL] = "signal",           [OUTCOME_TIMEOUT] = "timeout",
        [OUTCOME_INTERNAL] = "internal",       [OUTCOME_ORDERED] = "internal",
    };
    const struct supervisor_verdict *v = supervisor_get_verdict(r->supervisor);
    if (v->is_unfit)
        return v->exit_code == MEMBER_EXIT_MISSING ? "missing" : "too_few";
    return v->is_stuck ? "no_progress" : names[v->outcome];
}

static int compare_ranks(const void *a, const void *b)
{
    const struct job_report_rank *one = a, *other = b;
    return (one->is.rank > other->is.rank) - (one->is.rank < other->is.rank);
}

static json_t *make_rank(const struct job_report *j, const struct job_report_rank *one)
{
    const struct message_result_rank *r = &one->is;
    const bool by_signal = r->has_ended && WIFSIGNALED(r->status);
    return json_pack("{s:i,s:o,s:i,s:i,s:o,s:o,s:o,s:o,s:b,s:b,s:o}", "node", (int)one->node_index,
                     "host", json_value_text(j->hosts[one->host]), "rank", (int)r->rank,
                     "local_rank", r->local_rank, "pid", json_value_number(r->pid != 0, r->pid),
                     "exit_code",
                     json_value_number(r->has_ended && !by_signal, WEXITSTATUS(r->status)),
                     "signal", json_value_number(by_signal, WTERMSIG(r->status)), "stopped_by",
                     json_value_number(r->stopped_by != 0, r->stopped_by), "lost_peer",
                     r->lost_peer, "was_failing", r->was_failing, "duration_s",
                     r->has_ended ? json_value_real((double)r->duration_ms / 1000) : json_null());
}

static json_t *make_ranks(const struct job_report *j)
{
    json_t *list = json_array();
    for (size_t i = 0; i < j->n_ranks; i++)
        json_array_append_new(list, make_rank(j, &j->ranks[i]));
    return list;
}

/* What its own node had no time to report. */
static json_t *make_bare_cause(const struct job_report_end *end)
{
    return json_pack("{s:n,s:n,s:i,s:n,s:n,s:i,s:n,s:n,s:n,s:n,s:n,s:o,s:n}", "node", "host",
                     "rank", end->rank, "local_rank", "pid", "exit_code", end->exit_code, "signal",
                     "forwarded", "errno", "oom", "hang", "error", json_value_text(end->text),
                     "stderr");
}

static json_t *make_cause(const struct job_report *j, const struct job_report_end *end)
{
    const bool has_failed =
        strcmp(end->outcome, "rank_failed") == 0 || strcmp(end->outcome, "start_failed") == 0;
    json_t *cause = j->cause != NULL && has_failed ? json_loads(j->cause, 0, NULL) : NULL;
    if (cause != NULL)
        return cause;
    return has_failed && end->has_others && end->rank >= 0 ? make_bare_cause(end) : json_null();
}

static json_t *text_or_null(const char *text)
{
    return json_value_text(text != NULL && text[0] != '\0' ? text : NULL);
}

static json_t *make_verdict(const struct job_report_end *end)
{
    if (!end->has_others)
        return json_null();
    return json_pack("{s:o,s:o,s:o}", "node", text_or_null(end->node), "rank",
                     json_value_number(end->rank >= 0, end->rank), "text",
                     json_value_text(end->text));
}

/* Bytes that are not UTF-8 become '?'. returns a string to free(); NULL: out of memory */
static char *make_text(struct job_report *j, const struct job_report_end *end)
{
    if (j->n_ranks > 0)
        qsort(j->ranks, j->n_ranks, sizeof *j->ranks, compare_ranks);
    json_t *root = json_pack(
        "{s:i,s:o,s:s,s:i,s:o,s:o,s:o,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "version", 2, "job",
        json_value_text(end->run_id), "outcome", end->outcome, "exit_code", end->exit_code,
        "signal", json_value_number(end->signal != 0, end->signal), "verdict", make_verdict(end),
        "restarts", json_value_number(end->n_restarts >= 0, end->n_restarts), "generations",
        (json_int_t)end->n_generations, "duration_s",
        json_value_real((double)end->duration_ms / 1000), "goodput",
        goodput_json_make(end->goodput), "host", json_value_text(end->host), "program",
        json_value_text(end->program), "output_error", text_or_null(end->output_error),
        "root_cause", make_cause(j, end), "unhealthy", health_list_json_all(end->unhealthy),
        "ranks", make_ranks(j));
    if (root == NULL)
        return NULL;
    co_autofree char *dump = json_dumps(root, JSON_INDENT(2) | JSON_VALUE_PRECISION);
    json_decref(root);
    return dump != NULL ? co_format("%s\n", dump) : NULL;
}

int job_report_write(struct job_report *j, const struct job_report_end *end, const char *path,
                     struct co_error *err)
{
    co_autofree char *text = make_text(j, end);
    if (text == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    return co_write_whole(path, text, strlen(text), err);
}

/* --- FILE of --report --- */

bool job_report_is_by_node(const char *path)
{
    return strstr(path, JOB_REPORT_NODE_RANK) != NULL;
}

char *job_report_path(const char *path, uint32_t node_rank)
{
    const size_t n = strlen(JOB_REPORT_NODE_RANK);
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    if (out == NULL)
        return NULL;
    for (const char *found; (found = strstr(path, JOB_REPORT_NODE_RANK)) != NULL; path = found + n)
        fprintf(out, "%.*s%u", (int)(found - path), path, node_rank);
    fputs(path, out);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}
