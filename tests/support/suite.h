/* suite.h - a test's main(). */
#ifndef DDP_TESTS_SUPPORT_SUITE_H
#define DDP_TESTS_SUPPORT_SUITE_H

#include <check.h>
#include <stdlib.h>

/* Run a suite, which is freed. CK_VERBOSITY and its like count.
 *
 * returns   the exit status */
static inline int run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
