/* test_dataset.c - directories of IDX files, whole and not. */
#include "examples/mnist/dataset.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "examples/mnist/digits.h"
#include "examples/shared/failure.h"
#include "tests/support/suite.h"

static const char *const names[] = {
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
};

static char directory[] = "/tmp/test_dataset.XXXXXX";
static struct failure why;
static bool drawn;

static void path_of(int i, const char *suffix, char path[256])
{
    snprintf(path, 256, "%s/%s%s", directory, names[i], suffix);
}

static void make_directory(void)
{
    ck_assert_ptr_nonnull(mkdtemp(directory));
}

static void remove_directory(void)
{
    char path[256];

    for (int i = 0; i < 4; i++) {
        path_of(i, "", path);
        unlink(path);
        path_of(i, ".gz", path);
        unlink(path);
    }
    ck_assert_int_eq(rmdir(directory), 0); /* nothing else was left there */
}

START_TEST(an_empty_directory_gets_drawn_digits)
{
    struct dataset set;
    uint8_t pixels[CONVNET_PIXELS];

    ck_assert_int_eq(dataset_prepare(directory, 30, 7, 9, &drawn, &why), 0);
    ck_assert(drawn);
    ck_assert_msg(dataset_read(directory, &set, &why) == 0, "%s", why.text);
    ck_assert(set.train.n == 30 && set.test.n == 7);
    ck_assert_uint_eq(digits_draw(9, 29, pixels), set.train.images.labels[29]);
    ck_assert_mem_eq(pixels, set.train.images.pixels + 29 * CONVNET_PIXELS, CONVNET_PIXELS);
    ck_assert_mem_ne(set.test.images.pixels, set.train.images.pixels, CONVNET_PIXELS);
    dataset_fini(&set);
}
END_TEST

START_TEST(existing_files_are_not_drawn_again)
{
    char path[256];
    struct stat before, after;

    ck_assert_int_eq(dataset_prepare(directory, 10, 10, 9, &drawn, &why), 0);
    path_of(0, "", path);
    ck_assert_int_eq(stat(path, &before), 0);
    ck_assert_int_eq(dataset_prepare(directory, 20, 20, 9, &drawn, &why), 0);
    ck_assert(!drawn);
    ck_assert_int_eq(stat(path, &after), 0);
    ck_assert(before.st_ino == after.st_ino && before.st_size == after.st_size);
}
END_TEST

START_TEST(compressed_files_are_found)
{
    struct dataset set;
    char from[256], to[256];
    uint8_t bytes[16384];

    ck_assert_int_eq(dataset_prepare(directory, 20, 10, 9, &drawn, &why), 0);
    for (int i = 0; i < 4; i++) {
        path_of(i, "", from);
        path_of(i, ".gz", to);
        FILE *in = fopen(from, "re");
        gzFile out = gzopen(to, "wbe");
        ck_assert(in != NULL && out != NULL);
        size_t n = fread(bytes, 1, sizeof(bytes), in);
        ck_assert_int_eq(gzwrite(out, bytes, (unsigned)n), (int)n);
        fclose(in);
        ck_assert_int_eq(gzclose(out), Z_OK);
        unlink(from);
    }
    ck_assert_int_eq(dataset_prepare(directory, 20, 10, 9, &drawn, &why), 0);
    ck_assert(!drawn);
    ck_assert_msg(dataset_read(directory, &set, &why) == 0, "%s", why.text);
    ck_assert(set.train.n == 20 && set.test.n == 10);
    dataset_fini(&set);
}
END_TEST

START_TEST(a_part_of_a_data_set_is_not_completed_with_other_images)
{
    char path[256], want[512];

    ck_assert_int_eq(dataset_prepare(directory, 10, 10, 9, &drawn, &why), 0);
    path_of(3, "", path);
    unlink(path);
    ck_assert_int_eq(dataset_prepare(directory, 10, 10, 9, &drawn, &why), -1);
    snprintf(want, sizeof(want),
             "'%s' has %s, but not %s[.gz]: complete the dataset, or use an empty directory to "
             "generate one",
             directory, names[2], names[3]);
    ck_assert_str_eq(why.text, want);
}
END_TEST

