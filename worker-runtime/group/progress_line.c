#include "progress_line.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { BAR = 24 };

struct out {
    char *text;
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void add_text(struct out *o, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(o->text + o->n, PROGRESS_LINE_BYTES - o->n, format, args);
    va_end(args);
    if (n > 0)
        o->n = o->n + (size_t)n < PROGRESS_LINE_BYTES ? o->n + (size_t)n : PROGRESS_LINE_BYTES - 1;
}

static double share_done(const struct progress_line *l)
{
    return l->done < l->total ? (double)l->done / (double)l->total : 1;
}

static void add_bar(struct out *o, const struct progress_line *l)
{
    char bar[BAR + 1];
    const int n = (int)(share_done(l) * BAR);
    for (int i = 0; i < BAR; i++)
        bar[i] = i < n ? '=' : i == n ? '>' : ' ';
    bar[BAR] = '\0';
    add_text(o, " [%s]", bar);
}

static void add_time(struct out *o, double seconds, const char *what)
{
    if (seconds < 100)
        add_text(o, "  %.0f s%s", seconds, what);
    else if (seconds < 100 * 60)
        add_text(o, "  %.0f min%s", seconds / 60, what);
    else
        add_text(o, "  %.1f h%s", seconds / 3600, what);
}

static void add_speed(struct out *o, const struct progress_line *l)
{
    const double seconds = (double)l->passed_ms / 1000;
    if (l->passed_ms == 0 || l->done == 0)
        return;
    const double speed = (double)l->done / seconds;
    add_text(o, speed >= 100 ? "  %.0f/s" : "  %.3g/s", speed);
    if (l->total > l->done)
        add_time(o, (double)(l->total - l->done) / speed, " left");
    else
        add_time(o, seconds, "");
}

const char *progress_line(const struct progress_line *l, char text[PROGRESS_LINE_BYTES])
{
    struct out o = {.text = text};
    text[0] = '\0';
    add_text(&o, "%s", l->title);
    if (l->total > 0) {
        if (l->has_bar)
            add_bar(&o, l);
        add_text(&o, "  %" PRIu64 "/%" PRIu64 "  %d %%", l->done, l->total,
                 (int)(share_done(l) * 100));
    } else {
        add_text(&o, "  %" PRIu64, l->done);
    }
    add_speed(&o, l);
    if (l->what[0] != '\0')
        add_text(&o, "  %s", l->what);
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    return text;
}
