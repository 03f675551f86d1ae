/* --mpi: what the libraries of a program decide, and what the option does. */
#include "one_command_line.h"

#include "launcher/job/job_spec.h"
#include "tests/support/suite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REFUSED(message, ...)                                                                      \
    do {                                                                                           \
        ck_assert_int_eq(PARSE("ddprun", __VA_ARGS__), -EINVAL);                                   \
        ck_assert_str_eq(err.text, message);                                                       \
    } while (0)

START_TEST(open_mpi_programs_are_served_pmix)
{
    static const char *const libraries[] = {"libmpi.so.40", "libmpi_mpifh.so.40",
                                            "libopen-rte.so.40", "libopen-pal.so.80"};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        fake.mpi = libraries[i];
        JOB("ddprun", "-n", "2", "./program");
        ck_assert_msg(spec.mpi == MPI_BY_PMIX, "%s", libraries[i]);
    }
    JOB("ddprun", "-n", "1", "./program"); /* a single rank needs no PMIx */
    ck_assert_int_eq(spec.mpi, MPI_BY_NOTHING);
    JOB("ddprun", "-n", "1", "--mpi", "pmix", "./program");
    ck_assert_int_eq(spec.mpi, MPI_BY_PMIX);
    JOB("ddprun", "-n", "2", "--mpi", "none", "./program");
    ck_assert_int_eq(spec.mpi, MPI_BY_NOTHING);
    JOB("ddprun", "-n", "2", "train.py");
    ck_assert_int_eq(spec.mpi, MPI_BY_NOTHING);
    JOB("ddprun", "-n", "2", "--mpi", "pmix", "train.py");
    ck_assert_int_eq(spec.mpi, MPI_BY_PMIX);
    JOB("ddprun", "-n", "1", "true", ":", "-n", "1", "./program");
    ck_assert_int_eq(spec.mpi, MPI_BY_PMIX);
}
END_TEST

START_TEST(old_open_mpi_programs_are_refused)
{
    fake.mpi = "libmpi.so.20";
    REFUSED("'./program' is linked against an Open MPI that is too old (libmpi.so.20): version 3.1 "
            "or later is required. Use its mpirun, or --mpi none to run every rank as a separate "
            "1-process MPI job",
            "-n", "2", "./program");
    JOB("ddprun", "-n", "1", "./program");
    JOB("ddprun", "-n", "2", "--mpi", "none", "./program");
}
END_TEST

#define MPI4PY(prefix, abi)                                                                        \
    prefix "/lib/python3.11/site-packages/mpi4py/MPI." abi "cpython-311-x86_64-linux-gnu.so"

static void expect_mpi4py(enum mpi_choice mpi, const char *const *modules)
{
    fake.modules = modules;
    JOB("ddprun", "-n", "2", "python3", "-u", "-m", "mpi4py", "solve.py");
    ck_assert_int_eq(spec.mpi, mpi);
    JOB("ddprun", "-n", "2", "-m", "mpi4py.bench", "helloworld");
    ck_assert_int_eq(spec.mpi, mpi);
    JOB("ddprun", "-n", "2", "python3", "-m", "mpi4py_too", "-m", "mpi4py");
    ck_assert_int_eq(spec.mpi, MPI_BY_NOTHING);
    JOB("ddprun", "-n", "2", "python3", "solve.py", "-m", "mpi4py");
    ck_assert_int_eq(spec.mpi, MPI_BY_NOTHING);
}

START_TEST(the_module_of_mpi4py_decides)
{
    expect_mpi4py(MPI_BY_NOTHING, NULL);
    expect_mpi4py(MPI_BY_PMIX, (const char *[]){MPI4PY("/usr", "openmpi."), NULL});
    expect_mpi4py(MPI_BY_PMI1, (const char *[]){MPI4PY("/usr", ""), NULL});
    expect_mpi4py(MPI_BY_PMI1, (const char *[]){MPI4PY("/usr/local", "mpich."), NULL});
    expect_mpi4py(MPI_BY_NOTHING, (const char *[]){MPI4PY("/opt", "openmpi."), NULL});
}
END_TEST

