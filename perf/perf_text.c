#include "perf_text.h"

#include "perf_cli.h"
#include "perf_work.h"
#include "worker-runtime/cost/cost.h"

#include <inttypes.h>

static double algbw_of(uint64_t bytes, double us)
{
    return us > 0 ? (double)bytes / us * 1e-3 : 0;
}

static const char *op_of(const struct perf_spec *spec)
{
    return perf_work_is_reduction(spec->collective) ? perf_cli_op_name(spec->op) : "none";
}

void perf_text_head(FILE *out, const struct perf_spec *spec, unsigned n_ranks, unsigned n_nodes)
{
    if (spec->json)
        return;
    fprintf(out, "# %s of %u ranks on %u node%s, %s memory, %s\n#\n",
            perf_work_name(spec->collective), n_ranks, n_nodes, n_nodes == 1 ? "" : "s",
            perf_cli_buffer_name(spec->buffer),
            spec->rewrite ? "written before each call" : "calls without a pause");
    fprintf(out, "# %10s %12s %9s %6s %5s %50s %50s\n", "", "", "", "", "",
            "out-of-place                ", "in-place                  ");
    fprintf(out, "# %10s %12s %9s %6s %5s", "size", "count", "type", "redop", "root");
    for (int i = 0; i < 2; i++)
        fprintf(out, " %12s %12s %7s %7s %7s", "time", "min", "algbw", "busbw", "#wrong");
    fprintf(out, "\n# %10s %12s %9s %6s %5s", "(B)", "(elements)", "", "", "");
    for (int i = 0; i < 2; i++)
        fprintf(out, " %12s %12s %7s %7s %7s", "(us)", "(us)", "(GB/s)", "(GB/s)", "");
    fputc('\n', out);
}

static void print_cells(FILE *out, const struct perf_spec *spec, unsigned n_ranks, uint64_t bytes,
                        const struct perf_times *t)
{
    const double algbw = algbw_of(bytes, t->mean_us);
    fprintf(out, " %12.2f %12.2f %7.2f %7.2f", t->mean_us, t->min_us, algbw,
            algbw * perf_work_bus_factor(spec->collective, n_ranks));
    if (spec->check)
        fprintf(out, " %7" PRIu64, t->wrong);
    else
        fprintf(out, " %7s", "N/A");
}

static void print_object(FILE *out, const struct perf_spec *spec, unsigned n_ranks, uint64_t bytes,
                         bool in_place, const struct perf_times *t)
{
    const double algbw = algbw_of(bytes, t->mean_us);
    fprintf(out,
            "{\"op\": \"%s\", \"bytes\": %" PRIu64 ", \"dtype\": \"%s\", \"redop\": \"%s\", "
            "\"ranks\": %u, \"buffer\": \"%s\", \"in_place\": %s, \"rewritten\": %s, "
            "\"time_us\": %.3f, \"min_us\": %.3f, \"algbw_gbps\": %.3f, \"busbw_gbps\": %.3f, "
            "\"wrong\": ",
            perf_work_name(spec->collective), bytes, perf_cli_dtype_name(spec->dtype), op_of(spec),
            n_ranks, perf_cli_buffer_name(spec->buffer), in_place ? "true" : "false",
            spec->rewrite ? "true" : "false", t->mean_us, t->min_us, algbw,
            algbw * perf_work_bus_factor(spec->collective, n_ranks));
    if (spec->check)
        fprintf(out, "%" PRIu64 "}\n", t->wrong);
    else
        fputs("null}\n", out);
}

static void add_up(struct perf_sum *sum, const struct perf_spec *spec, unsigned n_ranks,
                   uint64_t bytes, const struct perf_times *t)
{
    sum->wrong += t->wrong;
    sum->busbw += algbw_of(bytes, t->mean_us) * perf_work_bus_factor(spec->collective, n_ranks);
    sum->n++;
}

void perf_text_row(FILE *out, const struct perf_spec *spec, unsigned n_ranks,
                   const struct perf_row *row, struct perf_sum *sum)
{
    add_up(sum, spec, n_ranks, row->bytes, &row->out_of_place);
    if (row->has_in_place)
        add_up(sum, spec, n_ranks, row->bytes, &row->in_place);
    if (spec->json) {
        print_object(out, spec, n_ranks, row->bytes, false, &row->out_of_place);
        if (row->has_in_place)
            print_object(out, spec, n_ranks, row->bytes, true, &row->in_place);
        fflush(out);
        return;
    }
    fprintf(out, "  %10" PRIu64 " %12zu %9s %6s %5d", row->bytes, row->count,
            perf_cli_dtype_name(spec->dtype), op_of(spec),
            perf_work_has_root(spec->collective) ? spec->root : -1);
    print_cells(out, spec, n_ranks, row->bytes, &row->out_of_place);
    if (row->has_in_place)
        print_cells(out, spec, n_ranks, row->bytes, &row->in_place);
    fputc('\n', out);
    fflush(out);
}

void perf_text_foot(FILE *out, const struct perf_spec *spec, const struct perf_sum *sum)
{
    if (spec->json)
        return;
    if (spec->check)
        fprintf(out, "# Out of bounds values : %" PRIu64 " %s\n", sum->wrong,
                sum->wrong == 0 ? "OK" : "FAILED");
    fprintf(out, "# Avg bus bandwidth    : %.5g\n#\n", sum->n > 0 ? sum->busbw / sum->n : 0);
}

static unsigned bounded(double value, unsigned most)
{
    return value < 0 ? 0 : value < most ? (unsigned)(value + 0.5) : most;
}

/* A burst takes as long as one message and one back, and the cost of each further message. */
void perf_text_network(FILE *out, const struct perf_link *us, unsigned n_burst, size_t bulk_bytes)
{
    const double message_us = (us->burst - 2 * us->one) / (n_burst - 1);
    const double least_us = message_us > 0 ? message_us : 0;
    const double paid_us = least_us < us->one ? least_us : us->one;
    fprintf(out, "DDP_TUNING=\"network: latency_ns=%u message_ns=%u byte_ps=%u\"\n",
            bounded((us->one - paid_us) * 1e3, COST_LATENCY_NS_MOST),
            bounded(paid_us * 1e3, COST_MESSAGE_NS_MOST),
            bounded(us->bulk * 1e6 / (double)bulk_bytes, COST_BYTE_PS_MOST));
}
