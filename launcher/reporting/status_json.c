#include "status_json.h"

#include "goodput_json.h"
#include "health_list.h"
#include "job_figures.h"
#include "launcher/diagnosis/hang_report.h"
#include "launcher/diagnosis/ras_report.h"
#include "launcher/job/job_spec.h"
#include "launcher/platform/json_value.h"
#include "launcher/supervisor/pace.h"
#include "launcher/supervisor/rank_numbers.h"

#include <ctype.h>
#include <stdbool.h>
#include <sys/wait.h>

static int64_t since(uint64_t from_ms, uint64_t to_ms)
{
    return to_ms > from_ms ? (int64_t)(to_ms - from_ms) : 0;
}

static struct rank_numbers numbers(const struct status *s)
{
    return (struct rank_numbers){.first = s->first_rank, .supervisor = s->supervisor};
}

static json_t *make_ms(uint64_t ns)
{
    return ns != 0 ? json_value_real((double)ns / 1e6) : json_null();
}

/* What libddp reports about it. */
static void add_progress(json_t *rank, const struct status_rank *r, uint64_t generation_ms)
{
    char call[HANG_CALL_BYTES];
    const struct progress *p = &r->progress;
    bool has_call = r->has_progress && p->n_calls > 0;
    json_object_set_new(rank, "steps",
                        json_value_number(r->has_progress, (int64_t)(p->steps_before + p->steps)));
    uint64_t ready_ms = r->has_progress ? p->ready_ns / 1000000 : 0;
    json_object_set_new(rank, "joined_ms",
                        json_value_number(ready_ms != 0, since(generation_ms, ready_ms)));
    uint64_t first_ms = r->has_progress ? p->first_ns / 1000000 : 0;
    json_object_set_new(rank, "first_step_ms",
                        json_value_number(first_ms != 0, since(generation_ms, first_ms)));
    json_object_set_new(rank, "step_ms", make_ms(r->has_progress ? p->mean_ns : 0));
    json_object_set_new(rank, "own_ms", make_ms(r->own_ns));
    json_object_set_new(rank, "waits",
                        r->has_progress && !p->only_steps ? json_boolean(p->waits) : json_null());
    json_object_set_new(rank, "call",
                        json_value_text(has_call ? hang_text_call(&p->call[0], call) : NULL));
}

static json_t *make_pace(const struct status *s)
{
    const struct pace *p = s->pace;
    if (p->slowest < 0)
        return json_null();
    return json_pack("{s:I,s:o,s:i,s:o}", "steps", (json_int_t)p->steps, "step_ms",
                     json_value_real((double)p->step_ns / 1e6), "slowest",
                     rank_number(numbers(s), p->slowest), "share", json_value_real(p->share));
}

static json_t *make_rank(const struct status *s, int local_rank)
{
    const struct supervisor_rank *r = supervisor_get_rank(s->supervisor, local_rank);
    const struct status_rank *more = &s->ranks[local_rank];
    bool ran = r->phase == RANK_RUNS || r->phase == RANK_ENDED;
    bool ended = r->phase == RANK_ENDED;
    bool by_signal = ended && WIFSIGNALED(r->status);
    uint64_t until_ms = ended ? r->ended_ms : s->now_ms;
    json_t *rank =
        json_pack("{s:i,s:i,s:o,s:s,s:o,s:o,s:o,s:o,s:o,s:I,s:o}", "rank",
                  rank_number(numbers(s), local_rank), "local_rank", local_rank, "pid",
                  json_value_number(r->pid != 0, r->pid), "state",
                  job_figures_phase_name(job_figures_phase(r->phase)), "age_ms",
                  json_value_number(ran, since(r->started_ms, until_ms)), "started_ms",
                  json_value_number(ran, since(s->generation_ms, r->started_ms)), "came_ms",
                  json_value_number(more->came_ms != 0, since(s->generation_ms, more->came_ms)),
                  "exit_code", json_value_number(ended && !by_signal, WEXITSTATUS(r->status)),
                  "signal", json_value_number(by_signal, WTERMSIG(r->status)), "restarts",
                  (json_int_t)more->restarts, "last_line", json_value_text(more->last_line));
    json_object_set_new(
        rank, "unreachable",
        json_value_text(more->wait != NULL && more->wait[0] != '\0' ? more->wait : NULL));
    add_progress(rank, more, s->generation_ms);
    return rank;
}

