#include "output_fold.h"

#include "fold.h"
#include "lines.h"

#include "common/clock.h"

#include <stdlib.h>
#include <string.h>

struct output_fold {
    struct output_fold_opts opts;
    struct fold *folds[2]; /* owned */
    uv_timer_t timer;
    char line[LINES_PREFIX_MAX + LINES_BYTES + 1];
};

static void set_timer(struct output_fold *f);

static void write_line(struct output_fold *f, int sink, const struct fold_line *line)
{
    size_t n = f->opts.label(f->opts.label_arg, line, f->line, LINES_PREFIX_MAX);
    memcpy(f->line + n, line->text, line->n);
    n += line->n;
    if (n == 0 || f->line[n - 1] != '\n')
        f->line[n++] = '\n';
    f->opts.write(f->opts.write_arg, sink, f->line, n);
}

static void flush(struct output_fold *f, int sink, bool all)
{
    const struct fold_line *line;
    uint64_t now_ms = co_now_ms();
    while ((line = fold_take(f->folds[sink], now_ms, all)) != NULL)
        write_line(f, sink, line);
}

static void on_timer(uv_timer_t *timer)
{
    struct output_fold *f = timer->data;
    for (int sink = 0; sink < 2; sink++)
        flush(f, sink, false);
    set_timer(f);
}

static void set_timer(struct output_fold *f)
{
    uint64_t first = fold_due_ms(f->folds[0]), second = fold_due_ms(f->folds[1]);
    uint64_t due_ms = first < second ? first : second;
    uint64_t now_ms = co_now_ms();
    if (due_ms == CO_NEVER_MS)
        uv_timer_stop(&f->timer);
    else if (!uv_is_active((uv_handle_t *)&f->timer)) /* what is held later is due later */
        uv_timer_start(&f->timer, on_timer, due_ms > now_ms ? due_ms - now_ms : 0, 0);
}

static void on_closed(uv_handle_t *handle)
{
    struct output_fold *f = handle->data;
    fold_destroy(f->folds[0]);
    fold_destroy(f->folds[1]);
    free(f);
}

struct output_fold *output_fold_create(const struct output_fold_opts *opts)
{
    struct output_fold *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    f->opts = *opts;
    uv_timer_init(opts->loop, &f->timer);
    f->timer.data = f;
    for (int sink = 0; sink < 2; sink++)
        f->folds[sink] = fold_create(opts->n_ranks, opts->hold_ms);
    if (f->folds[0] != NULL && f->folds[1] != NULL)
        return f;
    output_fold_close(f);
    return NULL;
}

void output_fold_add(struct output_fold *f, int sink, int rank, const char *text, size_t n)
{
    while (n > 0) {
        const char *newline = memchr(text, '\n', n);
        size_t n_line = newline != NULL ? (size_t)(newline + 1 - text) : n;
        if (fold_add(f->folds[sink], rank, text, n_line, co_now_ms()) < 0) {
            struct fold_line alone = {.text = (char *)text, .n = n_line, .n_ranks = 1};
            alone.ranks[rank / 64] = UINT64_C(1) << rank % 64;
            flush(f, sink, true); /* it comes behind */
            write_line(f, sink, &alone);
        }
        flush(f, sink, false);
        text += n_line;
        n -= n_line;
    }
    set_timer(f);
}

void output_fold_flush(struct output_fold *f)
{
    for (int sink = 0; sink < 2; sink++)
        flush(f, sink, true);
    set_timer(f);
}

void output_fold_close(struct output_fold *f)
{
    if (f != NULL)
        uv_close((uv_handle_t *)&f->timer, on_closed);
}
