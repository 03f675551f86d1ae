/* progress.c - ddp_progress: one line on the standard error of rank 0. */
#include <ddp/progress.h>

#include "common/clock.h"
#include "common/utf8.h"
#include "progress_line.h"
#include "worker-runtime/core/group.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DRAW_MS = 100, LINE_MS = 5000 };

/* --- the line -------------------------------------------------------------------------------- */

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
    co_utf8_clean(text, strlen(text));
    return text;
}

/* --- a report --------------------------------------------------------------------------------- */

struct ddp_progress {
    struct group_child child; /* first member */
    bool prints, has_bar;
    char title[64], what[128];
    uint64_t done, total;
    uint64_t began_ms, next_ms;
    bool is_current; /* what was printed last is how it stands */
};

static void destroy_child(struct group_child *child)
{
    ddp_progress_destroy((struct ddp_progress *)child);
}

int ddp_progress_create(struct ddp_group *g, const char *title, uint64_t total,
                        struct ddp_progress **ret_progress)
{
    if (g == NULL || title == NULL || ret_progress == NULL)
        return rt_fail(DDP_EINVAL, "ddp_progress_create: an argument is NULL");
    struct ddp_progress *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return rt_fail(DDP_ENOMEM, "out of memory");
    p->child.destroy = destroy_child;
    p->prints = g->rank == 0;
    p->has_bar = p->prints && isatty(STDERR_FILENO) == 1;
    snprintf(p->title, sizeof(p->title), "%s", title);
    p->total = total;
    p->began_ms = co_now_ms();
    p->next_ms = p->began_ms + (p->has_bar ? DRAW_MS : LINE_MS);
    group_adopt(g, &p->child);
    *ret_progress = p;
    return 0;
}

static void print_line(struct ddp_progress *p, uint64_t now_ms, bool is_last)
{
    char text[PROGRESS_LINE_BYTES];
    const struct progress_line line = {.title = p->title,
                                       .what = p->what,
                                       .done = p->done,
                                       .total = p->total,
                                       .passed_ms = now_ms - p->began_ms,
                                       .has_bar = p->has_bar};
    progress_line(&line, text);
    if (p->has_bar) /* over the last one, and what is left of it is cleared */
        fprintf(stderr, "\r%s\033[K%s", text, is_last ? "\n" : "");
    else
        fprintf(stderr, "%s\n", text);
    p->is_current = true;
}

void ddp_progress_update(struct ddp_progress *p, uint64_t done, const char *format, ...)
{
    if (p == NULL || !p->prints)
        return;
    const uint64_t now_ms = co_now_ms();
    p->done = done;
    p->is_current = false;
    p->what[0] = '\0';
    if (format != NULL) {
        va_list args;
        va_start(args, format);
        vsnprintf(p->what, sizeof(p->what), format, args);
        va_end(args);
    }
    if (now_ms < p->next_ms)
        return;
    p->next_ms = now_ms + (p->has_bar ? DRAW_MS : LINE_MS);
    print_line(p, now_ms, false);
}

void ddp_progress_destroy(struct ddp_progress *p)
{
    if (p == NULL)
        return;
    group_disown(&p->child);
    if (p->prints && (p->has_bar || !p->is_current))
        print_line(p, co_now_ms(), true);
    free(p);
}
