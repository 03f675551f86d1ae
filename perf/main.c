/* ddp-perf: words -> perf_spec -> ranks, which measure -> exit status. */
#include "common/error.h"
#include "perf_cli.h"
#include "perf_lanes.h"
#include "perf_network.h"
#include "perf_ranks.h"
#include "perf_run.h"
#include "perf_tune.h"

#include <stdio.h>
#include <stdlib.h>

#ifndef DDPRUN_VERSION
#error "the build gives the version"
#endif

/* Whether a launcher has started this process: by the variables that libddp uses. Not by srun's,
 * which a batch script also has. */
static bool is_launched(void)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]) != NULL)
            return true;
    return false;
}

static int rank_main(void *arg)
{
    return perf_run(arg, stdout);
}

static int tell(const struct co_error *err, int status)
{
    fprintf(stderr, "ddp-perf: error: %s\n", err->text);
    return status;
}

int main(int argc, char **argv)
{
    struct perf_spec spec;
    enum perf_wish wish;
    struct co_error err = {0};
    if (perf_cli_parse(argc, argv, is_launched(), &wish, &spec, &err) < 0)
        return tell(&err, PERF_EXIT_USAGE);
    if (wish == PERF_HELP || wish == PERF_HELP_BRIEF)
        perf_cli_print_help(wish == PERF_HELP_BRIEF, stdout);
    else if (wish == PERF_VERSION)
        printf("ddp-perf %s\n", DDPRUN_VERSION);
    if (wish != PERF_RUN)
        return fflush(stdout) == 0 ? PERF_EXIT_OK : PERF_EXIT_FAILED;
    if (spec.tune && spec.n_ranks == 0) {
        const enum perf_exit status = perf_lanes(spec.n_iterations, stdout);
        return status == PERF_EXIT_OK ? perf_network(stdout) : status;
    }
    if (spec.tune)
        return perf_tune(spec.n_ranks, spec.n_iterations, stdout, &err) < 0
                   ? tell(&err, PERF_EXIT_FAILED)
                   : PERF_EXIT_OK;
    if (spec.n_ranks == 0)
        return perf_run(&spec, stdout);
    int status = perf_ranks_run(spec.n_ranks, 0, rank_main, &spec, &err);
    return status < 0 ? tell(&err, PERF_EXIT_FAILED) : status;
}
