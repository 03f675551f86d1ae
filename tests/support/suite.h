/* suite.h - the main() of a test executable: one for each component, made of suites. */
#ifndef DDP_TESTS_SUPPORT_SUITE_H
#define DDP_TESTS_SUPPORT_SUITE_H

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Begins the function that makes a suite. It returns NULL, and prints why, where the suite cannot
 * run. */
#define TEST_SUITE(name)                                                                           \
    Suite *test_##name(void);                                                                      \
    Suite *test_##name(void)

enum { TEST_SKIPPED = 77 }; /* meson's exit status for that */

struct test_suite {
    const char *name;
    Suite *(*make)(void);
};

/* Run a suite, which is freed; NULL is one that is skipped. CK_VERBOSITY and its like count.
 *
 * returns   the exit status */
static inline int run_suite(Suite *suite)
{
    if (suite == NULL)
        return TEST_SKIPPED;
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Run the suites that are named on the command line; without names, all of them.
 *
 * returns   EXIT_FAILURE if one failed or has no such name, else TEST_SKIPPED if one was skipped */
static inline int run_suites(int argc, char **argv, const struct test_suite *suites, size_t n)
{
    int result = EXIT_SUCCESS;
    for (int i = argc > 1; i < argc; i++) {
        bool found = false;
        for (size_t k = 0; k < n; k++) {
            if (argc > 1 && strcmp(argv[i], suites[k].name) != 0)
                continue;
            const int status = run_suite(suites[k].make());
            result = result == EXIT_FAILURE || status == EXIT_SUCCESS ? result : status;
            found = true;
        }
        if (!found) {
            fprintf(stderr, "%s: no suite '%s'\n", argv[0], argv[i]);
            result = EXIT_FAILURE;
        }
    }
    return result;
}

#endif
