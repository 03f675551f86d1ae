/* table.h - columns that are as wide as their widest cell.
 *
 * Pure. Text from outside is made safe for a terminal: see table_plain(). */
#ifndef DDP_CTL_BASE_TABLE_H
#define DDP_CTL_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { TABLE_MAX_COLUMNS = 16 };

struct table {
    int n_columns;
    bool right[TABLE_MAX_COLUMNS]; /* these are aligned right: numbers */
    char **cells;                  /* owned; row after row, the first one is the head */
    size_t n_cells, room;
    bool failed; /* memory for a cell ran out */
};

/* heads   as many as there are columns, at most TABLE_MAX_COLUMNS; one with a '>' in front, which
 *         is not shown, is set to the right */
void table_init(struct table *t, const char *const *heads, int n_columns);
void table_fini(struct table *t); /* a zeroed one is fine */

/* The next cell, made plain. */
__attribute__((format(printf, 2, 3))) void table_add(struct table *t, const char *format, ...);

/* Two blanks between columns, `indent` in front; lines are cut to `width` characters (0: not). The
 * last column is not filled up.
 *
 * returns   0, -ENOMEM */
int table_print(const struct table *t, int indent, int width, FILE *out);

/* Take out of a text what a terminal would obey: escape sequences go, other control characters
 * become '?', tabs blanks. In place. returns text */
char *table_plain(char *text);

/* How many characters of UTF-8; bytes that are none count as one each. */
size_t table_width(const char *text);

/* The bytes of the first n characters. */
size_t table_cut(const char *text, size_t n);

#endif
