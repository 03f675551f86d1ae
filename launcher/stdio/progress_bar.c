#include "progress_bar.h"

#include <stdbool.h>
#include <string.h>

enum { COLUMNS_USUAL = 80 };

static const char end_of_drawing[] = "\033[0m\033[K"; /* a cut may have left a colour on */

struct drawing {
    char *to;
    size_t n;
    int left; /* columns */
};

static bool put(struct drawing *d, const char *bytes, size_t n)
{
    if (d->n + n + sizeof end_of_drawing > BAR_BYTES)
        return false;
    memcpy(d->to + d->n, bytes, n);
    d->n += n;
    return true;
}

/* A sequence of the terminal's, such as a colour: ESC [ digits, ended by a letter. returns its
 * length; 0: there is none, or not all of it */
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

/* The bytes of a character that begins there: those that go on in UTF-8 take no room. */
static size_t character_at(const char *at, const char *end)
{
    const char *c = at + 1;
    while (c < end && ((unsigned char)*c & 0xc0) == 0x80)
        c++;
    return (size_t)(c - at);
}

static void put_text(struct drawing *d, const char *text, size_t n_text)
{
    const char *end = text + n_text;
    for (const char *c = text; c < end;) {
        size_t n = sequence_at(c, end);
        bool is_shown = n == 0;
        if (is_shown)
            n = character_at(c, end);
        bool is_control = is_shown && ((unsigned char)*c < ' ' || *c == '\177');
        if (is_shown && d->left-- <= 0)
            return;
        if (!put(d, is_control ? " " : c, is_control ? 1 : n))
            return;
        c += n;
    }
}

size_t progress_bar_draw(const char *prefix, size_t n_prefix, const char *frame, size_t n_frame,
                         int columns, char *to)
{
    if (columns <= 0)
        columns = COLUMNS_USUAL;
    if (columns > BAR_COLUMNS_MAX)
        columns = BAR_COLUMNS_MAX;
    struct drawing d = {.to = to, .left = columns - 1}; /* the last one would wrap on some */
    put(&d, "\r", 1);
    put_text(&d, prefix, n_prefix);
    put_text(&d, frame, n_frame);
    memcpy(to + d.n, end_of_drawing, sizeof end_of_drawing - 1);
    return d.n + sizeof end_of_drawing - 1;
}
