#include "lines.h"

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

/* Where the newest frame of a line begins: behind the last return that something follows. */
static size_t frame_of(const char *line, size_t n)
{
    n -= n > 0 && line[n - 1] == '\n';
    while (n > 0 && line[n - 1] == '\r')
        n--;
    const char *before = memrchr(line, '\r', n);
    return before != NULL ? (size_t)(before + 1 - line) : 0;
}

/* Of the line that is not over: a bar may go on for hours. */
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

size_t lines_take(struct lines *l, const char *prefix, size_t n_prefix, char *to, size_t room,
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
        if (n_before + n - n_old > room - (size_t)(out - to))
            break;
        memcpy(out, prefix, n_before);
        memcpy(out + n_before, line + n_old, n - n_old);
        out += n_before + n - n_old;
        l->start += n;
        l->in_line = newline == NULL;
    }
    return (size_t)(out - to);
}
