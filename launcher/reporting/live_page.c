#include "live_page.h"

#include "health_list.h"
#include "job_figures.h"
#include "launcher/diagnosis/ras_report.h"
#include "launcher/job/job_spec.h"
#include "launcher/supervisor/pace.h"
#include "launcher/supervisor/rank_numbers.h"
#include "launcher/supervisor/supervisor.h"
#include "report.h"
#include "status_json.h"

#include "common/duration.h"
#include "common/escape.h"
#include "common/scope.h"

#include <inttypes.h>
#include <stdbool.h>

/* A step that the others wait for so long is marked. */
static const double notable_share = 0.05;

static struct rank_numbers numbers(const struct status *s)
{
    return (struct rank_numbers){.first = s->first_rank, .supervisor = s->supervisor};
}

static void print_state(const struct status *s, FILE *out)
{
    const char *name = supervisor_state_name(supervisor_get_state(s->supervisor));
    fputs("<p id=\"state\"><b>", out);
    for (; *name != '\0'; name++)
        putc(*name >= 'A' && *name <= 'Z' ? *name - 'A' + 'a' : *name, out);
    fprintf(out, "</b>, generation %" PRIu32 ", node %d of %d on ",
            supervisor_generation(s->supervisor), s->node, s->n_nodes);
    co_escape_html(s->host, out);
    fprintf(out, ", %d ranks in the job", s->world);
    if (s->waiting != NULL) {
        fputs("<br>", out);
        co_escape_html(s->waiting, out);
    }
    const struct pace *p = s->pace;
    if (p->slowest >= 0)
        fprintf(out,
                "<br>step %" PRIu64 ", step time %.4g ms; the slowest rank is %d: without it the "
                "step time would be %.0f %% less",
                p->steps, (double)p->step_ns / 1e6, rank_number(numbers(s), p->slowest),
                100 * p->share);
    fputs("</p>\n", out);
}

/* What NCCL's RAS reports, as ddpctl stack prints it. */
static void print_nccl(const struct status *s, FILE *out)
{
    co_autofree char *text = NULL;
    size_t len = 0;
    FILE *lines = s->nccl != NULL ? open_memstream(&text, &len) : NULL;
    if (lines == NULL)
        return;
    ras_report_print(s->nccl, lines);
    if (fclose(lines) != 0)
        return;
    fputs("<pre id=\"nccl\">", out);
    co_escape_html(text, out);
    fputs("</pre>\n", out);
}

static void print_rank_state(const struct supervisor_rank *r, FILE *out)
{
    static const char *const phases[] = {
        [RANK_NOT_STARTED] = "not started",
        [RANK_ASKED] = "starting",
        [RANK_RUNS] = "running",
        [RANK_FAILED_TO_START] = "failed to start",
    };
    char text[REPORT_END_BYTES];
    const bool is_bad =
        r->phase == RANK_FAILED_TO_START || (r->phase == RANK_ENDED && r->status != 0);
    fprintf(out, "<td%s>", is_bad ? " class=\"bad\"" : "");
    co_escape_html(r->phase == RANK_ENDED ? report_end(r, text, sizeof text) : phases[r->phase],
                   out);
    fputs("</td>", out);
}

static void print_steps(const struct message_figures_rank *r, bool is_slow, FILE *out)
{
    if (r->has_steps)
        fprintf(out, "<td class=\"n\">%" PRIu64 "</td>", r->steps);
    else
        fputs("<td class=\"n\">-</td>", out);
    if (r->own_ns != 0)
        fprintf(out, "<td class=\"n%s\">%.4g ms</td>", is_slow ? " bad" : "",
                (double)r->own_ns / 1e6);
    else
        fputs("<td class=\"n\">-</td>", out);
}

/* Up to the last columns, which a rank of this node has more of.
 *
 * state   how it ended */
static void print_figures(const struct message_figures_rank *r, const struct supervisor_rank *state,
                          bool is_slow, FILE *out)
{
    const bool ran = r->phase == MESSAGE_PHASE_RUNS || r->phase == MESSAGE_PHASE_ENDED;
    char text[CO_DURATION_BYTES];
    fprintf(out, "<td class=\"n\">%" PRIu32 "</td><td class=\"n\">%d</td>", r->rank, (int)r->pid);
    print_rank_state(state, out);
    fprintf(out, "<td class=\"n\">%s</td><td class=\"n\">%" PRIu32 "</td>",
            ran ? co_duration_text((int64_t)r->age_ms, text) : "-", r->restarts);
    print_steps(r, is_slow, out);
}

