/* cases.h - tests whose input is data: each entry of a directory of tests/data is a case. */
#ifndef DDP_TESTS_SUPPORT_CASES_H
#define DDP_TESTS_SUPPORT_CASES_H

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Call `check` with the path of each entry of tests/data/DIRECTORY, in the order of their names.
 *
 * returns   the number of entries: assert that it is at least the number that you know of */
static inline int cases_each(const char *folder, void (*check)(const char *path))
{
    char base[1000], path[1300];
    struct dirent **entries;
    const char *data = getenv("TEST_DATA");
    ck_assert_msg(data != NULL, "TEST_DATA must name tests/data");
    snprintf(base, sizeof base, "%s/%s", data, folder);
    int n = scandir(base, &entries, NULL, alphasort);
    int n_done = 0;
    ck_assert_msg(n >= 0, "cannot open %s", base);
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", base, entries[i]->d_name);
            check(path);
            n_done++;
        }
        free(entries[i]);
    }
    free(entries);
    return n_done;
}

/* Read a whole file of a case.
 *
 * to        `size` bytes; a NUL follows the bytes of the file
 * returns   the number of bytes in the file */
static inline size_t cases_read(const char *path, const char *file, char *to, size_t size)
{
    char name[1400];
    snprintf(name, sizeof name, "%s/%s", path, file);
    FILE *in = fopen(name, "re");
    ck_assert_msg(in != NULL, "cannot open %s", name);
    size_t len = fread(to, 1, size, in);
    fclose(in);
    ck_assert_msg(len < size, "%s is too long", name);
    to[len] = '\0';
    return len;
}

/* Read the first line of a file, without its newline. */
static inline void cases_read_line(const char *path, const char *file, char *to, size_t size)
{
    size_t len = cases_read(path, file, to, size);
    ck_assert_msg(len > 0, "%s/%s is empty", path, file);
    to[strcspn(to, "\n")] = '\0';
}

#endif
