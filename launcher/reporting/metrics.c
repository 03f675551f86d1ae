/* metrics.c - one function for each kind of figure. A family of values with labels is a head and a
 * line for each; what is not known has no line. */
#include "metrics.h"

#include "launcher/diagnosis/ras_report.h"
#include "launcher/job/job_spec.h"
#include "launcher/supervisor/goodput.h"
#include "launcher/supervisor/pace.h"
#include "launcher/supervisor/rank_numbers.h"
#include "launcher/supervisor/supervisor.h"
#include "status_json.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>

#define NAME(name) "ddprun_" name

static void head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP " NAME("%s") " %s\n# TYPE " NAME("%s") " %s\n", name, help, name, type);
}

static void gauge(FILE *out, const char *name, double value, const char *help)
{
    head(out, name, "gauge", help);
    fprintf(out, NAME("%s") " %.15g\n", name, value);
}

/* Inside the quotes of a label. */
static void print_label(const char *text, FILE *out)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '"')
            putc('\\', out);
        if (*text == '\n')
            fputs("\\n", out);
        else
            putc(*text, out);
    }
}

static uint64_t since(uint64_t from, uint64_t to)
{
    return to > from ? to - from : 0;
}

/* --- The job --- */

static void print_info(const struct status *s, FILE *out)
{
    head(out, "info", "gauge", "Version of ddprun, run id of the job, and place of this node.");
    fputs(NAME("info") "{version=\"", out);
    print_label(s->version, out);
    fputs("\",job=\"", out);
    print_label(s->spec->run_id, out);
    fprintf(out, "\",node=\"%d\"} 1\n", s->node);
}

static void print_state(const struct status *s, FILE *out)
{
    const enum supervisor_state now = supervisor_get_state(s->supervisor);
    head(out, "state", "gauge", "1 for the state in which this node is.");
    for (int i = 0; i < SUPERVISOR_N_STATES; i++) {
        const char *name = supervisor_state_name((enum supervisor_state)i);
        fputs(NAME("state") "{state=\"", out);
        for (; *name != '\0'; name++) /* as in /status */
            putc(*name >= 'A' && *name <= 'Z' ? *name - 'A' + 'a' : *name, out);
        fprintf(out, "\"} %d\n", i == (int)now);
    }
}

static void print_goodput(const struct goodput_sums *g, FILE *out)
{
    head(out, "job_seconds", "gauge",
         "Seconds of the job by what they were spent on. The newest may move to another cause.");
    for (int i = 0; i < GOODPUT_N_STATES; i++)
        fprintf(out, NAME("job_seconds") "{cause=\"%s\"} %.3f\n",
                goodput_name((enum goodput_state)i), (double)g->sum_ms[i] / 1000);
    gauge(out, "goodput_ratio", goodput_ratio(g), "Productive part of the job's seconds.");
    gauge(out, "steps_reported", g->is_counted,
          "1: ranks report their steps. 0: the job counts as productive while all ranks run.");
}

static void print_pace(const struct status *s, FILE *out)
{
    const struct pace *p = s->pace;
    if (p->slowest < 0)
        return;
    const struct rank_numbers numbers = {.first = s->first_rank, .supervisor = s->supervisor};
    gauge(out, "step_seconds", (double)p->step_ns / 1e9, "Duration of a step, smoothed.");
    gauge(out, "slowest_rank", rank_number(numbers, p->slowest),
          "The rank of this node that the others wait for.");
    gauge(out, "slowest_share", p->share,
          "Part of a step that the others would save without the slowest rank.");
}

/* The newest step of any rank. */
static void print_steps(const struct status *s, FILE *out)
{
    uint64_t steps = 0, last_ns = 0;
    bool is_known = false;
    for (int i = 0; i < s->spec->n_local; i++) {
        const struct progress *p = &s->ranks[i].progress;
        if (!s->ranks[i].has_progress)
            continue;
        is_known = true;
        steps = p->steps_before + p->steps > steps ? p->steps_before + p->steps : steps;
        last_ns = p->step_ns > last_ns ? p->step_ns : last_ns;
    }
    if (is_known)
        gauge(out, "steps", (double)steps, "Completed steps, the most of any rank.");
    if (last_ns != 0)
        gauge(out, "last_step_age_seconds", (double)since(last_ns / 1000000, s->now_ms) / 1000,
              "Time since a rank completed a step in this generation.");
}