static void print_rank(const struct status *s, int i, FILE *out)
{
    struct message_figures_rank r;
    job_figures_of_rank(s, i, &r);
    fputs("<tr>", out);
    print_figures(&r, supervisor_get_rank(s->supervisor, i),
                  s->pace->slowest == i && s->pace->share >= notable_share, out);
    fputs("<td>", out);
    co_escape_html(s->ranks[i].last_line != NULL ? s->ranks[i].last_line : "", out);
    fputs("</td></tr>\n", out);
}

#define HEADS                                                                                      \
    "<th class=\"n\">rank</th><th class=\"n\">pid</th><th>state</th><th class=\"n\">uptime</th>"   \
    "<th class=\"n\">restarts</th><th class=\"n\">steps</th><th class=\"n\">own time</th>"

static void print_node_name(const struct job_figures_node *node, uint32_t i, FILE *out)
{
    fprintf(out, "<td>node %" PRIu32, i);
    if (node->host != NULL && node->host[0] != '\0') {
        fputs(" on ", out);
        co_escape_html(node->host, out);
    }
    fputs("</td>", out);
}

static struct supervisor_rank state_of(const struct message_figures_rank *r)
{
    static const enum supervisor_phase phases[] = {
        [MESSAGE_PHASE_NOT_STARTED] = RANK_NOT_STARTED,
        [MESSAGE_PHASE_ASKED] = RANK_ASKED,
        [MESSAGE_PHASE_RUNS] = RANK_RUNS,
        [MESSAGE_PHASE_ENDED] = RANK_ENDED,
        [MESSAGE_PHASE_FAILED_TO_START] = RANK_FAILED_TO_START,
    };
    return (struct supervisor_rank){.phase = phases[r->phase], .status = r->status};
}

/* A node that is stale has one row. */
static void print_other_node(const struct status *s, uint32_t i, FILE *out)
{
    const struct job_figures_node *node = &s->others->nodes[i];
    const bool is_stale = job_figures_is_stale(s->others, i, s->now_ms);
    char age[CO_DURATION_BYTES];
    for (size_t k = 0; !is_stale && k < node->n; k++) {
        const struct supervisor_rank state = state_of(&node->ranks[k]);
        fputs("<tr>", out);
        print_node_name(node, i, out);
        print_figures(&node->ranks[k], &state, false, out);
        fputs("</tr>\n", out);
    }
    if (!is_stale && node->heard_ms != 0)
        return;
    fputs("<tr>", out);
    print_node_name(node, i, out);
    fprintf(out, "<td colspan=\"7\"%s>no report for %s</td></tr>\n",
            is_stale ? " class=\"bad\"" : "",
            co_duration_text((int64_t)job_figures_age_ms(s->others, i, s->now_ms), age));
}

static void print_others(const struct status *s, FILE *out)
{
    if (s->others == NULL || s->others->n_nodes < 2)
        return;
    fputs("<h2>Ranks of the other nodes</h2>\n<table id=\"others\"><tr><th>node</th>" HEADS
          "</tr>\n",
          out);
    for (uint32_t i = 1; i < s->others->n_nodes; i++)
        print_other_node(s, i, out);
    fputs("</table>\n", out);
}

/* Those that take part in no generation now. */
static void print_unhealthy(const struct health_list *l, FILE *out)
{
    bool has_begun = false;
    for (uint32_t i = 0; l != NULL && i < l->n; i++) {
        const struct health_list_node *node = &l->nodes[i];
        if (!node->is_bad)
            continue;
        if (!has_begun)
            fputs("<h2>Unhealthy nodes</h2>\n<table id=\"unhealthy\"><tr><th>node</th><th>reason"
                  "</th><th class=\"n\">times</th></tr>\n",
                  out);
        has_begun = true;
        fputs("<tr><td>", out);
        co_escape_html(node->name, out);
        fputs("</td><td class=\"bad\">", out);
        co_escape_html(node->reason, out);
        fprintf(out, "</td><td class=\"n\">%" PRIu32 "</td></tr>\n", node->n_times);
    }
    if (has_begun)
        fputs("</table>\n", out);
}

void live_page_print(const struct status *s, const struct live_failure *failure, FILE *out)
{
    print_state(s, out);
    print_unhealthy(s->unhealthy, out);
    fputs("<h2>Ranks of this node</h2>\n<table id=\"now\"><tr>" HEADS "<th>last line</th></tr>\n",
          out);
    for (int i = 0; i < s->spec->n_local; i++)
        print_rank(s, i, out);
    fputs("</table>\n", out);
    print_others(s, out);
    print_nccl(s, out);
    if (failure->tail == NULL)
        return;
    fprintf(out,
            "<h2>Last lines of rank %d, which failed in generation %" PRIu32
            "</h2>\n<pre id=\"tail\">",
            failure->rank, failure->generation);
    co_escape_html(failure->tail, out);
    fputs("</pre>\n", out);
}
