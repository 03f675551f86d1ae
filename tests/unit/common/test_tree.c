/* Removing a directory and what is in it. */
#include "common/tree.h"
#include "tests/support/suite.h"
#include "tests/support/test_dir.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void make_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void make_directory(const char *path)
{
    ck_assert_int_eq(mkdir(path, 0700), 0);
}

START_TEST(all_below_is_removed)
{
    make_directory(test_dir_path("a"));
    make_directory(test_dir_path("a/b"));
    make_directory(test_dir_path("a/b/c"));
    make_file(test_dir_path("a/.hidden"));
    make_file(test_dir_path("a/b/file"));
    make_file(test_dir_path("a/b/c/file"));
    co_tree_remove(test_dir_path("a"));
    ck_assert(!exists(test_dir_path("a")));
}
END_TEST

START_TEST(links_are_not_followed)
{
    make_directory(test_dir_path("kept"));
    make_file(test_dir_path("kept/file"));
    make_directory(test_dir_path("a"));
    ck_assert_int_eq(symlink(test_dir_path("kept"), test_dir_path("a/link")), 0);
    co_tree_remove(test_dir_path("a"));
    ck_assert(!exists(test_dir_path("a")));
    ck_assert(exists(test_dir_path("kept/file")));
    ck_assert_int_eq(symlink(test_dir_path("kept"), test_dir_path("link")), 0);
    co_tree_remove(test_dir_path("link")); /* no directory */
    ck_assert(exists(test_dir_path("kept/file")));
}
END_TEST

START_TEST(what_is_too_deep_stays)
{
    char path[256];
    int n = snprintf(path, sizeof path, "%s", test_dir_path("a"));
    make_directory(path);
    for (int i = 0; i < CO_TREE_MAX_DEPTH; i++) {
        n += snprintf(path + n, sizeof path - (size_t)n, "/d");
        make_directory(path);
    }
    make_file(test_dir_path("a/file"));
    co_tree_remove(test_dir_path("a"));
    ck_assert(!exists(test_dir_path("a"))); /* as deep as is allowed, and the last one is empty */
    n = snprintf(path, sizeof path, "%s", test_dir_path("a"));
    make_directory(path);
    for (int i = 0; i <= CO_TREE_MAX_DEPTH; i++) {
        n += snprintf(path + n, sizeof path - (size_t)n, "/d");
        make_directory(path);
    }
    make_file(test_dir_path("a/file"));
    co_tree_remove(test_dir_path("a"));
    ck_assert(exists(path));
    ck_assert(!exists(test_dir_path("a/file")));
}
END_TEST

START_TEST(what_is_not_there_does_not_matter)
{
    co_tree_remove(NULL);
    co_tree_remove(test_dir_path("gone"));
    make_file(test_dir_path("file"));
    co_tree_remove(test_dir_path("file"));
    ck_assert(exists(test_dir_path("file")));
}
END_TEST

TEST_SUITE(tree)
{
    Suite *s = suite_create("tree");
    TCase *t = tcase_create("tree");
    tcase_add_checked_fixture(t, test_dir_make, test_dir_remove);
    tcase_add_test(t, all_below_is_removed);
    tcase_add_test(t, links_are_not_followed);
    tcase_add_test(t, what_is_too_deep_stays);
    tcase_add_test(t, what_is_not_there_does_not_matter);
    suite_add_tcase(s, t);
    return s;
}
