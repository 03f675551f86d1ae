/* --mpi: how the ranks of an MPI program find each other. By default the libraries decide that the
 * program was linked with: MPICH's ranks, and those of libraries with its ABI, by PMI-1, Open MPI's
 * by PMIx. Of "python -m mpi4py" those of mpi4py's extension modules decide. */
#include "cli.h"
#include "cli_draft.h"
#include "launcher/job/job_spec.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"

#include <errno.h>
#include <limits.h>
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

/* --- python -m mpi4py --- */

struct modules {
    const struct draft *d;
    struct found by[MPI_BY_PMIX + 1]; /* a module of each kind */
    int n;                            /* kinds that there are */
};

/* An option with a word of its own in front of -m is not understood. */
static bool runs_mpi4py(const struct job_program *p)
{
    const char *slash = strrchr(p->path, '/');
    char *const *word = p->argv + 1;
    if (slash == NULL || strncmp(slash, "/python", strlen("/python")) != 0)
        return false;
    while (*word != NULL && **word == '-' && strcmp(*word, "-m") != 0)
        word++;
    return word[0] != NULL && word[1] != NULL && strcmp(word[0], "-m") == 0 &&
           strncmp(word[1], "mpi4py", strlen("mpi4py")) == 0 &&
           strchr(".", word[1][strlen("mpi4py")]) != NULL;
}

static void on_module(void *arg, const char *path)
{
    struct modules *m = arg;
    struct found f = {.kind = N_KINDS};
    m->d->world->each_library(m->d->world->arg, path, on_library, &f);
    if (f.kind == N_KINDS)
        return;
    struct found *by = &m->by[kinds[f.kind].by];
    m->n += by->kind == N_KINDS;
    *by = f;
}

static int find_modules(struct modules *m, const char *prefix, int len, const char *below)
{
    co_autofree char *pattern =
        co_format("%.*s%s/lib*/python3*/*-packages/mpi4py/MPI*.so", len, prefix, below);
    if (pattern == NULL)
        return -ENOMEM;
    m->d->world->each_match(m->d->world->arg, pattern, on_module, m);
    return 0;
}

/* Is this library in the prefix of a Python? mpi4py looks there first. */
static int has_library(const struct draft *d, const char *prefix, int len, const char *name,
                       bool *ret)
{
    co_autofree char *path = co_format("%.*s/lib/%s", len, prefix, name);
    if (path == NULL)
        return -ENOMEM;
    *ret = d->world->look_at(d->world->arg, path) != FILE_MISSING;
    return 0;
}

/* A wheel of mpi4py has modules for several MPIs, and selects one when it is imported: by a
 * variable, else by the library that it finds. */
static int select_kind(const struct draft *d, const char *prefix, int len, enum mpi_choice *ret)
{
    const char *abi = host_env_get(d->world, "MPI4PY_MPIABI");
    bool has_mpich = false, has_open_mpi = false;
    *ret = MPI_BY_NOTHING;
    if (abi != NULL) {
        *ret = strcmp(abi, "openmpi") == 0 ? MPI_BY_PMIX
               : strcmp(abi, "mpich") == 0 ? MPI_BY_PMI1
                                           : MPI_BY_NOTHING;
        return 0;
    }
    if (host_env_get(d->world, "MPI4PY_LIBMPI") != NULL)
        return 0;
    int rc = has_library(d, prefix, len, "libmpi.so.12", &has_mpich)
                 ?: has_library(d, prefix, len, "libmpi.so.40", &has_open_mpi);
    if (rc == 0 && has_mpich != has_open_mpi)
        *ret = has_mpich ? MPI_BY_PMI1 : MPI_BY_PMIX;
    return rc;
}

/* The prefix of a Python: PREFIX/bin/python. returns its length */
static int prefix_of(const char *path, const char **ret)
{
    const char *end = strrchr(path, '/');
    while (end > path && *--end != '/')
        ;
    *ret = end > path ? path : ".";
    return end > path ? (int)(end - path) : 1;
}

/* In the prefix of the Python, or where pip on Debian puts modules, as a user and as root. */
static int find_all_modules(struct modules *m, const char *prefix, int len)
{
    const char *home = host_env_get(m->d->world, "HOME");
    int rc = find_modules(m, prefix, len, "");
    if (rc == 0 && m->n == 0 && home != NULL)
        rc = find_modules(m, home, INT_MAX, "/.local");
    if (rc == 0 && m->n == 0)
        rc = find_modules(m, "/usr", INT_MAX, "/local");
    return rc;
}

/* returns   0, also if mpi4py is not found: ret is unchanged; -EINVAL, -ENOMEM */
static int look_at_mpi4py(const struct draft *d, const struct job_program *p, struct found *ret,
                          struct co_error *err)
{
    struct modules m = {.d = d};
    const char *prefix;
    const int len = prefix_of(p->path, &prefix);
    enum mpi_choice by = MPI_BY_NOTHING;
    for (int i = 0; i <= MPI_BY_PMIX; i++)
        m.by[i].kind = N_KINDS;
    int rc = find_all_modules(&m, prefix, len);
    if (rc == 0 && m.n > 1)
        rc = select_kind(d, prefix, len, &by);
    if (rc < 0)
        return co_fail(err, rc, "out of memory");
    if (m.n > 1 && m.by[by].kind == N_KINDS)
        return co_fail(err, -EINVAL,
                       "cannot determine the MPI of mpi4py, which has modules for several: use "
                       "--mpi pmix for Open MPI, or --mpi pmi1 for MPICH");
    for (int i = 0; i <= MPI_BY_PMIX; i++)
        if (m.by[i].kind != N_KINDS && (m.n == 1 || i == (int)by))
            *ret = m.by[i];
    return 0;
}

/* --- a program --- */

/* Each of the ranks of a library that is too old would find no launcher that it knows, and would
 * run as the only rank of its own job: all would compute the same, and write over each other's
 * results.
 *
 * mpi   of the programs before this one; then of this one, if it is linked with MPI */
static int take_kind(const struct job_program *p, const struct found *f, enum mpi_choice *mpi,
                     struct co_error *err)
{
    const struct kind *kind = &kinds[f->kind];
    if (kind->by == MPI_BY_NOTHING)
        return co_fail(err, -EINVAL,
                       "'%.200s' is linked against an %s that is too old (%s): version 3.1 or "
                       "later is required. Use its mpirun, or --mpi none to run every rank as a "
                       "separate 1-process MPI job",
                       p->shown, kind->name, f->library);
    if (*mpi != MPI_BY_NOTHING && *mpi != kind->by)
        return co_fail(err, -EINVAL,
                       "'%.200s' is linked against %s (%s), and another program of this job "
                       "against a different MPI: the programs of a job must use the same one",
                       p->shown, kind->name, f->library);
    *mpi = kind->by;
    return 0;
}

static int look_at_program(const struct draft *d, const struct job_program *p, enum mpi_choice *mpi,
                           struct co_error *err)
{
    struct found f = {.kind = N_KINDS};
    d->world->each_library(d->world->arg, p->path, on_library, &f);
    int rc = f.kind == N_KINDS && runs_mpi4py(p) ? look_at_mpi4py(d, p, &f, err) : 0;
    return rc < 0 || f.kind == N_KINDS ? rc : take_kind(p, &f, mpi, err);
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
