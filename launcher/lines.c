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

void lines_add(struct lines *l, size_t n)
{
    l->end += n;
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
        if (n_before + n > room - (size_t)(out - to))
            break;
        memcpy(out, prefix, n_before);
        memcpy(out + n_before, line, n);
        out += n_before + n;
        l->start += n;
        l->in_line = newline == NULL;
    }
    return (size_t)(out - to);
}
