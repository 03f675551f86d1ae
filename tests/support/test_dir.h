/* test_dir.h - the directory in which the tests of a suite write files. */
#ifndef DDP_TESTS_SUPPORT_TEST_DIR_H
#define DDP_TESTS_SUPPORT_TEST_DIR_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char test_dir[32];

static inline void test_dir_make(void)
{
    strcpy(test_dir, "/tmp/ddp-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(test_dir));
}

static inline void test_dir_remove(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", test_dir);
    ck_assert_int_eq(system(command), 0);
}

/* The path of a file in that directory: valid until the fourth call after this one. */
static inline const char *test_dir_path(const char *name)
{
    static char path[4][128];
    static unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", test_dir, name);
    return p;
}

#endif