static json_t *make_ranks(const struct status *s)
{
    json_t *list = json_array();
    for (int i = 0; i < supervisor_n_ranks(s->supervisor); i++)
        json_array_append_new(list, make_rank(s, i));
    return list;
}

static json_t *make_program(const struct status *s)
{
    json_t *words = json_array();
    for (char *const *word = job_spec_words(s->spec); *word != NULL; word++)
        json_array_append_new(words, json_value_text(*word));
    return words;
}

static json_t *make_nccl(const struct status *s)
{
    if (s->nccl == NULL && s->nccl_trouble == NULL)
        return json_null();
    json_t *nccl = s->nccl != NULL
                       ? ras_report_json_make(s->nccl)
                       : json_pack("{s:o}", "trouble", json_value_text(s->nccl_trouble));
    json_object_set_new(nccl, "age_ms", json_integer(since(s->nccl_ms, s->now_ms)));
    return nccl;
}

static json_t *make_other_rank(const struct message_figures_rank *r)
{
    const bool ended = r->phase == MESSAGE_PHASE_ENDED;
    const bool ran = ended || r->phase == MESSAGE_PHASE_RUNS;
    const bool by_signal = ended && WIFSIGNALED(r->status);
    return json_pack(
        "{s:I,s:o,s:s,s:o,s:o,s:o,s:I,s:o,s:o}", "rank", (json_int_t)r->rank, "pid",
        json_value_number(r->pid != 0, r->pid), "state", job_figures_phase_name(r->phase), "age_ms",
        json_value_number(ran, (int64_t)r->age_ms), "exit_code",
        json_value_number(ended && !by_signal, WEXITSTATUS(r->status)), "signal",
        json_value_number(by_signal, WTERMSIG(r->status)), "restarts", (json_int_t)r->restarts,
        "steps", json_value_number(r->has_steps, (int64_t)r->steps), "own_ms", make_ms(r->own_ns));
}

static json_t *make_others(const struct status *s)
{
    json_t *list = json_array();
    if (s->others == NULL) {
        json_decref(list);
        return json_null();
    }
    for (uint32_t i = 1; i < s->others->n_nodes; i++) {
        const struct job_figures_node *node = &s->others->nodes[i];
        json_t *ranks = json_array();
        for (size_t k = 0; k < node->n; k++)
            json_array_append_new(ranks, make_other_rank(&node->ranks[k]));
        json_array_append_new(
            list, json_pack("{s:I,s:o,s:I,s:b,s:o}", "node", (json_int_t)i, "host",
                            json_value_text(node->host), "age_ms",
                            (json_int_t)job_figures_age_ms(s->others, i, s->now_ms), "stale",
                            job_figures_is_stale(s->others, i, s->now_ms), "ranks", ranks));
    }
    return list;
}

static json_t *make_state(const struct status *s)
{
    char name[32] = "";
    const char *upper = supervisor_state_name(supervisor_get_state(s->supervisor));
    for (size_t i = 0; upper[i] != '\0' && i < sizeof name - 1; i++)
        name[i] = (char)tolower((unsigned char)upper[i]);
    return json_string(name);
}

char *status_json_make(const struct status *s)
{
    json_t *root = json_pack(
        "{s:i,s:o,s:i,s:o,s:s,s:o,s:o,s:o,s:o,s:o,s:I,s:i,s:I,s:i,s:i,s:i,s:I,s:o,s:o,s:o}", "v", 1,
        "job", json_value_text(s->spec->run_id), "pid", (int)s->pid, "host",
        json_value_text(s->host), "version", s->version, "program", make_program(s), "state",
        make_state(s), "waiting", json_value_text(s->waiting), "events", json_value_text(s->events),
        "http", json_value_text(s->http), "generation",
        (json_int_t)supervisor_generation(s->supervisor), "max_restarts", s->spec->max_restarts,
        "age_ms", (json_int_t)since(s->begun_ms, s->now_ms), "node", s->node, "nodes", s->n_nodes,
        "world", s->world, "started_ms", (json_int_t)since(s->begun_ms, s->generation_ms),
        "goodput", goodput_json_make(s->goodput), "pace", make_pace(s), "ranks", make_ranks(s));
    json_object_set_new(root, "nccl", make_nccl(s));
    json_object_set_new(root, "others", make_others(s));
    json_object_set_new(root, "unhealthy", health_list_json_now(s->unhealthy));
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT | JSON_VALUE_PRECISION) : NULL;
    json_decref(root);
    return text;
}
