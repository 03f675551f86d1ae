/* The option about programs that were linked with an MPI library. */
#include "cli_draft.h"
#include "launcher/job/job_spec.h"

#include "common/error.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* By the names that the libraries have had for years, up to where their versions begin. Of two that
 * fit a program the first decides: a library for Fortran or C++ comes with the one for C. */
static const struct kind {
    const char *library, *name;
    bool by_pmi1;
} kinds[] = {
    {"libmpich.so.", "MPICH", true},
    {"libmpichfort.so.", "MPICH", true},
    {"libmpi.so.12", "MPICH or one of its kin", true},
    {"libmpifort.so.12", "MPICH or one of its kin", true},
    {"libmpi_intel.so.", "Intel MPI", true},
    {"libmpi.so.20", "Open MPI", false},
    {"libmpi.so.40", "Open MPI", false},
    {"libmpi_mpifh.so.", "Open MPI", false},
    {"libopen-rte.so.", "Open MPI", false},
    {"libopen-pal.so.", "Open MPI", false},
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

/* Each of the ranks would find no starter that it knows, and be the only one of a job of its own:
 * all would compute the same, and write over each other's results. */
static int refuse(const struct job_program *p, const struct found *f, struct co_error *err)
{
    return co_fail(
        err, -EINVAL,
        "'%.200s' was linked with %s (%s), whose ranks find each other by PMIx, and ddprun "
        "has none: each would be rank 0 of 1. Start it by mpirun or srun, or all the "
        "same with --mpi none",
        p->shown, kinds[f->kind].name, f->library);
}

static int look_at(const struct draft *d, const struct job_program *p, bool *ret_pmi,
                   struct co_error *err)
{
    struct found f = {.kind = N_KINDS};
    d->world->each_library(d->world->arg, p->path, on_library, &f);
    if (f.kind == N_KINDS)
        return 0;
    if (!kinds[f.kind].by_pmi1)
        return refuse(p, &f, err);
    *ret_pmi = true;
    return 0;
}

static int look_at_all(const struct draft *d, const struct job_spec *spec, bool *ret_pmi,
                       struct co_error *err)
{
    const struct job_program first = job_spec_program(spec, 0);
    int rc = look_at(d, &first, ret_pmi, err);
    for (int i = 0; rc == 0 && spec->more != NULL && i < spec->more->n; i++)
        rc = look_at(d, &spec->more->of[i].program, ret_pmi, err);
    return rc;
}

/* Who asked for what does not go together with PMI hears so; it is no use to guess what was meant
 * more. */
static int check_others(const struct draft *d, const struct job_spec *spec, struct co_error *err)
{
    if (spec->world.guided && spec->store == STORE_WORKER)
        return co_fail(err, -EINVAL,
                       "%s worker: ranks of MPI on several nodes find each other by ddprun's store",
                       d->given[OPTION_STORE].by);
    if (spec->warm != WARM_NEVER)
        return co_fail(err, -EINVAL, "%s: ranks of MPI are not forked from a parent",
                       d->given[OPTION_WARM].by);
    if (spec->n_standby > 0)
        return co_fail(err, -EINVAL,
                       "%s: a rank of MPI cannot be replaced: all are started again together",
                       d->given[OPTION_STANDBY].by);
    return 0;
}

int cli_set_mpi(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    enum { AUTO, PMI1, NONE };
    static const char *const modes[] = {"auto", "pmi1", "none", NULL};
    int mode = AUTO;
    int rc = cli_choice(&d->given[OPTION_MPI], modes, &mode, err);
    if (rc < 0 || mode == NONE || spec->task != NULL)
        return rc;
    spec->pmi = mode == PMI1;
    if (mode == AUTO && (spec->n_local > 1 || spec->world.guided))
        rc = look_at_all(d, spec, &spec->pmi, err);
    return rc == 0 && spec->pmi ? check_others(d, spec, err) : rc;
}
