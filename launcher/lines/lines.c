/* A buffer of LINES_BYTES that is cut into lines. lines_room() and lines_add() take bytes in;
 * lines_take() hands out whole lines, each after a prefix; a line that is longer than the buffer
 * goes out in pieces (in_line). A progress bar draws its frames one after the other, each after
 * '\r'. Only the newest frame is kept (drop_old_frames()), and lines_draw_bar() draws it for a
 * terminal. Read lines_take() first. */
#include "lines.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void lines_fini(struct lines *l)
{
    free(l->buf);
    *l = (struct lines){0};
}

char *lines_room(struct lines *l, size_t *ret_n)
{
    if (l->buf == NULL && (l->buf = malloc(LINES_BYTES)) == NULL)
        return NULL;
    if (l->start > 0) { /* less than a line, as a rule */
        memmove(l->buf, l->buf + l->start, l->end - l->start);
        l->end -= l->start;
        l->start = 0;
    }
    *ret_n = LINES_BYTES - l->end;
    return l->buf + l->end;
}

/* Where the newest frame of a line begins: after the last carriage return that something
 * follows. */
static size_t frame_of(const char *line, size_t n)
{
    n -= n > 0 && line[n - 1] == '\n';
    while (n > 0 && line[n - 1] == '\r')
        n--;
    const char *before = memrchr(line, '\r', n);
    return before != NULL ? (size_t)(before + 1 - line) : 0;
}

/* Drop them from the unfinished line: a bar may run for hours. */
static void drop_old_frames(struct lines *l)
{
    char *from = l->buf + l->start;
    char *newline = memrchr(from, '\n', l->end - l->start);
    if (newline != NULL) {
        from = newline + 1;
        l->is_bar = false;
    }
    size_t n = (size_t)(l->buf + l->end - from);
    l->is_bar = l->is_bar || memchr(from, '\r', n) != NULL;
    size_t n_old = frame_of(from, n);
    memmove(from, from + n_old, n - n_old);
    l->end -= n_old;
}

void lines_add(struct lines *l, size_t n)
{
    l->end += n;
    drop_old_frames(l);
}

size_t lines_frame(const struct lines *l, const char **ret)
{
    if (!l->is_bar || l->in_line)
        return 0;
    const char *newline = memrchr(l->buf + l->start, '\n', l->end - l->start);
    const char *from = newline != NULL ? newline + 1 : l->buf + l->start;
    size_t n = (size_t)(l->buf + l->end - from);
    while (n > 0 && from[n - 1] == '\r')
        n--;
    *ret = from;
    return n;
}

/* Where what may be taken now ends. */
static size_t end_of_whole(const struct lines *l, bool at_end)
{
    if (at_end || l->start == l->end)
        return l->end;
    const char *newline = memrchr(l->buf + l->start, '\n', l->end - l->start);
    if (newline != NULL)
        return (size_t)(newline + 1 - l->buf);
    return l->end - l->start == LINES_BYTES ? l->end : l->start;
}

bool lines_has_some(const struct lines *l, bool at_end)
{
    return end_of_whole(l, at_end) > l->start;
}

size_t lines_take(struct lines *l, const char *prefix, size_t n_prefix, char *to, size_t to_bytes,
                  bool at_end)
{
    size_t end = end_of_whole(l, at_end);
    char *out = to;
    while (l->start < end) {
        const char *line = l->buf + l->start;
        const char *newline = memchr(line, '\n', end - l->start);
        size_t n = newline != NULL ? (size_t)(newline + 1 - line) : end - l->start;
        size_t n_before = l->in_line ? 0 : n_prefix;
        size_t n_old = frame_of(line, n);
        if (n_before + n - n_old > to_bytes - (size_t)(out - to))
            break;
        memcpy(out, prefix, n_before);
        memcpy(out + n_before, line + n_old, n - n_old);
        out += n_before + n - n_old;
        l->start += n;
        l->in_line = newline == NULL;
    }
    return (size_t)(out - to);
}

/* --- progress bars --- */

enum { COLUMNS_USUAL = 80 };

static const char end_of_drawing[] = "\033[0m\033[K"; /* a cut may have left a color on */

struct drawing {
    char *to;
    size_t n;
    int left; /* columns */
};

static bool draw_line(struct drawing *d, const char *bytes, size_t n)
{
    if (d->n + n + sizeof end_of_drawing > BAR_BYTES)
        return false;
    memcpy(d->to + d->n, bytes, n);
    d->n += n;
    return true;
}

/* A sequence of the terminal's, such as a color: ESC [ digits, ended by a letter. returns its
 * length; 0: none, or an incomplete one */
static size_t sequence_at(const char *at, const char *end)
{
    const char *c = at;
    if (end - at < 3 || c[0] != '\033' || c[1] != '[')
        return 0;
    for (c += 2; c < end; c++)
        if (*c >= '@' && *c <= '~')
            return *c == 'm' ? (size_t)(c + 1 - at) : 0;
    return 0;
}

static void draw_text(struct drawing *d, const char *text, size_t n_text)
{
    const char *end = text + n_text;
    for (const char *c = text; c < end;) {
        size_t n = sequence_at(c, end);
        bool is_shown = n == 0;
        for (n += is_shown; is_shown && c + n < end && ((unsigned char)c[n] & 0xc0) == 0x80;)
            n++; /* continuation bytes of UTF-8 take no column */
        bool is_control = is_shown && ((unsigned char)*c < ' ' || *c == '\177');
        if (is_shown && d->left-- <= 0)
            return;
        if (!draw_line(d, is_control ? " " : c, is_control ? 1 : n))
            return;
        c += n;
    }
}

size_t lines_draw_bar(const char *prefix, size_t n_prefix, const char *frame, size_t n_frame,
                      int columns, char *to)
{
    if (columns <= 0)
        columns = COLUMNS_USUAL;
    if (columns > BAR_COLUMNS_MAX)
        columns = BAR_COLUMNS_MAX;
    struct drawing d = {.to = to, .left = columns - 1}; /* the last one would wrap on some */
    draw_line(&d, "\r", 1);
    draw_text(&d, prefix, n_prefix);
    draw_text(&d, frame, n_frame);
    memcpy(to + d.n, end_of_drawing, sizeof end_of_drawing - 1);
    return d.n + sizeof end_of_drawing - 1;
}

/* --- the last lines --- */

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
