/* test_env_names.c - misspelt variables, and whether the list is that of ddp/env.h. */
#include "launcher/job/env_names.h"
#include "tests/support/suite.h"

#include <check.h>

START_TEST(a_misspelled_name_is_found)
{
    ck_assert_str_eq(env_names_nearest("DDP_TIMOUT=5"), "DDP_TIMEOUT");
    ck_assert_str_eq(env_names_nearest("DDP_PROGRES_THREAD"), "DDP_PROGRESS_THREAD");
    ck_assert_str_eq(env_names_nearest("DDP_SEGMENT_BYTE="), "DDP_SEGMENT_BYTES");
    ck_assert_str_eq(env_names_nearest("DDP_SIMDD=avx2"), "DDP_SIMD");
}
END_TEST

START_TEST(other_names_are_ignored)
{
    ck_assert_ptr_null(env_names_nearest("DDP_TIMEOUT=5"));
    ck_assert_ptr_null(env_names_nearest("DDP_CMA=9"));
    ck_assert_ptr_null(env_names_nearest("DDP_PORT=1"));
    ck_assert_ptr_null(env_names_nearest("DDP_RANK=1"));
    ck_assert_ptr_null(env_names_nearest("DDP_EXPERIMENT_NAME=a"));
    ck_assert_ptr_null(env_names_nearest("DDPRUN_SSH=ssh"));
    ck_assert_ptr_null(env_names_nearest("TIMEOUT=5"));
    ck_assert_ptr_null(env_names_nearest("DDP_"));
    ck_assert_ptr_null(env_names_nearest(""));
}
END_TEST

START_TEST(each_name_of_the_header_is_known)
{
    FILE *header = fopen(getenv("ENV_HEADER"), "re");
    char line[256];
    int n = 0;
    ck_assert_ptr_nonnull(header);
    while (fgets(line, sizeof line, header) != NULL) {
        char *name = strstr(line, "\"DDP_");
        if (name == NULL)
            continue;
        char misspelt[80];
        name[1 + strcspn(name + 1, "\"")] = '\0';
        ck_assert_msg(env_names_nearest(name + 1) == NULL, "%s", name + 1);
        snprintf(misspelt, sizeof misspelt, "%sX", name + 1);
        ck_assert_msg(env_names_nearest(misspelt) != NULL, "%s", misspelt);
        ck_assert_str_eq(env_names_nearest(misspelt), name + 1);
        n++;
    }
    fclose(header);
    ck_assert_int_gt(n, 20);
}
END_TEST

TEST_SUITE(env_names)
{
    Suite *s = suite_create("env_names");
    TCase *c = tcase_create("env_names");
    tcase_add_test(c, a_misspelled_name_is_found);
    tcase_add_test(c, other_names_are_ignored);
    tcase_add_test(c, each_name_of_the_header_is_known);
    suite_add_tcase(s, c);
    return s;
}
