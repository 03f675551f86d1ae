#include "progress_pipes.h"

#include "progress_lines.h"
#include "rank_line.h"

#include "common/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    READS = 16,
    READ_BYTES = 4096, /* together what a pipe holds: a rank may write faster */
    QUIET_LOOKS = 8,   /* a rank with a step every two seconds or less does not wake the loop */
};

struct progress_pipe {
    struct rank_line *line; /* owned; NULL: none, or its other end is closed */
    struct progress_lines lines;
    int looks; /* that the timer still takes at it; 0: the loop watches it */
    bool has_noted;
};

struct progress_pipes {
    uv_loop_t *loop;
    uv_timer_t timer;
    struct progress_pipes_opts opts;
    struct progress_pipe ranks[];
};

int progress_pipes_create(uv_loop_t *loop, const struct progress_pipes_opts *opts,
                          struct progress_pipes **ret)
{
    struct progress_pipes *p = calloc(1, sizeof *p + (size_t)opts->n_local * sizeof p->ranks[0]);
    if (p == NULL)
        return -ENOMEM;
    p->loop = loop;
    p->opts = *opts;
    uv_timer_init(loop, &p->timer);
    p->timer.data = p;
    *ret = p;
    return 0;
}

static void note_bad(struct progress_pipes *p, int rank)
{
    struct progress_pipe *r = &p->ranks[rank];
    char text[160];
    if (r->lines.n_bad == 0 || r->has_noted || p->opts.on_note == NULL)
        return;
    r->has_noted = true;
    snprintf(text, sizeof text,
             "local rank %d wrote a line to DDP_PROGRESS_FD that ddprun ignores: expected 'step N'",
             rank);
    p->opts.on_note(p->opts.arg, text);
}

/* returns whether anything was there */
static bool read_pipe(struct progress_pipes *p, int rank)
{
    struct progress_pipe *r = &p->ranks[rank];
    const uint64_t now_ns = co_now_ns();
    char bytes[READ_BYTES];
    ssize_t n = 1;
    bool any = false;
    for (int i = 0; i < READS && r->line != NULL && n > 0; i++) {
        n = read(rank_line_fd(r->line), bytes, sizeof bytes);
        if (n > 0)
            progress_lines_feed(&r->lines, bytes, (size_t)n, now_ns);
        any = any || n > 0;
    }
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        rank_line_close(&r->line);
    note_bad(p, rank);
    return any;
}

static void on_time(uv_timer_t *timer)
{
    struct progress_pipes *p = timer->data;
    bool any = false;
    for (int i = 0; i < p->opts.n_local; i++) {
        struct progress_pipe *r = &p->ranks[i];
        if (r->looks == 0)
            continue;
        r->looks = read_pipe(p, i) ? QUIET_LOOKS : r->looks - 1;
        if (r->line == NULL)
            r->looks = 0;
        else if (r->looks == 0)
            rank_line_watch(r->line, UV_READABLE);
        any = any || r->looks > 0;
    }
    if (!any)
        uv_timer_stop(timer);
}

static void on_line(void *arg, int rank, int events)
{
    struct progress_pipes *p = arg;
    struct progress_pipe *r = &p->ranks[rank];
    (void)events;
    read_pipe(p, rank);
    if (r->line == NULL)
        return;
    r->looks = QUIET_LOOKS;
    rank_line_watch(r->line, 0);
    if (!uv_is_active((uv_handle_t *)&p->timer))
        uv_timer_start(&p->timer, on_time, PROGRESS_LOOK_MS, PROGRESS_LOOK_MS);
}

int progress_pipes_adopt(struct progress_pipes *p, int rank, int fd)
{
    const struct rank_line_owner owner = {.on_event = on_line, .arg = p};
    struct progress_pipe *r = &p->ranks[rank];
    rank_line_close(&r->line);
    *r = (struct progress_pipe){.line = NULL};
    return rank_line_open(p->loop, 0, fd, rank, &owner, &r->line, NULL);
}

int progress_pipes_open(int ret[2])
{
    return pipe2(ret, O_CLOEXEC | O_NONBLOCK) < 0 ? -errno : 0;
}

int progress_pipes_add(struct progress_pipes *p, int rank, int *ret_worker_fd)
{
    int pair[2];
    int rc = progress_pipes_open(pair);
    if (rc < 0)
        return rc;
    rc = progress_pipes_adopt(p, rank, pair[0]);
    if (rc < 0)
        close(pair[1]);
    else
        *ret_worker_fd = pair[1];
    return rc;
}

void progress_pipes_drain(struct progress_pipes *p, int rank)
{
    read_pipe(p, rank);
}

bool progress_pipes_read(const struct progress_pipes *p, int rank, struct progress *ret,
                         uint64_t *ret_digest)
{
    const struct progress_lines *lines = &p->ranks[rank].lines;
    if (!lines->progress.only_steps)
        return false;
    *ret = lines->progress;
    *ret_digest = lines->n_lines;
    return true;
}

int progress_pipes_stack_signal(const struct progress_pipes *p, int rank)
{
    return p->ranks[rank].lines.stack_signal;
}

void progress_pipes_renew(struct progress_pipes *p)
{
    for (int i = 0; i < p->opts.n_local; i++) {
        if (p->ranks[i].line != NULL)
            read_pipe(p, i); /* what is of the generation before */
        progress_lines_renew(&p->ranks[i].lines);
    }
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void progress_pipes_close(struct progress_pipes *p)
{
    if (p == NULL)
        return;
    for (int i = 0; i < p->opts.n_local; i++)
        rank_line_close(&p->ranks[i].line);
    uv_close((uv_handle_t *)&p->timer, on_closed);
}
