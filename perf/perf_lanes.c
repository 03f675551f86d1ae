#include "perf_lanes.h"

#include "perf_crossover.h"

#include <ddp/env.h>
#include <ddp/error.h>
#include <ddp/group.h>
#include <stdlib.h>

enum { ROUNDS = 3, BYTES = 64 << 20, ITERATIONS = 5, N_NUMBERS = 5 };

static const char *const numbers[N_NUMBERS] = {"1", "2", "4", "8", "16"};

static enum perf_exit fail(const char *text)
{
    fprintf(stderr, "ddp-perf: error: %s\n", text);
    return PERF_EXIT_FAILED;
}

static enum perf_exit refuse_one_node(int rank)
{
    if (rank == 0)
        fail("--tune without --ranks measures the network, but all ranks are on one node: start "
             "ranks on several nodes");
    return PERF_EXIT_USAGE;
}

/* us   the least time of all rounds; 0: of none yet */
static enum perf_exit time_number(const char *number, const struct perf_spec *spec, double *us,
                                  int *ret_rank)
{
    struct ddp_group *g;
    struct perf_times t = {0};
    setenv(DDP_ENV_SOCKET_LANES, number, 1); /* read when a group is made */
    if (ddp_init(NULL, &g) != 0)
        return fail(ddp_last_error());
    *ret_rank = ddp_rank(g);
    enum perf_exit status = PERF_EXIT_OK;
    if (ddp_n_nodes(g) < 2)
        status = refuse_one_node(*ret_rank);
    else if (perf_run_one(g, spec, BYTES, &t) != 0)
        status = fail(ddp_last_error());
    ddp_finalize(g);
    if (*us == 0 || t.mean_us < *us)
        *us = t.mean_us;
    return status;
}

/* Lines that a file of variables may have: comments, and one variable. */
static void print(const double *us, FILE *out)
{
    fprintf(out, "# all_reduce of %d bytes\n#%12s %12s %14s\n", BYTES, "connections", "time (us)",
            "algbw (GB/s)");
    for (size_t i = 0; i < N_NUMBERS; i++)
        fprintf(out, "#%12s %12.1f %14.2f\n", numbers[i], us[i], BYTES / us[i] / 1e3);
    fprintf(out, "%s=%s\n", DDP_ENV_SOCKET_LANES, numbers[perf_crossover_least(us, N_NUMBERS)]);
}

enum perf_exit perf_lanes(unsigned n_iterations, FILE *out)
{
    const struct perf_spec spec = {.collective = PERF_ALL_REDUCE,
                                   .dtype = DDP_FLOAT32,
                                   .op = DDP_SUM,
                                   .n_iterations = n_iterations > 0 ? n_iterations : ITERATIONS,
                                   .n_warmups = 2};
    double us[N_NUMBERS] = {0};
    int rank = 0;
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < N_NUMBERS; i++) {
            const enum perf_exit status = time_number(numbers[i], &spec, &us[i], &rank);
            if (status != PERF_EXIT_OK)
                return status;
        }
    if (rank == 0)
        print(us, out);
    return fflush(out) == 0 ? PERF_EXIT_OK : fail("cannot write the result");
}
