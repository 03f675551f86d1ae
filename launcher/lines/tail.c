#include "tail.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void tail_fini(struct tail *t)
{
    free(t->ring);
    *t = (struct tail){0};
}

void tail_add(struct tail *t, const char *bytes, size_t n)
{
    if (t->ring == NULL && n > 0)
        t->ring = malloc(TAIL_BYTES);
    if (t->ring == NULL)
        return;
    if (n > TAIL_BYTES) { /* only its end will be left */
        t->total += n - TAIL_BYTES;
        bytes += n - TAIL_BYTES;
        n = TAIL_BYTES;
    }
    size_t at = t->total % TAIL_BYTES;
    size_t first = n < TAIL_BYTES - at ? n : TAIL_BYTES - at;
    memcpy(t->ring + at, bytes, first);
    memcpy(t->ring, bytes + first, n - first);
    t->total += n;
}

/* All that is kept, in order, as a string. */
static char *unroll(const struct tail *t, size_t *ret_n)
{
    size_t n = t->total < TAIL_BYTES ? t->total : TAIL_BYTES;
    char *text = malloc(n + 2); /* a newline and the end may be added */
    if (text == NULL)
        return NULL;
    size_t start = t->total < TAIL_BYTES ? 0 : t->total % TAIL_BYTES;
    size_t first = n < TAIL_BYTES - start ? n : TAIL_BYTES - start;
    memcpy(text, t->ring + start, first);
    memcpy(text + first, t->ring, n - first);
    if (text[n - 1] != '\n')
        text[n++] = '\n';
    text[n] = '\0';
    *ret_n = n;
    return text;
}

/* The start of the last TAIL_LINES lines; a first line whose beginning was overwritten does not
 * count unless it is all there is. */
static const char *last_lines(const struct tail *t, const char *text, size_t n)
{
    const char *start = text;
    if (t->total > TAIL_BYTES) {
        const char *end_of_first = memchr(text, '\n', n - 1);
        if (end_of_first != NULL)
            start = end_of_first + 1;
    }
    int n_lines = 0;
    for (const char *p = text + n - 1; p > start; p--) {
        if (p[-1] == '\n' && ++n_lines == TAIL_LINES)
            return p;
    }
    return start;
}

static bool is_shown(char c)
{
    return (unsigned char)c >= ' ' || c == '\t' || c == '\n' || c == '\033';
}

/* Copy a line, its newline included, as a terminal would show it. returns the end of the copy */
static char *put_line(char *out, const char *line, const char *newline)
{
    const char *end = newline;
    while (end > line && end[-1] == '\r')
        end--;
    const char *start = end;
    while (start > line && start[-1] != '\r')
        start--;
    for (const char *p = start; p < end; p++)
        *out++ = is_shown(*p) && *p != '\177' ? *p : '?';
    *out++ = '\n';
    return out;
}

char *tail_copy(const struct tail *t)
{
    if (t->total == 0 || t->ring == NULL)
        return NULL;
    size_t n;
    char *text = unroll(t, &n);
    if (text == NULL)
        return NULL;
    char *out = text; /* shrinks, so it can be done in place */
    const char *end = text + n;
    for (const char *line = last_lines(t, text, n); line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        out = put_line(out, line, newline);
        line = newline + 1;
    }
    *out = '\0';
    return text;
}

char *tail_since(const struct tail *t, size_t from, size_t *ret_from, size_t *ret_n)
{
    size_t oldest = t->total > TAIL_BYTES ? t->total - TAIL_BYTES : 0;
    if (from < oldest || from > t->total)
        from = oldest;
    size_t n = t->total - from;
    char *bytes = n > 0 && t->ring != NULL ? malloc(n) : NULL;
    *ret_from = from;
    *ret_n = bytes != NULL ? n : 0;
    for (size_t done = 0, part; bytes != NULL && done < n; done += part) {
        size_t at = (from + done) % TAIL_BYTES;
        part = n - done < TAIL_BYTES - at ? n - done : TAIL_BYTES - at;
        memcpy(bytes + done, t->ring + at, part);
    }
    return bytes;
}
