/* sim_cost.c - the cost model (worker-runtime/cost/cost.h) against a simulation of every message of
 * up to 4,096 nodes. A node has one processor, which sends the messages of a stage in the order of
 * the real schedules and then takes those that arrive, and one network interface, which sends one
 * byte after the other.
 *
 *     sim_cost          check that the formulas are close to the simulation
 *     sim_cost table    print both as a table, for docs/design/collectives.md */
#include "worker-runtime/cost/cost.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NODES = 4096, ONE_US = 1000 * 1000 };

static const struct cost_network net = COST_NETWORK_DEFAULT;

struct node {
    uint64_t ready; /* ps: when the previous stage is over */
    uint64_t cpu, wire;
};

static struct node nodes[MOST_NODES];

static uint64_t half_message(void)
{
    return net.message_ns * 1000u / 2;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void begin_stage(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        nodes[i].cpu = nodes[i].wire = nodes[i].ready;
}

/* returns when the message has arrived */
static uint64_t send_message(unsigned from, uint64_t bytes)
{
    struct node *x = &nodes[from];
    x->cpu += half_message();
    x->wire = later(x->wire, x->cpu) + bytes * net.byte_ps;
    return x->wire + net.latency_ns * 1000u;
}

static void end_stage(unsigned n, uint64_t summed_bytes)
{
    for (unsigned i = 0; i < n; i++)
        nodes[i].ready = later(nodes[i].cpu, nodes[i].wire) + summed_bytes * net.sum_ps;
}

/* Each node sends `bytes` bytes to all others: whole, and each stage of parts. All send in the
 * order of the nodes, and a node takes the messages in that order. */
static void exchange_all(unsigned n, uint64_t bytes, uint64_t summed_bytes)
{
    uint64_t *arrival = calloc((size_t)n * n, sizeof *arrival);
    begin_stage(n);
    for (unsigned i = 0; i < n; i++)
        for (unsigned j = 0; j < n; j++)
            if (i != j)
                arrival[(size_t)j * n + i] = send_message(i, bytes);
    for (unsigned j = 0; j < n; j++)
        for (unsigned i = 0; i < n; i++)
            if (i != j)
                nodes[j].cpu = later(nodes[j].cpu, arrival[(size_t)j * n + i]) + half_message();
    end_stage(n, summed_bytes);
    free(arrival);
}

/* The vectors go to `to`; `from` gets only the frame that opens an exchange. */
static void exchange_step(unsigned n, unsigned k, uint64_t bytes, uint64_t copied_bytes)
{
    static uint64_t data[MOST_NODES], frame[MOST_NODES];
    begin_stage(n);
    for (unsigned i = 0; i < n; i++) {
        const struct cost_step s = cost_doubling_step(n, i, k);
        data[i] = send_message(i, bytes);
        frame[i] = s.to != s.from ? send_message(i, 0) : 0;
    }
    for (unsigned i = 0; i < n; i++) {
        const struct cost_step s = cost_doubling_step(n, i, k);
        nodes[i].cpu = later(nodes[i].cpu, data[s.from]) + half_message();
        if (s.to != s.from)
            nodes[i].cpu = later(nodes[i].cpu, frame[s.to]) + half_message();
    }
    end_stage(n, copied_bytes);
}

/* Collect `bytes` bytes of each node. */
static void collect(unsigned n, uint64_t bytes)
{
    for (unsigned k = 0; k < cost_doubling_steps(n); k++)
        exchange_step(n, k, cost_doubling_step(n, 0, k).n_more * bytes, 0);
}

static void pass_parts(unsigned n, uint64_t part)
{
    begin_stage(n);
    end_stage(n, n * part); /* the vector is copied to the blocks */
    for (unsigned k = 0; k < cost_doubling_steps(n); k++) {
        const uint64_t bytes = cost_passed_blocks(n, k) * part;
        exchange_step(n, k, bytes, 2 * bytes);
    }
    begin_stage(n);
    end_stage(n, n * part); /* summed */
    collect(n, part);
    begin_stage(n);
    end_stage(n, n * part); /* copied back */
}

/* A step of a ring: each node sends to the next one. */
static void step_ring(unsigned n, uint64_t bytes)
{
    static uint64_t arrival[MOST_NODES];
    begin_stage(n);
    for (unsigned i = 0; i < n; i++)
        arrival[(i + 1) % n] = send_message(i, bytes);
    for (unsigned i = 0; i < n; i++)
        nodes[i].cpu = later(nodes[i].cpu, arrival[i]) + half_message();
    end_stage(n, 0);
}

static uint64_t simulate(enum cost_algo algo, unsigned n, size_t bytes)
{
    uint64_t end = 0;
    memset(nodes, 0, sizeof nodes);
    switch (algo) {
    case COST_WHOLE:
        exchange_all(n, bytes, (uint64_t)n * bytes);
        break;
    case COST_DOUBLING:
        collect(n, bytes);
        end_stage(n, (uint64_t)n * bytes);
        break;
    case COST_PASSING:
        pass_parts(n, (bytes + n - 1) / n);
        break;
    case COST_PARTS:
        exchange_all(n, bytes / n, bytes);
        exchange_all(n, bytes / n, 0);
        break;
    default:
        for (unsigned k = 0; k < 2 * (n - 1); k++)
            step_ring(n, bytes / n);
        end_stage(n, bytes);
    }
    for (unsigned i = 0; i < n; i++)
        end = later(end, nodes[i].ready);
    return end;
}

static const char *name_of(enum cost_algo algo)
{
    static const char *const names[] = {[COST_WHOLE] = "whole",
                                        [COST_DOUBLING] = "doubling",
                                        [COST_PASSING] = "passing",
                                        [COST_PARTS] = "parts",
                                        [COST_RING] = "ring"};
    return names[algo];
}

/* A formula has no overlap of the messages that a node sends with those that arrive, so it may be
 * above the simulation: by up to a half. */
static int compare(void)
{
    static const unsigned sizes[] = {2, 3, 4, 7, 16, 100, 1024};
    static const size_t bytes[] = {4, 4096, 65536, 1 << 20};
    int n_wrong = 0;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned k = 0; k < sizeof bytes / sizeof *bytes; k++)
            for (int algo = COST_WHOLE; algo <= COST_RING; algo++) {
                if (!cost_fits_memory((enum cost_algo)algo, sizes[i], bytes[k]))
                    continue;
                const double formula =
                                 (double)cost_of((enum cost_algo)algo, sizes[i], bytes[k], &net),
                             real = (double)simulate((enum cost_algo)algo, sizes[i], bytes[k]);
                if (formula >= real / 1.1 && formula <= real * 1.5)
                    continue;
                printf("%s, %u nodes, %zu bytes: %.0f us by the formula, %.0f us simulated\n",
                       name_of((enum cost_algo)algo), sizes[i], bytes[k], formula / ONE_US,
                       real / ONE_US);
                n_wrong++;
            }
    return n_wrong;
}