static void print_nccl(const struct status *s, FILE *out)
{
    if (s->nccl == NULL)
        return;
    const struct ras_sums sums = ras_report_count(s->nccl);
    gauge(out, "nccl_communicators", (double)sums.n_comms,
          "Communicators that NCCL's RAS reports.");
    gauge(out, "nccl_lagging_ranks", (double)sums.n_lagging,
          "Ranks of communicators that have started fewer collectives than others, twice.");
    gauge(out, "nccl_missing_ranks", (double)sums.n_missing,
          "Ranks of communicators that do not answer NCCL's RAS.");
    gauge(out, "nccl_rank_errors", (double)sums.n_errors,
          "Ranks of communicators that have reported an error.");
}

/* --- Ranks --- */

typedef bool value_of(const struct status *s, int local_rank, double *ret);

static bool up_of(const struct status *s, int i, double *ret)
{
    *ret = supervisor_get_rank(s->supervisor, i)->phase == RANK_RUNS;
    return true;
}

static bool restarts_of(const struct status *s, int i, double *ret)
{
    *ret = s->ranks[i].restarts;
    return true;
}

static bool steps_of(const struct status *s, int i, double *ret)
{
    *ret = (double)(s->ranks[i].progress.steps_before + s->ranks[i].progress.steps);
    return s->ranks[i].has_progress;
}

static bool own_of(const struct status *s, int i, double *ret)
{
    *ret = (double)s->ranks[i].own_ns / 1e9;
    return s->ranks[i].own_ns != 0;
}

static bool silence_of(const struct status *s, int i, double *ret)
{
    *ret = (double)since(s->ranks[i].output_ms, s->now_ms) / 1000;
    return s->ranks[i].output_ms != 0;
}

static const struct {
    const char *name, *type, *help;
    value_of *value;
} of_ranks[] = {
    {"rank_up", "gauge", "1: the rank runs.", up_of},
    {"rank_restarts_total", "counter", "How often the rank was replaced or started again.",
     restarts_of},
    {"rank_steps", "gauge", "Completed steps.", steps_of},
    {"rank_own_seconds", "gauge", "Duration of a step without the wait for other ranks, smoothed.",
     own_of},
    {"rank_output_age_seconds", "gauge", "Time since the rank wrote to its output.", silence_of},
};

static void print_ranks(const struct status *s, FILE *out)
{
    const struct rank_numbers numbers = {.first = s->first_rank, .supervisor = s->supervisor};
    for (size_t k = 0; k < sizeof of_ranks / sizeof *of_ranks; k++) {
        double value;
        bool has_head = false;
        for (int i = 0; i < s->spec->n_local; i++) {
            if (!of_ranks[k].value(s, i, &value))
                continue;
            if (!has_head)
                head(out, of_ranks[k].name, of_ranks[k].type, of_ranks[k].help);
            has_head = true;
            fprintf(out, NAME("%s") "{rank=\"%d\"} %.15g\n", of_ranks[k].name,
                    rank_number(numbers, i), value);
        }
    }
}

void metrics_print(const struct status *s, FILE *out)
{
    print_info(s, out);
    print_state(s, out);
    gauge(out, "uptime_seconds", (double)since(s->begun_ms, s->now_ms) / 1000,
          "Time since the start of this ddprun.");
    gauge(out, "generation", supervisor_generation(s->supervisor),
          "Number of the generation; 0 is the first.");
    gauge(out, "world_size", s->world, "Ranks of the whole job in this generation.");
    gauge(out, "nodes", s->n_nodes, "Nodes of the job in this generation.");
    gauge(out, "max_restarts", s->spec->max_restarts, "Restarts that --max-restarts allows.");
    print_goodput(s->goodput, out);
    print_steps(s, out);
    print_pace(s, out);
    print_nccl(s, out);
    print_ranks(s, out);
}
