/* The option about programs that were linked with an MPI library. */
#include "cli_draft.h"
#include "job_spec.h"

#include "common/error.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* By the names that the libraries have had for years. */
static const struct {
    const char *library, *name, *lacks;
} kinds[] = {
    {"libmpi.so.40", "Open MPI", "PMIx"},       {"libmpi.so.20", "Open MPI", "PMIx"},
    {"libmpich.so.12", "MPICH", "PMI"},         {"libmpi.so.12", "MPICH or one of its kin", "PMI"},
    {"libmpi_intel.so.12", "Intel MPI", "PMI"},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static void on_library(void *arg, const char *name)
{
    int *kind = arg;
    for (int i = 0; i < N_KINDS; i++)
        if (strcmp(name, kinds[i].library) == 0)
            *kind = i;
}

/* Each of the ranks would find no starter that it knows, and be the only one of a job of its own:
 * all would compute the same, and write over each other's results. */
int cli_check_mpi(const struct draft *d, const struct job_spec *spec, struct co_error *err)
{
    static const char *const modes[] = {"auto", "none", NULL};
    int mode = 0, kind = -1;
    int rc = cli_choice(&d->given[OPTION_MPI], modes, &mode, err);
    if (rc < 0 || mode == 1 || spec->task != NULL || (spec->n_local == 1 && !spec->world.guided))
        return rc;
    d->world->each_library(d->world->arg, spec->path, on_library, &kind);
    if (kind < 0)
        return 0;
    return co_fail(
        err, -EINVAL,
        "'%.200s' was linked with %s (%s), whose ranks find each other by %s, and ddprun "
        "has none: each would be rank 0 of 1. Start it by mpirun or srun, or all the "
        "same with --mpi none",
        spec->shown, kinds[kind].name, kinds[kind].library, kinds[kind].lacks);
}