static void print_table(void)
{
    static const unsigned sizes[] = {4, 16, 64, 256, 1024, 4096};
    static const size_t bytes[] = {4, 4096, 65536, 1 << 20, 64 << 20};
    puts("| nodes | bytes | whole | doubling | passing | parts | chosen | ring | halving and "
         "doubling | tree "
         "|");
    puts("|---:|---:|---:|---:|---:|---:|---|---:|---:|---:|");
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned k = 0; k < sizeof bytes / sizeof *bytes; k++) {
            printf("| %u | %zu |", sizes[i], bytes[k]);
            for (int algo = COST_WHOLE; algo <= COST_PARTS; algo++) {
                if (!cost_fits_memory((enum cost_algo)algo, sizes[i], bytes[k]))
                    printf(" - |");
                else
                    printf(" %.0f |",
                           (double)simulate((enum cost_algo)algo, sizes[i], bytes[k]) / ONE_US);
            }
            printf(" %s |", name_of(cost_choose(sizes[i], bytes[k], &net)));
            for (int algo = COST_RING; algo <= COST_TREE; algo++)
                printf(" %.0f |",
                       (double)cost_of((enum cost_algo)algo, sizes[i], bytes[k], &net) / ONE_US);
            putchar('\n');
        }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "table") == 0) {
        print_table();
        return 0;
    }
    return compare() == 0 ? 0 : 1;
}
