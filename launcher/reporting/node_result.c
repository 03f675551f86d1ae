#include "node_result.h"

#include "launcher/diagnosis/hang_report.h"
#include "launcher/diagnosis/oom_report.h"
#include "launcher/platform/json_value.h"
#include "launcher/supervisor/rank_numbers.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/membership/member.h"
#include "report.h"

#include "common/utf8.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { LEAST_TEXT_BYTES = 512 };

void node_result_fini(struct node_result *n)
{
    free(n->ranks);
    free(n->cause);
    *n = (struct node_result){0};
}

/* --- Its ranks --- */

static void fill_rank(const struct report *report, int local_rank, struct message_result_rank *ret)
{
    const struct supervisor_rank *r = supervisor_get_rank(report->supervisor, local_rank);
    *ret = (struct message_result_rank){
        .rank = (uint32_t)rank_number(report_numbers(report), local_rank),
        .local_rank = (uint16_t)local_rank,
        .pid = r->pid,
        .has_ended = r->phase == RANK_ENDED,
        .status = r->phase == RANK_ENDED ? (uint16_t)r->status : 0,
        .stopped_by = (uint8_t)r->signaled_first,
        .lost_peer = r->lost_peer,
        .was_failing = r->was_failing};
    if (r->phase == RANK_ENDED && r->ended_ms > r->started_ms)
        ret->duration_ms = r->ended_ms - r->started_ms;
}

/* --- The root cause --- */

static json_t *make_cause(const struct report *r, const struct node_result_place *place,
                          const char *host, const char *error, const char *tail)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(r->supervisor);
    const struct supervisor_rank *rank = supervisor_get_rank(r->supervisor, v->rank);
    const bool has_ended = rank->phase == RANK_ENDED;
    const bool by_signal = has_ended && WIFSIGNALED(rank->status);
    return json_pack("{s:i,s:o,s:i,s:i,s:o,s:o,s:o,s:b,s:o,s:o,s:o,s:o,s:o}", "node",
                     (int)place->node_index, "host", json_value_text(host), "rank",
                     rank_number(report_numbers(r), v->rank), "local_rank", v->rank, "pid",
                     json_value_number(rank->pid != 0, rank->pid), "exit_code",
                     json_value_number(has_ended && !by_signal, WEXITSTATUS(rank->status)),
                     "signal", json_value_number(by_signal, WTERMSIG(rank->status)), "forwarded",
                     by_signal && WTERMSIG(rank->status) == rank->forwarded, "errno",
                     json_value_number(v->outcome == OUTCOME_START_FAILED, rank->status), "oom",
                     r->oom != NULL ? oom_json_make(r->oom) : json_null(), "hang",
                     r->hang != NULL ? hang_json_make(r->hang, report_numbers(r)) : json_null(),
                     "error", json_value_text(error), "stderr", json_value_text(tail));
}

/* The last half of a text, from the beginning of a line on if there is one. */
static const char *half(const char *text)
{
    const size_t n = text != NULL ? strlen(text) : 0;
    if (n < LEAST_TEXT_BYTES)
        return NULL;
    const char *newline = strchr(text + n / 2, '\n');
    return newline != NULL && newline[1] != '\0' ? newline + 1 : text + n / 2;
}

static char *dump_cause(const struct report *r, const struct node_result_place *place,
                        const char *host, const char *error, const char *tail)
{
    json_t *cause = make_cause(r, place, host, error, tail);
    char *text = json_dumps(cause, JSON_COMPACT | JSON_VALUE_PRECISION);
    json_decref(cause);
    if (text != NULL)
        co_utf8_clean(text, strlen(text)); /* JSON escapes those before the blank only */
    return text;
}

static char *make_cause_text(const struct report *r, const struct node_result_place *place,
                             const char *host)
{
    const char *tail = r->tail, *error = r->error;
    char *text = dump_cause(r, place, host, error, tail);
    while (r->job != NULL && text != NULL && strlen(text) >= MESSAGE_CAUSE_BYTES) {
        free(text);
        if (tail == NULL && error == NULL)
            return strdup("");
        error = tail == NULL ? NULL : error;
        tail = half(tail);
        text = dump_cause(r, place, host, error, tail);
    }
    return text;
}

static bool is_cause(const struct report *r)
{
    const enum supervisor_outcome outcome = supervisor_get_verdict(r->supervisor)->outcome;
    return (outcome == OUTCOME_RANK_FAILED || outcome == OUTCOME_START_FAILED) && report_is_ours(r);
}

/* --- How the job ended --- */

static struct job_report_end make_end(const struct report *r, const struct node_result_place *place,
                                      const char *host)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(r->supervisor);
    struct job_report_end end = {.run_id = place->run_id,
                                 .host = host,
                                 .program = r->program,
                                 .exit_code = supervisor_exit_code(r->supervisor),
                                 .rank = -1,
                                 .n_restarts = place->n_restarts,
                                 .n_generations = place->generation + 1,
                                 .duration_ms =
                                     r->now_ms > r->begun_ms ? r->now_ms - r->begun_ms : 0};
    if (r->job == NULL) {
        end.outcome = job_report_outcome_alone(r);
        end.signal = v->outcome == OUTCOME_SIGNAL ? v->signal : 0;
        return end;
    }
    const struct member_end *job = r->job->end;
    end.outcome = job_report_outcome(job);
    end.signal = job->signal;
    end.has_others = true;
    end.node = job->node;
    end.rank = job->rank;
    end.text = job->text;
    return end;
}

int node_result_make(const struct report *r, const struct node_result_place *place,
                     struct node_result *ret)
{
    const int n = supervisor_n_ranks(r->supervisor);
    struct node_result made = {.is_made = true, .has_cause = is_cause(r)};
    snprintf(made.host, sizeof made.host, "%s", r->host);
    co_utf8_clean(made.host, strlen(made.host));
    made.ranks = calloc((size_t)n, sizeof *made.ranks);
    made.cause = made.has_cause ? make_cause_text(r, place, made.host) : strdup("");
    if (made.ranks == NULL || made.cause == NULL) {
        node_result_fini(&made);
        return -ENOMEM;
    }
    for (int i = 0; i < n; i++)
        fill_rank(r, i, &made.ranks[i]);
    node_result_fini(ret);
    *ret = made;
    ret->end = make_end(r, place, ret->host);
    ret->goodput = r->goodput;
    ret->end.goodput = &ret->goodput;
    ret->message = (struct message){.type = MESSAGE_RESULT,
                                    .generation = place->takes_part ? place->generation
                                                                    : MESSAGE_NO_GENERATION,
                                    .result = {.kind = MESSAGE_RESULT_RANKS,
                                               .node_index = place->node_index,
                                               .host = ret->host,
                                               .cause = ret->cause,
                                               .n_ranks = place->takes_part ? (size_t)n : 0,
                                               .ranks = ret->ranks}};
    return 0;
}
