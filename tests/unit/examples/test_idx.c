/* test_idx.c - files good and bad. tests/data/idx/bad/CASE has the input, the dimensions that the
 * reader asks for, and the error. */
#include "examples/mnist/idx.h"

#include "tests/support/cases.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "examples/shared/failure.h"

static char directory[] = "/tmp/test_idx.XXXXXX";
static char path[64];

static void make_directory(void)
{
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/file", directory);
}

static void remove_directory(void)
{
    unlink(path);
    rmdir(directory);
}

static void check_bad(const char *folder)
{
    char input[1400], error[256], dims[16], want[1700];
    struct failure why = {""};
    struct idx idx = {.n_bytes = 77};

    snprintf(input, sizeof(input), "%s/input", folder);
    if (access(input, F_OK) != 0)
        strcat(input, ".gz");
    cases_read_line(folder, "error", error, sizeof(error));
    cases_read_line(folder, "dims", dims, sizeof(dims));
    ck_assert_msg(idx_read(input, (unsigned)atoi(dims), &idx, &why) == -1, "%s was taken", input);
    snprintf(want, sizeof(want), "'%s': %s", input, error);
    ck_assert_str_eq(why.text, want);
    ck_assert_uint_eq(idx.n_bytes, 77); /* not touched */
}

START_TEST(every_bad_file_is_refused_by_name_and_reason)
{
    ck_assert_int_ge(cases_each("idx/bad", check_bad), 20);
}
END_TEST

static const uint8_t data[24] = "abcdefghijklmnopqrstuvw";

START_TEST(written_files_are_read_back)
{
    static const uint32_t dims[] = {2, 3, 4};
    struct failure why = {""};

    for (unsigned n_dims = 1; n_dims <= 3; n_dims++) {
        struct idx idx;
        ck_assert_int_eq(idx_write(path, dims, n_dims, data, &why), 0);
        ck_assert_msg(idx_read(path, n_dims, &idx, &why) == 0, "%s", why.text);
        for (unsigned i = 0; i < 3; i++)
            ck_assert_uint_eq(idx.dims[i], i < n_dims ? dims[i] : 1);
        ck_assert_uint_eq(idx.n_bytes, n_dims == 1 ? 2 : n_dims == 2 ? 6 : 24);
        ck_assert_mem_eq(idx.data, data, idx.n_bytes);
        idx_fini(&idx);
    }
}
END_TEST

START_TEST(the_bytes_equal_those_of_mnist)
{
    static const uint8_t want[] = {0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 2, 'a', 'b'};
    uint8_t got[sizeof(want) + 1];
    struct failure why = {""};

    ck_assert_int_eq(idx_write(path, (uint32_t[]){1, 2}, 2, data, &why), 0);
    FILE *in = fopen(path, "re");
    ck_assert_ptr_nonnull(in);
    ck_assert_uint_eq(fread(got, 1, sizeof(got), in), sizeof(want));
    fclose(in);
    ck_assert_mem_eq(got, want, sizeof(want));
}
END_TEST

START_TEST(compressed_files_of_any_name_are_read)
{
    static const uint8_t header[] = {0, 0, 8, 1, 0, 0, 0, 24};
    struct failure why = {""};
    struct idx idx;

    gzFile out = gzopen(path, "wbe");
    ck_assert_ptr_nonnull(out);
    ck_assert_int_eq(gzwrite(out, header, sizeof(header)), sizeof(header));
    ck_assert_int_eq(gzwrite(out, data, sizeof(data)), sizeof(data));
    ck_assert_int_eq(gzclose(out), Z_OK);
    ck_assert_msg(idx_read(path, 1, &idx, &why) == 0, "%s", why.text);
    ck_assert_mem_eq(idx.data, data, sizeof(data));
    idx_fini(&idx);
}
END_TEST

START_TEST(a_missing_file_and_a_directory_are_named)
{
    struct failure why = {""};
    struct idx idx;

    ck_assert_int_eq(idx_read("/dev/null/labels", 1, &idx, &why), -1);
    ck_assert_str_eq(why.text, "cannot open '/dev/null/labels': Not a directory");
    ck_assert_int_eq(idx_read("/", 1, &idx, &why), -1);
    ck_assert_str_eq(why.text, "'/': Is a directory");
    ck_assert_int_eq(idx_write("/dev/null/labels", (uint32_t[]){24}, 1, data, &why), -1);
    ck_assert_str_eq(why.text, "cannot write '/dev/null/labels': Not a directory");
}
END_TEST

TEST_SUITE(idx)
{
    Suite *suite = suite_create("idx");
    TCase *tests = tcase_create("idx");

    tcase_add_unchecked_fixture(tests, make_directory, remove_directory);
    tcase_add_test(tests, every_bad_file_is_refused_by_name_and_reason);
    tcase_add_test(tests, written_files_are_read_back);
    tcase_add_test(tests, the_bytes_equal_those_of_mnist);
    tcase_add_test(tests, compressed_files_of_any_name_are_read);
    tcase_add_test(tests, a_missing_file_and_a_directory_are_named);
    suite_add_tcase(suite, tests);
    return suite;
}
