/* test_safetensors_out.c - the file's bytes. */
#include "examples/safetensors_out.h"

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/failure.h"

static char directory[] = "/tmp/test_safetensors.XXXXXX";
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

static const float matrix[6] = {1, 2, 3, 4, 5, 6};
static const int64_t number = 42;
static const struct safetensors_tensor tensors[] = {
    {.name = "m", .dtype = "F32", .element_bytes = 4, .n_dims = 2, .shape = {2, 3}, .data = matrix},
    {.name = "n", .dtype = "I64", .element_bytes = 8, .n_dims = 0, .data = &number},
};

START_TEST(the_header_describes_the_data_that_follow)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"m\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[24,32]}}";
    uint8_t got[512];
    uint64_t length;
    struct failure why = {""};

    ck_assert_int_eq(safetensors_write(path, tensors, 2, &why), 0);
    FILE *in = fopen(path, "re");
    ck_assert_ptr_nonnull(in);
    size_t n = fread(got, 1, sizeof(got), in);
    fclose(in);
    memcpy(&length, got, 8);
    ck_assert_uint_eq(length % 8, 0); /* the data begin aligned */
    ck_assert(length >= sizeof(header) - 1 && length < sizeof(header) - 1 + 8);
    ck_assert_mem_eq(got + 8, header, sizeof(header) - 1);
    for (size_t i = sizeof(header) - 1; i < length; i++)
        ck_assert_uint_eq(got[8 + i], ' ');
    ck_assert_uint_eq(n, 8 + length + 32);
    ck_assert_mem_eq(got + 8 + length, matrix, 24);
    ck_assert_mem_eq(got + 8 + length + 24, &number, 8);
}
END_TEST

START_TEST(a_place_that_cannot_be_written_is_named)
{
    struct failure why = {""};

    ck_assert_int_eq(safetensors_write("/dev/null/file", tensors, 2, &why), -1);
    ck_assert_str_eq(why.text, "cannot write '/dev/null/file': Not a directory");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("safetensors_out");
    TCase *tests = tcase_create("safetensors_out");

    tcase_add_unchecked_fixture(tests, make_directory, remove_directory);
    tcase_add_test(tests, the_header_describes_the_data_that_follow);
    tcase_add_test(tests, a_place_that_cannot_be_written_is_named);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed > 0;
}
