/* --mpi: how the ranks of an MPI program find each other. By default the libraries decide that the
 * program was linked with: MPICH's ranks, and those of libraries with its ABI, by PMI-1, Open MPI's
 * by PMIx. */
#include "cli.h"
#include "cli_draft.h"
#include "launcher/job/job_spec.h"

#include "common/error.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* By the names that the libraries have had for years, up to where their versions begin. Of two that
 * fit a program the first decides: a library for Fortran or C++ comes with the one for C. */
static const struct kind {
    const char *library, *name;
    enum mpi_choice by; /* MPI_BY_NOTHING: too old */
} kinds[] = {
    {"libmpich.so.", "MPICH", MPI_BY_PMI1},
    {"libmpichfort.so.", "MPICH", MPI_BY_PMI1},
    {"libmpi.so.12", "an MPICH-derived MPI", MPI_BY_PMI1},
    {"libmpifort.so.12", "an MPICH-derived MPI", MPI_BY_PMI1},
    {"libmpi_intel.so.", "Intel MPI", MPI_BY_PMI1},
    {"libmpi.so.20", "Open MPI", MPI_BY_NOTHING},
    {"libmpi.so.40", "Open MPI", MPI_BY_PMIX},
    {"libmpi_mpifh.so.20", "Open MPI", MPI_BY_NOTHING},
    {"libmpi_mpifh.so.", "Open MPI", MPI_BY_PMIX},
    {"libopen-rte.so.20", "Open MPI", MPI_BY_NOTHING},
    {"libopen-rte.so.", "Open MPI", MPI_BY_PMIX},
    {"libopen-pal.so.20", "Open MPI", MPI_BY_NOTHING},
    {"libopen-pal.so.", "Open MPI", MPI_BY_PMIX},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, LIBRARY_BYTES = 64 };

struct found {
    int kind; /* N_KINDS: none */
    char library[LIBRARY_BYTES];
};

static void on_library(void *arg, const char *name)
{
    struct found *f = arg;
    for (int i = 0; i < f->kind; i++) {
        const size_t n = strlen(kinds[i].library);
        if (strncmp(name, kinds[i].library, n) != 0)
            continue;
        f->kind = i;
        strncpy(f->library, name, sizeof f->library - 1);
    }
}

/* Each of the ranks of a library that is too old would find no launcher that it knows, and would
 * run as the only rank of its own job: all would compute the same, and write over each other's
 * results.
 *
 * mpi   of the programs before this one; then of this one, if it is linked with MPI */
static int look_at_program(const struct draft *d, const struct job_program *p, enum mpi_choice *mpi,
                           struct co_error *err)
{
    struct found f = {.kind = N_KINDS};
    d->world->each_library(d->world->arg, p->path, on_library, &f);
    if (f.kind == N_KINDS)
        return 0;
    const struct kind *kind = &kinds[f.kind];
    if (kind->by == MPI_BY_NOTHING)
        return co_fail(err, -EINVAL,
                       "'%.200s' is linked against an %s that is too old (%s): version 3.1 or "
                       "later is required. Use its mpirun, or --mpi none to run every rank as a "
                       "separate 1-process MPI job",
                       p->shown, kind->name, f.library);
    if (*mpi != MPI_BY_NOTHING && *mpi != kind->by)
        return co_fail(err, -EINVAL,
                       "'%.200s' is linked against %s (%s), and another program of this job "
                       "against a different MPI: the programs of a job must use the same one",
                       p->shown, kind->name, f.library);
    *mpi = kind->by;
    return 0;
}

/* Options that cannot be used together with MPI are an error: guessing which one was meant is of no
 * use. */
static int check_others(const struct draft *d, const struct job_spec *spec, struct co_error *err)
{
    if (spec->world.has_others && spec->store == STORE_WORKER)
        return co_fail(err, -EINVAL,
                       "%s worker cannot be used with MPI programs on several nodes, which use "
                       "ddprun's store; use --store agent",
                       d->given[OPTION_STORE].by);
    if (spec->warm != WARM_NEVER)
        return co_fail(err, -EINVAL, "%s cannot be used with MPI programs",
                       d->given[OPTION_WARM].by);
    if (spec->n_standby > 0)
        return co_fail(err, -EINVAL,
                       "%s cannot be used with MPI programs: ddprun restarts all ranks of an MPI "
                       "program together",
                       d->given[OPTION_STANDBY].by);
    return 0;
}

static int look_at_programs(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct job_program first = job_spec_program(spec, 0);
    int rc = look_at_program(d, &first, &spec->mpi, err);
    for (int i = 0; rc == 0 && spec->more != NULL && i < spec->more->n; i++)
        rc = look_at_program(d, &spec->more->of[i].program, &spec->mpi, err);
    return rc;
}

int cli_set_mpi(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    enum { AUTO, PMI1, PMIX, NONE };
    static const char *const modes[] = {"auto", "pmi1", "pmix", "none", NULL};
    int mode = AUTO;
    int rc = cli_choice(&d->given[OPTION_MPI], modes, &mode, err);
    if (rc < 0 || mode == NONE || spec->task != NULL)
        return rc;
    spec->mpi = mode == PMI1 ? MPI_BY_PMI1 : mode == PMIX ? MPI_BY_PMIX : MPI_BY_NOTHING;
    if (mode == AUTO && (spec->n_local > 1 || spec->world.has_others)) /* one rank needs no other */
        rc = look_at_programs(d, spec, err);
    return rc == 0 && spec->mpi != MPI_BY_NOTHING ? check_others(d, spec, err) : rc;
}