START_TEST(of_several_modules_of_mpi4py_one_is_selected_as_mpi4py_does)
{
    static const struct fake_file open_mpi[] = {{"/usr/bin/python3", FILE_EXECUTABLE},
                                                {"solve.py", FILE_TEXT},
                                                {"/usr/lib/libmpi.so.40", FILE_BINARY},
                                                {NULL}};
    const char *const both[] = {MPI4PY("/usr", "mpich."), MPI4PY("/usr", "openmpi."), NULL};
    fake.modules = both;
    REFUSED("cannot determine the MPI of mpi4py, which has modules for several: use --mpi pmix for "
            "Open MPI, or --mpi pmi1 for MPICH",
            "-n", "2", "python3", "-m", "mpi4py", "solve.py");
    JOB("ddprun", "-n", "2", "--mpi", "pmix", "python3", "-m", "mpi4py", "solve.py");
    ck_assert_int_eq(spec.mpi, MPI_BY_PMIX);
    WITH_ENV("MPI4PY_MPIABI=openmpi");
    expect_mpi4py(MPI_BY_PMIX, both);
    WITH_ENV("MPI4PY_MPIABI=mpich");
    expect_mpi4py(MPI_BY_PMI1, both);
    fake.env = fake_host_env_usual.env;
    fake.files = open_mpi;
    expect_mpi4py(MPI_BY_PMIX, both);
}
END_TEST

START_TEST(programs_of_different_mpis_are_refused)
{
    fake.mpi = "libmpi.so.40";
    fake.other_mpi = "libmpich.so.12";
    REFUSED("'true' is linked against MPICH (libmpich.so.12), and another program of this job "
            "against a different MPI: the programs of a job must use the same one",
            "-n", "1", "./program", ":", "-n", "1", "true");
    fake.other_mpi = "libmpi.so.40";
    JOB("ddprun", "-n", "1", "./program", ":", "-n", "1", "true");
    ck_assert_int_eq(spec.mpi, MPI_BY_PMIX);
}
END_TEST

START_TEST(programs_with_the_mpich_abi_are_served_pmi_1)
{
    static const char *const libraries[] = {"libmpich.so.12", "libmpi.so.12", "libmpi_intel.so.12",
                                            "libmpichfort.so.12"};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        fake.mpi = libraries[i];
        JOB("ddprun", "-n", "2", "./program");
        ck_assert_msg(spec.mpi == MPI_BY_PMI1, "%s", libraries[i]);
    }
    JOB("ddprun", "-n", "2", "--mpi", "none", "./program");
    ck_assert_int_eq(spec.mpi, MPI_BY_NOTHING);
    JOB("ddprun", "-n", "1", "./program"); /* a single rank needs no PMI */
    ck_assert_int_eq(spec.mpi, MPI_BY_NOTHING);
    JOB("ddprun", "-n", "2", "train.py");
    ck_assert_int_eq(spec.mpi, MPI_BY_NOTHING);
    JOB("ddprun", "-n", "1", "true", ":", "-n", "1", "./program");
    ck_assert_int_eq(spec.mpi, MPI_BY_PMI1);
    JOB("ddprun", "-n", "2", "--mpi", "pmi1", "train.py");
    ck_assert_int_eq(spec.mpi, MPI_BY_PMI1);
}
END_TEST

START_TEST(options_that_conflict_with_mpi_are_refused)
{
    REFUSED("--warm cannot be used with MPI programs", "--mpi", "pmi1", "--warm", "train.py");
    REFUSED("--standby cannot be used with MPI programs: ddprun restarts all ranks of an MPI "
            "program together",
            "--mpi", "pmi1", "--max-restarts", "1", "--standby", "1", "train.py");
    REFUSED("--store worker cannot be used with MPI programs on several nodes, which use ddprun's "
            "store; use --store agent",
            "--mpi", "pmi1", "--nnodes", "2", "--rdzv-endpoint", "a", "--rdzv-id", "b", "--store",
            "worker", "train.py");
    REFUSED("--warm cannot be used with MPI programs", "--mpi", "pmix", "--warm", "train.py");
    REFUSED("invalid value 'pmi2' for --mpi: expected one of auto, pmi1, pmix, none", "--mpi",
            "pmi2", "train.py");
}
END_TEST

TEST_SUITE(cli_mpi)
{
    Suite *suite = suite_create("cli_mpi");
    TCase *c = tcase_create("cli_mpi");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, open_mpi_programs_are_served_pmix);
    tcase_add_test(c, old_open_mpi_programs_are_refused);
    tcase_add_test(c, the_module_of_mpi4py_decides);
    tcase_add_test(c, of_several_modules_of_mpi4py_one_is_selected_as_mpi4py_does);
    tcase_add_test(c, programs_of_different_mpis_are_refused);
    tcase_add_test(c, programs_with_the_mpich_abi_are_served_pmi_1);
    tcase_add_test(c, options_that_conflict_with_mpi_are_refused);
    suite_add_tcase(suite, c);
    return suite;
}
