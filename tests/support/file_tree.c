#include "file_tree.h"

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void file_tree_make(char root[FILE_TREE_BYTES])
{
    strcpy(root, "/tmp/ddp-test-tree-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static int on_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

void file_tree_remove(const char *root)
{
    ck_assert_int_eq(nftw(root, on_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

void file_tree_put(const char *root, const char *name, const char *content)
{
    char path[512];
    ck_assert_int_lt(snprintf(path, sizeof path, "%s%s", root, name), (int)sizeof path);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        ck_assert(mkdir(path, 0755) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *out = fopen(path, "w");
    ck_assert_ptr_nonnull(out);
    fputs(content, out);
    fclose(out);
}
