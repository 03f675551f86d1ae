/* folder.h - the directory in which the tests of a suite write files. */
#ifndef DDP_TESTS_SUPPORT_FOLDER_H
#define DDP_TESTS_SUPPORT_FOLDER_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[32];

static inline void folder_make(void)
{
    strcpy(folder, "/tmp/ddp-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static inline void folder_remove(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

/* The path of a file in that directory: valid until the fourth call after this one. */
static inline const char *folder_path(const char *name)
{
    static char path[4][128];
    static unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

#endif
