/* How the end of an MPI rank counts. */
#include "launcher/generation/mpi_end.h"
#include "tests/support/suite.h"

#include <check.h>

enum { EXIT_1 = 1 << 8, EXIT_3 = 3 << 8, SIGNAL_9 = 9 };

static enum mpi_end_note note;

static int status_of(struct mpi_end end)
{
    return mpi_end_status(&end, &note);
}

START_TEST(after_finalize_the_status_counts)
{
    ck_assert_int_eq(status_of((struct mpi_end){.stage = MPI_END_FINALIZED}), 0);
    ck_assert_int_eq(note, MPI_END_NO_NOTE);
    ck_assert_int_eq(status_of((struct mpi_end){.stage = MPI_END_FINALIZED, .status = EXIT_3}),
                     EXIT_3);
}
END_TEST

START_TEST(an_end_without_finalize_is_a_failure)
{
    ck_assert_int_eq(status_of((struct mpi_end){.stage = MPI_END_INSIDE}), EXIT_1);
    ck_assert_int_eq(note, MPI_END_LEFT);
    ck_assert_int_eq(status_of((struct mpi_end){.stage = MPI_END_INSIDE, .status = SIGNAL_9}),
                     SIGNAL_9);
    ck_assert_int_eq(note, MPI_END_NO_NOTE);
    ck_assert_int_eq(status_of((struct mpi_end){.stage = MPI_END_INSIDE, .was_signaled = true}), 0);
    ck_assert_int_eq(note, MPI_END_NO_NOTE);
}
END_TEST

START_TEST(an_end_without_init_is_noted)
{
    ck_assert_int_eq(status_of((struct mpi_end){.stage = MPI_END_SILENT}), 0);
    ck_assert_int_eq(note, MPI_END_ALONE);
    ck_assert_int_eq(status_of((struct mpi_end){.stage = MPI_END_SILENT, .status = EXIT_3}),
                     EXIT_3);
    ck_assert_int_eq(note, MPI_END_NO_NOTE);
    ck_assert_int_eq(status_of((struct mpi_end){.stage = MPI_END_SILENT, .was_signaled = true}), 0);
    ck_assert_int_eq(note, MPI_END_NO_NOTE);
}
END_TEST

START_TEST(an_abort_has_its_code_however_the_rank_ends)
{
    static const struct {
        int code, status;
    } cases[] = {{42, 42 << 8}, {0, EXIT_1}, {256, EXIT_1}, {-1, 255 << 8}, {259, EXIT_3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int status = 0; status <= SIGNAL_9; status += SIGNAL_9) {
            const struct mpi_end end = {.stage = MPI_END_INSIDE,
                                        .has_aborted = true,
                                        .exit_code = cases[i].code,
                                        .status = status,
                                        .was_signaled = status != 0};
            ck_assert_int_eq(status_of(end), cases[i].status);
            ck_assert_int_eq(mpi_end_of_abort(cases[i].code), cases[i].status);
            ck_assert_int_eq(note, MPI_END_NO_NOTE);
        }
}
END_TEST

TEST_SUITE(mpi_end)
{
    Suite *suite = suite_create("mpi_end");
    TCase *c = tcase_create("mpi_end");
    tcase_add_test(c, after_finalize_the_status_counts);
    tcase_add_test(c, an_end_without_finalize_is_a_failure);
    tcase_add_test(c, an_end_without_init_is_noted);
    tcase_add_test(c, an_abort_has_its_code_however_the_rank_ends);
    suite_add_tcase(suite, c);
    return suite;
}
