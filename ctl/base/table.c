#include "table.h"

#include "common/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* --- Text --- */

/* After ESC: "[" up to a letter or '~', "]" up to BEL or ESC \, else one character. */
static const char *skip_escape(const char *at)
{
    if (*at == '[') {
        for (at++; *at != '\0' && (*at < '@' || *at > '~'); at++) {
        }
        return *at != '\0' ? at + 1 : at;
    }
    if (*at == ']') {
        for (at++; *at != '\0' && *at != '\a' && *at != '\033'; at++) {
        }
        return *at == '\a' ? at + 1 : *at == '\033' && at[1] == '\\' ? at + 2 : at;
    }
    return *at != '\0' ? at + 1 : at;
}

char *table_plain(char *text)
{
    char *out = text;
    for (const char *at = text; *at != '\0';) {
        if (*at == '\033') {
            at = skip_escape(at + 1);
        } else {
            *out++ = (char)(*at == '\t' ? ' ' : *at);
            at++;
        }
    }
    *out = '\0';
    co_utf8_clean(text, (size_t)(out - text));
    return text;
}

/* In UTF-8 the bytes after the first one of a character are 10xxxxxx. */
static bool begins_character(char c)
{
    return ((uint8_t)c & 0xc0) != 0x80;
}

size_t table_width(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += begins_character(*text);
    return n;
}

size_t table_cut(const char *text, size_t n)
{
    size_t at = 0, seen = 0;
    for (; text[at] != '\0'; at++)
        if (begins_character(text[at]) && seen++ == n)
            break;
    return at;
}

/* --- Cells --- */

static void add_cell(struct table *t, char *text)
{
    if (t->n_cells == t->room) {
        size_t room = t->room > 0 ? 2 * t->room : 64;
        char **cells = realloc(t->cells, room * sizeof *cells);
        if (cells == NULL) {
            free(text);
            t->failed = true;
            return;
        }
        t->cells = cells;
        t->room = room;
    }
    if (text == NULL)
        t->failed = true;
    else
        t->cells[t->n_cells++] = table_plain(text);
}

void table_add(struct table *t, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    add_cell(t, text);
}

void table_init(struct table *t, const char *const *heads, int n_columns)
{
    *t = (struct table){.n_columns = n_columns};
    for (int i = 0; i < n_columns; i++) {
        t->right[i] = heads[i][0] == '>';
        add_cell(t, strdup(heads[i] + t->right[i]));
    }
}

void table_fini(struct table *t)
{
    for (size_t i = 0; i < t->n_cells; i++)
        free(t->cells[i]);
    free(t->cells);
    *t = (struct table){0};
}

/* --- Lines --- */

/* What is left of a line that may not be longer. */
struct line {
    FILE *out;
    size_t left;
};

static void line_put(struct line *l, const char *text)
{
    size_t n = table_cut(text, l->left);
    size_t width = table_width(text);
    fwrite(text, 1, n, l->out);
    l->left -= width < l->left ? width : l->left;
}

static void put_blanks(struct line *l, size_t n)
{
    for (; n > 0 && l->left > 0; n--)
        line_put(l, " ");
}

static void put_cell(struct line *l, const struct table *t, size_t cell, size_t width)
{
    const char *text = t->cells[cell];
    int column = (int)(cell % (size_t)t->n_columns);
    size_t fill = width - table_width(text);
    if (column > 0)
        put_blanks(l, 2);
    if (t->right[column])
        put_blanks(l, fill);
    line_put(l, text);
    if (!t->right[column] && column < t->n_columns - 1)
        put_blanks(l, fill);
}

int table_print(const struct table *t, int indent, int width, FILE *out)
{
    size_t widths[TABLE_MAX_COLUMNS] = {0};
    size_t n = (size_t)t->n_columns;
    if (t->failed)
        return -ENOMEM;
    for (size_t i = 0; i < t->n_cells; i++) {
        size_t its = table_width(t->cells[i]);
        if (its > widths[i % n])
            widths[i % n] = its;
    }
    for (size_t row = 0; row + n <= t->n_cells; row += n) {
        struct line l = {.out = out, .left = width > 0 ? (size_t)width : SIZE_MAX};
        put_blanks(&l, (size_t)indent);
        for (size_t column = 0; column < n; column++)
            put_cell(&l, t, row + column, widths[column]);
        putc('\n', out);
    }
    return 0;
}
