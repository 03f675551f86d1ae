/* metrics.c - one function for each kind of figure. A family of values with labels is a head and a
 * line for each; what is not known has no line. */
#include "metrics.h"

#include "job_figures.h"
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

/* The ranks of this node, and of other nodes that are not stale. */
static void each_rank(const struct status *s,
                      void (*on_rank)(void *arg, const struct message_figures_rank *r), void *arg)
{
    struct message_figures_rank own;
    for (int i = 0; i < s->spec->n_local; i++) {
        if (job_figures_of_rank(s, i, &own))
            on_rank(arg, &own);
    }
    for (uint32_t i = 1; s->others != NULL && i < s->others->n_nodes; i++)
        for (size_t k = 0;
             !job_figures_is_stale(s->others, i, s->now_ms) && k < s->others->nodes[i].n; k++)
            on_rank(arg, &s->others->nodes[i].ranks[k]);
}

struct steps {
    uint64_t most;
    bool is_known;
};

static void add_steps(void *arg, const struct message_figures_rank *r)
{
    struct steps *sum = arg;
    sum->is_known |= r->has_steps;
    if (r->steps > sum->most)
        sum->most = r->steps;
}

static void print_steps(const struct status *s, FILE *out)
{
    struct steps sum = {0};
    uint64_t last_ns = 0;
    each_rank(s, add_steps, &sum);
    if (sum.is_known)
        gauge(out, "steps", (double)sum.most, "Completed steps, the most of any rank.");
    for (int i = 0; i < s->spec->n_local; i++) {
        const struct progress *p = &s->ranks[i].progress;
        if (s->ranks[i].has_progress && p->step_ns > last_ns)
            last_ns = p->step_ns;
    }
    if (last_ns != 0)
        gauge(out, "last_step_age_seconds", (double)since(last_ns / 1000000, s->now_ms) / 1000,
              "Time since a rank of this node completed a step in this generation.");
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

/* --- Other nodes --- */

static void print_nodes(const struct status *s, FILE *out)
{
    if (s->others == NULL || s->others->n_nodes < 2)
        return;
    head(out, "node_age_seconds", "gauge",
         "Time since the node reported about its ranks, which have no lines after 15 s.");
    for (uint32_t i = 1; i < s->others->n_nodes; i++) {
        const char *host = s->others->nodes[i].host;
        fprintf(out, NAME("node_age_seconds") "{node=\"%" PRIu32 "\",host=\"", i);
        print_label(host != NULL ? host : "", out);
        fprintf(out, "\"} %.3f\n", (double)job_figures_age_ms(s->others, i, s->now_ms) / 1000);
    }
}

/* --- Ranks --- */

typedef bool value_of(const struct message_figures_rank *r, double *ret);

static bool up_of(const struct message_figures_rank *r, double *ret)
{
    *ret = r->phase == MESSAGE_PHASE_RUNS;
    return true;
}

static bool restarts_of(const struct message_figures_rank *r, double *ret)
{
    *ret = r->restarts;
    return true;
}

static bool steps_of(const struct message_figures_rank *r, double *ret)
{
    *ret = (double)r->steps;
    return r->has_steps;
}

static bool own_of(const struct message_figures_rank *r, double *ret)
{
    *ret = (double)r->own_ns / 1e9;
    return r->own_ns != 0;
}

static bool silence_of(const struct message_figures_rank *r, double *ret)
{
    *ret = (double)r->silent_ms / 1000;
    return r->silent_ms < MESSAGE_MAX_MS;
}

static const struct family {
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

struct family_print {
    const struct family *family;
    bool has_head;
    FILE *out;
};

static void print_value(void *arg, const struct message_figures_rank *r)
{
    struct family_print *p = arg;
    const struct family *f = p->family;
    double value;
    if (!f->value(r, &value))
        return;
    if (!p->has_head)
        head(p->out, f->name, f->type, f->help);
    p->has_head = true;
    fprintf(p->out, NAME("%s") "{rank=\"%" PRIu32 "\"} %.15g\n", f->name, r->rank, value);
}

static void print_ranks(const struct status *s, FILE *out)
{
    for (size_t k = 0; k < sizeof of_ranks / sizeof *of_ranks; k++) {
        struct family_print p = {.family = &of_ranks[k], .out = out};
        each_rank(s, print_value, &p);
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
    print_nodes(s, out);
    print_ranks(s, out);
}