START_TEST(a_directory_that_cannot_be_made_or_written_is_named)
{
    ck_assert_int_eq(dataset_prepare("/dev/null/data", 10, 10, 9, &drawn, &why), -1);
    ck_assert_str_eq(why.text,
                     "cannot create the data directory '/dev/null/data': Not a directory");
    ck_assert_int_eq(dataset_prepare("/dev/null", 10, 10, 9, &drawn, &why), -1);
    ck_assert_str_eq(why.text, "cannot write '/dev/null/train-images-idx3-ubyte': Not a directory");
}
END_TEST

START_TEST(a_data_set_that_cannot_be_written_whole_leaves_nothing)
{
    char in_the_way[256], name[64];

    /* a directory where the third file is to be written before it gets its name */
    snprintf(name, sizeof(name), ".tmp.%ld", (long)getpid());
    path_of(2, name, in_the_way);
    ck_assert_int_eq(mkdir(in_the_way, 0700), 0);
    ck_assert_int_eq(dataset_prepare(directory, 10, 10, 9, &drawn, &why), -1);
    ck_assert(!drawn);
    ck_assert_ptr_nonnull(strstr(why.text, "t10k-images-idx3-ubyte': Is a directory"));
    ck_assert_int_eq(rmdir(in_the_way), 0); /* the end of the test sees that nothing else is left */
}
END_TEST

/* Replaces one file of a good data set; the error must name it. */
static void check_refused(int i, const uint32_t *dims, unsigned n_dims, const char *reason)
{
    static uint8_t data[20 * 28 * 28];
    struct dataset set;
    char path[256];

    ck_assert_int_eq(dataset_prepare(directory, 10, 10, 9, &drawn, &why), 0);
    path_of(i, "", path);
    memset(data, 10, sizeof(data));
    ck_assert_int_eq(idx_write(path, dims, n_dims, data, &why), 0);
    ck_assert_int_eq(dataset_read(directory, &set, &why), -1);
    ck_assert_msg(strstr(why.text, path) != NULL && strstr(why.text, reason) != NULL, "%s",
                  why.text);
}

START_TEST(more_labels_than_images_are_refused)
{
    check_refused(1, (uint32_t[]){11}, 1, "has 10 images, but");
}
END_TEST

START_TEST(images_of_another_size_are_refused)
{
    check_refused(2, (uint32_t[]){10, 28, 27}, 3,
                  "images of 28 x 27 pixels: the network expects 28 x 28");
}
END_TEST

START_TEST(labels_above_nine_are_refused)
{
    check_refused(3, (uint32_t[]){10}, 1, "label 0 is 10: expected 0 to 9");
}
END_TEST

START_TEST(images_instead_of_labels_are_refused)
{
    check_refused(3, (uint32_t[]){10, 28, 28}, 3, "3 dimensions, expected 1");
}
END_TEST

TEST_SUITE(dataset)
{
    Suite *suite = suite_create("dataset");
    TCase *tests = tcase_create("dataset");

    tcase_add_checked_fixture(tests, make_directory, remove_directory);
    tcase_add_test(tests, an_empty_directory_gets_drawn_digits);
    tcase_add_test(tests, existing_files_are_not_drawn_again);
    tcase_add_test(tests, compressed_files_are_found);
    tcase_add_test(tests, a_part_of_a_data_set_is_not_completed_with_other_images);
    tcase_add_test(tests, a_directory_that_cannot_be_made_or_written_is_named);
    tcase_add_test(tests, a_data_set_that_cannot_be_written_whole_leaves_nothing);
    tcase_add_test(tests, more_labels_than_images_are_refused);
    tcase_add_test(tests, images_of_another_size_are_refused);
    tcase_add_test(tests, labels_above_nine_are_refused);
    tcase_add_test(tests, images_instead_of_labels_are_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
