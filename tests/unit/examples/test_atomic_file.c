/* test_atomic_file.c - whole or not at all. */
#include "examples/shared/atomic_file.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/shared/failure.h"
#include "tests/support/suite.h"

static char directory[] = "/tmp/test_atomic.XXXXXX";
static char path[64];
static struct failure why;

static void make_directory(void)
{
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/file", directory);
}

static void remove_directory(void)
{
    unlink(path);
    rmdir(path);
    rmdir(directory);
}

static int n_entries(void)
{
    DIR *d = opendir(directory);
    int n = 0;

    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void check_content(const char *want)
{
    char got[64] = "";
    FILE *in = fopen(path, "re");

    ck_assert_ptr_nonnull(in);
    got[fread(got, 1, sizeof(got) - 1, in)] = '\0';
    fclose(in);
    ck_assert_str_eq(got, want);
}

START_TEST(a_file_appears_when_it_is_committed)
{
    struct atomic_file f;

    ck_assert_int_eq(atomic_file_open(&f, path, &why), 0);
    ck_assert_int_eq(atomic_file_write(&f, "one ", 4, &why), 0);
    ck_assert_int_eq(atomic_file_write(&f, "two", 3, &why), 0);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_eq(atomic_file_commit(&f, &why), 0);
    check_content("one two");
    ck_assert_int_eq(n_entries(), 1);
    atomic_file_discard(&f); /* changes nothing any more */
    check_content("one two");
}
END_TEST

START_TEST(a_discarded_file_leaves_the_old_one)
{
    struct atomic_file f;

    ck_assert_int_eq(atomic_file_open(&f, path, &why), 0);
    ck_assert_int_eq(atomic_file_write(&f, "old", 3, &why), 0);
    ck_assert_int_eq(atomic_file_commit(&f, &why), 0);
    ck_assert_int_eq(atomic_file_open(&f, path, &why), 0);
    ck_assert_int_eq(atomic_file_write(&f, "new", 3, &why), 0);
    atomic_file_discard(&f);
    check_content("old");
    ck_assert_int_eq(n_entries(), 1);
}
END_TEST

START_TEST(the_name_of_a_directory_is_refused)
{
    struct atomic_file f;
    char want[128];

    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(atomic_file_open(&f, path, &why), 0);
    ck_assert_int_eq(atomic_file_commit(&f, &why), -1);
    snprintf(want, sizeof(want), "cannot write '%s': Is a directory", path);
    ck_assert_str_eq(why.text, want);
    ck_assert_int_eq(n_entries(), 1); /* no temporary file is left */
}
END_TEST

START_TEST(a_full_disk_is_reported)
{
    struct atomic_file f;

    ck_assert_int_eq(atomic_file_open(&f, path, &why), 0);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(full, 0);
    ck_assert_int_ge(dup2(full, f.fd), 0); /* as if the disk were full from now on */
    close(full);
    ck_assert_int_eq(atomic_file_write(&f, "x", 1, &why), -1);
    ck_assert_ptr_nonnull(strstr(why.text, "No space left on device"));
    atomic_file_discard(&f);
    ck_assert_int_eq(n_entries(), 0);
}
END_TEST

START_TEST(too_long_names_are_refused)
{
    struct atomic_file f;
    char *name = malloc(ATOMIC_FILE_MAX_PATH + 2);

    ck_assert_ptr_nonnull(name);
    memset(name, 'x', ATOMIC_FILE_MAX_PATH + 1);
    name[ATOMIC_FILE_MAX_PATH + 1] = '\0';
    ck_assert_int_eq(atomic_file_open(&f, name, &why), -1);
    ck_assert_ptr_nonnull(strstr(why.text, "too long"));
    atomic_file_discard(&f);
    free(name);
}
END_TEST

TEST_SUITE(atomic_file)
{
    Suite *suite = suite_create("atomic_file");
    TCase *tests = tcase_create("atomic_file");

    tcase_add_checked_fixture(tests, make_directory, remove_directory);
    tcase_add_test(tests, a_file_appears_when_it_is_committed);
    tcase_add_test(tests, a_discarded_file_leaves_the_old_one);
    tcase_add_test(tests, the_name_of_a_directory_is_refused);
    tcase_add_test(tests, a_full_disk_is_reported);
    tcase_add_test(tests, too_long_names_are_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
