#include <ddp/progress.h>

#include "common/clock.h"
#include "progress_line.h"
#include "worker-runtime/core/group.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { DRAW_MS = 100, LINE_MS = 5000 };

struct ddp_progress {
    struct group_child child; /* first member */
    bool prints, has_bar;
    char title[64], what[128];
    uint64_t done, total;
    uint64_t began_ms, next_ms;
    bool is_told; /* what was printed last is how it stands */
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
        return rt_fail(DDP_ENOMEM, "no memory for a progress report");
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
    p->is_told = true;
}

void ddp_progress_update(struct ddp_progress *p, uint64_t done, const char *format, ...)
{
    if (!p->prints)
        return;
    const uint64_t now_ms = co_now_ms();
    p->done = done;
    p->is_told = false;
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
    if (p->prints && (p->has_bar || !p->is_told))
        print_line(p, co_now_ms(), true);
    free(p);
}
