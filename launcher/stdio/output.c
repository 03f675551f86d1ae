/* What the ranks write, passed on. on_pipe() is called when a rank's pipe is readable. take_turn()
 * reads one chunk, keeps it in the rank's tail and its log file, and passes it on: a raw stream as
 * it is, others by emit() as whole lines after a prefix, or by fold_lines(), which holds lines
 * until other ranks have written the same. Read take_turn() first, then resume_streams().
 *
 * What a sink does not take waits in its writer. Until that is out, a readable stream that writes
 * there is only marked `waits`, and no longer polled: ranks find their pipes full, and the loop
 * continues. on_room() then gives those streams their turns, beginning after the one that had the
 * last: none is forgotten while another one floods.
 *
 * Invariant: no more than a chunk of a stream waits, with one exception. A stream whose process is
 * gone cannot wait if another stream replaces it: retire() passes on all that it holds, full or
 * not. output_retire() does so for one generation only: it waits while `holds_old` is set: the
 * output of the one before it is not written yet. */
#include "output.h"

#include "launcher/lines/lines.h"
#include "log_files.h"
#include "pty.h"
#include "stream_writer.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SCRATCH_BYTES = LINES_BYTES + LINES_PREFIX_MAX + 1, TURN_BYTES = 8192 };

struct source { /* apart from its stream: it lives until the loop has closed it */
    struct output *o;
    int stream;
    uv_poll_t poll;
};

struct stream {
    struct source *source; /* owned by the loop once it closes; NULL: none, or at its end */
    int fd;
    bool is_pty;
    bool waits;
    bool at_end; /* read to its end; lines may be left */
    bool is_raw; /* no prefix: nothing is assembled */
    bool folds;
    bool draws_bar;
    int sink;         /* OUTPUT_NOWHERE: none */
    uint64_t last_ms; /* when something came */
    size_t limit;     /* so many bytes are read, the others are not: see set_limit(); 0: all are */
    struct log_copy log;
    char *prefix; /* owned */
    size_t n_prefix;
    struct lines lines;
};

struct exit_to { /* a writer, and whose turn it is */
    struct output *o;
    struct stream_writer *writer; /* owned */
    bool was_full;                /* others wait: turns are short */
    bool holds_old;               /* it was full when the streams before these were retired */
    int next;                     /* the stream whose turn comes first */
    bool has_bar;                 /* one is drawn: what comes next takes its place */
    bool error_is_said;
    int line_of; /* the stream whose line is not over; -2: a dead one's (below); -1: none is
                  * open */
};

enum { NOBODY = -2, UNASKED = -1 };

enum { CATCH_UP_TURNS = 8 }; /* with those that only pass lines on: a pipe's 64 KiB */

struct output {
    uv_loop_t *loop;
    int n_ranks;
    int sink_of[2]; /* stdout and stderr may be one */
    int columns;    /* the terminal's, for bars; UNASKED; 0: not known */
    struct exit_to exits[2];
    struct folding *fold; /* owned; NULL: nothing is folded */
    struct tail *tails;   /* by rank */
    void (*on_drained)(void *arg);
    void *arg;
    bool draining;
    bool is_drawn;             /* see output_draw() */
    uint64_t last_ms;          /* see output_last_ms() */
    struct co_error error;     /* see output_error() */
    struct co_error log_error; /* the first failure of a log file; "": none, or already reported */
    bool log_failed;
    int n_handles;
    char scratch[SCRATCH_BYTES]; /* what a turn works on */
    struct stream streams[];     /* rank * 2 + which */
};

struct
    folding { /* fold.h for the two sinks; apart from the output: it lives until the loop has closed
                    the timer */
    struct output *o;
    struct fold *of[2]; /* owned */
    uv_timer_t timer;
    output_fold_label label;
    const void *label_arg;
    char line[SCRATCH_BYTES];
};

static void on_pipe(uv_poll_t *poll, int status, int events);
static void set_fold_timer(struct folding *f);
static void try_drain(struct output *o);

static bool is_full(const struct exit_to *e)
{
    return stream_writer_is_full(e->writer);
}

static bool must_wait(const struct output *o, const struct stream *s)
{
    return s->sink != OUTPUT_NOWHERE && is_full(&o->exits[s->sink]);
}

static bool are_same(const int fds[2])
{
    struct stat a, b;
    return fstat(fds[0], &a) == 0 && fstat(fds[1], &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

static void on_room(void *arg);

int output_create(uv_loop_t *loop, int n_ranks, const int to_fd[2], struct output **ret,
                  struct co_error *err)
{
    struct output *o = calloc(1, sizeof *o + 2 * (size_t)n_ranks * sizeof o->streams[0]);
    if (o == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    o->loop = loop;
    o->n_ranks = n_ranks;
    o->columns = UNASKED;
    o->tails = calloc((size_t)n_ranks, sizeof *o->tails);
    o->sink_of[OUTPUT_TO_STDERR] = OUTPUT_TO_STDERR;
    o->sink_of[OUTPUT_TO_STDOUT] = are_same(to_fd) ? OUTPUT_TO_STDERR : OUTPUT_TO_STDOUT;
    for (int i = 0; i < 2; i++)
        o->exits[i] =
            (struct exit_to){.o = o,
                             .writer = stream_writer_create(loop, to_fd[i], on_room, &o->exits[i]),
                             .line_of = -1};
    for (int i = 0; i < 2 * n_ranks; i++)
        o->streams[i] = (struct stream){.fd = -1, .log = {.fd = -1, .filter_fd = -1}};
    if (o->tails == NULL || o->exits[0].writer == NULL || o->exits[1].writer == NULL) {
        output_close(o);
        return co_fail(err, -ENOMEM, "out of memory");
    }
    *ret = o;
    return 0;
}

/* Handles close one by one as pipes end; the object goes with the last, after output_close(). */
static void unref(struct output *o)
{
    if (--o->n_handles >= 0)
        return;
    for (int i = 0; o->tails != NULL && i < o->n_ranks; i++)
        tail_fini(&o->tails[i]);
    free(o->tails);
    free(o);
}

static void on_source_closed(uv_handle_t *handle)
{
    struct source *source = handle->data;
    struct output *o = source->o;
    free(source);
    unref(o);
}

static void close_pipe(struct stream *s)
{
    if (s->source != NULL)
        uv_close((uv_handle_t *)&s->source->poll, on_source_closed);
    s->source = NULL;
    co_close_fd(&s->fd);
}

static void close_stream(struct stream *s)
{
    close_pipe(s);
    log_copy_close(&s->log);
    free(s->prefix);
    s->prefix = NULL;
    lines_fini(&s->lines);
    s->waits = false;
}

static void pass_on(struct exit_to *e, const char *bytes, size_t n)
{
    if (e->has_bar && n > 0)
        stream_writer_write(e->writer, BAR_ERASE, sizeof BAR_ERASE - 1);
    e->has_bar = e->has_bar && n == 0;
    stream_writer_write(e->writer, bytes, n);
    e->was_full |= is_full(e);
}

/* It begins on a line of its own. */
static void write_line(struct exit_to *e, const char *lines, size_t n)
{
    if (e->line_of != -1)
        pass_on(e, "\n", 1);
    e->line_of = -1;
    pass_on(e, lines, n);
}

/* --- A stream's turn --- */

static void note_log(struct output *o, int rc, const struct co_error *err)
{
    if (rc < 0 && !o->log_failed)
        o->log_error = *err;
    if (rc < 0 && o->error.text[0] == '\0')
        o->error = *err;
    o->log_failed |= rc < 0;
}

/* On the other one. If that cannot be written, either, the report and the exit status show it. */
static void say_error(struct output *o, int sink)
{
    struct exit_to *e = &o->exits[sink], *other = &o->exits[o->sink_of[!sink]];
    const int error = stream_writer_error(e->writer);
    struct co_error err;
    char text[CO_ERROR_TEXT_BYTES + 64];
    if (error == 0 || e->error_is_said)
        return;
    e->error_is_said = true;
    co_fail(&err, error, "cannot write standard %s: %s",
            sink == OUTPUT_TO_STDOUT ? "output" : "error", strerror(-error));
    if (o->error.text[0] == '\0')
        o->error = err;
    snprintf(text, sizeof text, "ddprun: warning: %s: output of the ranks may be lost\n", err.text);
    if (!is_full(other))
        write_line(other, text, strlen(text));
}

/* Not in the middle of a turn: a line of ours belongs between them. */
static void say_trouble(struct output *o)
{
    char text[CO_ERROR_TEXT_BYTES + 32];
    say_error(o, OUTPUT_TO_STDOUT);
    say_error(o, OUTPUT_TO_STDERR);
    if (o->log_error.text[0] == '\0')
        return;
    snprintf(text, sizeof text, "ddprun: warning: %s\n", o->log_error.text);
    o->log_error.text[0] = '\0';
    output_say(o, text);
}

/* What was held is written whether the sink is full or not: it is no more than a chunk, and nothing
 * is added to it while it is. */
static void write_folded(struct folding *f, int sink, const struct fold_line *line)
{
    struct exit_to *e = &f->o->exits[sink];
    size_t n = f->label(f->label_arg, line, f->line, LINES_PREFIX_MAX);
    memcpy(f->line + n, line->text, line->n);
    n += line->n;
    if (n == 0 || f->line[n - 1] != '\n')
        f->line[n++] = '\n';
    write_line(e, f->line, n);
}

static void flush_fold(struct folding *f, int sink, bool all)
{
    const struct fold_line *line;
    uint64_t now_ms = co_now_ms();
    while ((line = fold_take(f->of[sink], now_ms, all)) != NULL)
        write_folded(f, sink, line);
}

static void on_fold_timer(uv_timer_t *timer)
{
    struct folding *f = timer->data;
    for (int sink = 0; sink < 2; sink++)
        flush_fold(f, sink, false);
    set_fold_timer(f);
}

static void set_fold_timer(struct folding *f)
{
    uint64_t first = fold_due_ms(f->of[0]), second = fold_due_ms(f->of[1]);
    uint64_t due_ms = first < second ? first : second;
    uint64_t now_ms = co_now_ms();
    if (due_ms == CO_NEVER_MS)
        uv_timer_stop(&f->timer);
    else if (!uv_is_active((uv_handle_t *)&f->timer)) /* what is held later is due later */
        uv_timer_start(&f->timer, on_fold_timer, due_ms > now_ms ? due_ms - now_ms : 0, 0);
}

static void flush_folded(struct output *o)
{
    for (int sink = 0; o->fold != NULL && sink < 2; sink++)
        flush_fold(o->fold, sink, true);
    if (o->fold != NULL)
        set_fold_timer(o->fold);
}

static void on_fold_closed(uv_handle_t *handle)
{
    struct folding *f = handle->data;
    fold_destroy(f->of[0]);
    fold_destroy(f->of[1]);
    free(f);
}

int output_set_fold(struct output *o, uint64_t hold_ms, output_fold_label label, const void *arg)
{
    struct folding *f = calloc(1, sizeof *f);
    if (f == NULL)
        return -ENOMEM;
    *f = (struct folding){.o = o, .label = label, .label_arg = arg};
    uv_timer_init(o->loop, &f->timer);
    f->timer.data = f;
    for (int sink = 0; sink < 2; sink++)
        f->of[sink] = fold_create(o->n_ranks, hold_ms);
    if (f->of[0] == NULL || f->of[1] == NULL) {
        uv_close((uv_handle_t *)&f->timer, on_fold_closed);
        return -ENOMEM;
    }
    o->fold = f;
    return 0;
}

/* One line of a rank's, which is held, and what need not be held any longer. */
static void fold_line(struct folding *f, int sink, int rank, const char *text, size_t n)
{
    if (fold_add(f->of[sink], rank, text, n, co_now_ms()) < 0) {
        struct fold_line alone = {.text = (char *)text, .n = n, .n_ranks = 1};
        alone.ranks[rank / 64] = UINT64_C(1) << rank % 64;
        flush_fold(f, sink, true); /* the line comes after those */
        write_folded(f, sink, &alone);
    }
    flush_fold(f, sink, false);
}

/* Whole lines that the stream holds, to be written when others have had the time to write the
 * same. */
static void fold_lines(struct output *o, struct stream *s)
{
    int rank = (int)(s - o->streams) / 2;
    size_t n;
    while ((n = lines_take(&s->lines, "", 0, o->scratch, SCRATCH_BYTES, s->at_end)) > 0) {
        s->lines.in_line = false; /* pieces of a long line are lines */
        for (const char *at = o->scratch, *end = at + n; at < end;) {
            const char *newline = memchr(at, '\n', (size_t)(end - at));
            const char *next = newline != NULL ? newline + 1 : end;
            fold_line(o->fold, s->sink, rank, at, (size_t)(next - at));
            at = next;
        }
    }
    set_fold_timer(o->fold);
    if (s->at_end)
        close_stream(s);
}

/* Whole lines that the stream holds, while the sink takes them, or all of them. */
static void emit(struct output *o, struct stream *s, bool all)
{
    int number = (int)(s - o->streams);
    struct exit_to *e = s->sink != OUTPUT_NOWHERE ? &o->exits[s->sink] : NULL;
    char *text = o->scratch;
    struct co_error err;
    if (s->folds && e != NULL) {
        fold_lines(o, s);
        return;
    }
    while (e != NULL && (all || !is_full(e)) && lines_has_some(&s->lines, s->at_end)) {
        bool between = e->line_of != -1 && e->line_of != number;
        if (e->line_of != number) /* another stream wrote in between: it is a line of its own now */
            s->lines.in_line = false;
        bool continued = s->lines.in_line;
        text[0] = '\n';
        size_t n =
            lines_take(&s->lines, s->prefix, s->n_prefix, text + 1, SCRATCH_BYTES - 1, s->at_end);
        note_log(o, log_copy_lines(&s->log, text + 1, n, s->n_prefix, continued, &err), &err);
        e->line_of = s->lines.in_line ? number : -1;
        pass_on(e, between ? text : text + 1, n + between);
    }
    if (e == NULL)
        s->lines.start = s->lines.end;
    if (s->at_end && !lines_has_some(&s->lines, true)) {
        if (e != NULL && e->line_of == number)
            e->line_of = NOBODY;
        close_stream(s);
    }
}

static ssize_t read_stream(int fd, char *to, size_t n)
{
    ssize_t took;
    do {
        took = read(fd, to, n);
    } while (took < 0 && errno == EINTR);
    return took;
}

/* Its ranks are gone: read what the pipe may hold by now. A process that outlives them may have it,
 * and write without end. */
static void set_limit(struct stream *s)
{
    const int n = fcntl(s->fd, F_GETPIPE_SZ);
    s->limit = n > 0 ? (size_t)n : OUTPUT_CHUNK; /* a pty holds less */
}

/* returns   whether these are the last bytes of a stream with a limit */
static bool count_read(struct stream *s, size_t n)
{
    const bool is_last = s->limit > 0 && n >= s->limit;
    if (s->limit > 0 && !is_last)
        s->limit -= n;
    return is_last;
}

/* Read one chunk and pass it on, what the stream holds first; all of it, or while the sink takes
 * it. returns false at the end, or when nothing is there */
static bool take_turn(struct output *o, struct stream *s, bool all)
{
    int number = (int)(s - o->streams);
    struct exit_to *e = s->sink != OUTPUT_NOWHERE ? &o->exits[s->sink] : NULL;
    if (!s->is_raw && lines_has_some(&s->lines, s->at_end)) { /* what was not taken last time */
        emit(o, s, all);
        return s->fd >= 0;
    }
    size_t room = OUTPUT_CHUNK;
    char *to = o->scratch;
    if (!s->is_raw && e != NULL) /* lines are assembled; NULL: out of memory */
        to = lines_room(&s->lines, &room);
    if (e != NULL && e->was_full && !s->is_raw && room > TURN_BYTES && !all)
        room = TURN_BYTES; /* of a raw stream the whole pipe: no line that came at once is torn */
    ssize_t n = to != NULL ? read_stream(s->fd, to, room) : -1;
    if (to != NULL && n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) { /* of a pty: EIO */
        s->at_end = true;
        close_pipe(s);
        emit(o, s, all);
        return false;
    }
    s->last_ms = co_now_ms();
    if (number % 2 == OUTPUT_TO_STDOUT)
        o->last_ms = s->last_ms;
    else
        tail_add(&o->tails[number / 2], to, (size_t)n);
    struct co_error err;
    note_log(o, log_copy_bytes(&s->log, to, (size_t)n, &err), &err);
    if (e != NULL && s->is_raw)
        pass_on(e, to, (size_t)n);
    else if (e != NULL)
        lines_add(&s->lines, (size_t)n);
    if (count_read(s, (size_t)n)) {
        s->at_end = true;
        close_pipe(s);
    }
    if (s->at_end || !s->is_raw)
        emit(o, s, all);
    return s->fd >= 0;
}

/* Once for all that was read together; not within the line of another stream. */
static void draw_bar(struct output *o, struct stream *s)
{
    const char *frame;
    struct exit_to *e = s->sink != OUTPUT_NOWHERE ? &o->exits[s->sink] : NULL;
    size_t n = s->draws_bar && !s->at_end ? lines_frame(&s->lines, &frame) : 0;
    if (n == 0 || e == NULL || is_full(e) || e->line_of != -1)
        return;
    if (o->columns == UNASKED)
        o->columns = pty_columns(STDERR_FILENO);
    n = lines_draw_bar(s->prefix, s->n_prefix, frame, n, o->columns, o->scratch);
    stream_writer_write(e->writer, o->scratch, n);
    e->has_bar = true;
}

static void wait_for_room(struct stream *s)
{
    if (s->source != NULL)
        uv_poll_stop(&s->source->poll);
    s->waits = true;
}

/* After a turn: lines that the sink did not take must not be forgotten. */
static void check_rest(struct stream *s)
{
    if (!s->is_raw && lines_has_some(&s->lines, s->at_end))
        wait_for_room(s);
}

static void on_pipe(uv_poll_t *poll, int status, int events)
{
    struct source *source = poll->data;
    struct stream *s = &source->o->streams[source->stream];
    (void)status;
    (void)events;
    if (must_wait(source->o, s)) {
        wait_for_room(s);
        return;
    }
    struct output *o = source->o; /* the source may go */
    take_turn(o, s, false);
    check_rest(s);
    say_trouble(o);
    draw_bar(o, s);
}

/* Each stream that waits for this sink gets a turn, until the sink is full again. */
static void resume_streams(struct output *o, int sink)
{
    struct exit_to *e = &o->exits[sink];
    int n = 2 * o->n_ranks;
    int first = e->next;
    for (int i = 0; i < n && !is_full(e); i++) {
        struct stream *s = &o->streams[(first + i) % n];
        if (!s->waits || s->sink != sink)
            continue;
        e->next = (first + i + 1) % n;
        s->waits = false;
        take_turn(o, s, false);
        if (s->source != NULL)
            uv_poll_start(&s->source->poll, UV_READABLE | UV_DISCONNECT, on_pipe);
        check_rest(s);
    }
    if (!is_full(e))
        e->was_full = false;
}

static void on_room(void *arg)
{
    struct exit_to *e = arg;
    e->holds_old = false;
    resume_streams(e->o, (int)(e - e->o->exits));
    if (e->o->draining)
        try_drain(e->o);
}

/* --- From outside --- */

/* The writer is gone: its last words come before those of the next one, and wait in the writer if
 * they have to. */
static void retire(struct output *o, struct stream *s)
{
    set_limit(s);
    while (s->fd >= 0 && take_turn(o, s, true)) {
    }
    s->at_end = true;
    close_pipe(s);
    emit(o, s, true);
    close_stream(s);
}

static int open_source(struct output *o, int number, int fd)
{
    struct stream *s = &o->streams[number];
    struct source *source = malloc(sizeof *source);
    if (source == NULL)
        return -ENOMEM;
    *source = (struct source){.o = o, .stream = number};
    int rc = uv_poll_init(o->loop, &source->poll, fd);
    if (rc < 0) {
        free(source);
        return rc;
    }
    source->poll.data = source;
    s->source = source;
    o->n_handles++;
    return uv_poll_start(&source->poll, UV_READABLE | UV_DISCONNECT, on_pipe);
}

int output_add(struct output *o, int rank, enum output_sink which, int fd, bool is_pty,
               const struct output_way *way)
{
    int number = rank * 2 + (int)which;
    struct stream *s = &o->streams[number];
    retire(o, s);
    if (which == OUTPUT_TO_STDERR)
        tail_fini(&o->tails[rank]);
    *s = (struct stream){
        .fd = fd,
        .is_pty = is_pty,
        .is_raw = way->prefix == NULL,
        .folds = way->folds && way->prefix != NULL && o->fold != NULL,
        .draws_bar = way->draws_bar,
        .sink = way->to == OUTPUT_NOWHERE ? OUTPUT_NOWHERE : o->sink_of[way->to],
        .log = {.fd = way->log_fd, .filter_fd = way->filter_fd, .words = way->filters},
        .n_prefix = way->n_prefix};
    int rc = 0;
    if (!s->is_raw) {
        s->prefix = malloc(s->n_prefix + 1);
        if (s->prefix == NULL)
            rc = -ENOMEM;
        else
            memcpy(s->prefix, way->prefix, s->n_prefix);
    }
    rc = rc ?: log_copy_set_turn(&s->log, &way->log_turn, way->log_path)
             ?: open_source(o, number, fd);
    if (rc < 0)
        close_stream(s);
    return rc;
}

void output_resize(struct output *o, int like)
{
    o->columns = UNASKED;
    for (int i = 0; i < 2 * o->n_ranks; i++)
        if (o->streams[i].is_pty && o->streams[i].fd >= 0)
            pty_resize(o->streams[i].fd, like);
}

void output_say(struct output *o, const char *lines)
{
    struct exit_to *e = &o->exits[OUTPUT_TO_STDERR];
    flush_folded(o);
    if (is_full(e))
        return;
    if (o->is_drawn)
        write_line(e, "\r\033[K", 4);
    o->is_drawn = false;
    write_line(e, lines, strlen(lines));
}

void output_draw(struct output *o, const char *line)
{
    if (o->is_drawn || *line != '\0')
        output_say(o, line);
    o->is_drawn = *line != '\0';
}

void output_report(struct output *o, const char *lines)
{
    flush_folded(o);
    write_line(&o->exits[OUTPUT_TO_STDERR], lines, strlen(lines));
}

/* Empty all pipes, unless a sink stops us; then on_room() calls again. */
static void try_drain(struct output *o)
{
    bool waits = is_full(&o->exits[0]) || is_full(&o->exits[1]);
    for (int i = 0; i < 2 * o->n_ranks; i++) {
        struct stream *s = &o->streams[i];
        while (!must_wait(o, s) && s->fd >= 0 && take_turn(o, s, false)) {
        }
        if (!must_wait(o, s) && s->lines.buf != NULL) {
            s->at_end =
                true; /* EAGAIN: another program holds the pipe, but none of our ranks writes */
            emit(o, s, false);
        }
        waits = waits || must_wait(o, s);
    }
    flush_folded(o);
    for (int i = 0; i < 2; i++)
        stream_writer_finish(o->exits[i].writer);
    if (waits || is_full(&o->exits[0]) || is_full(&o->exits[1]))
        return;
    say_trouble(o);
    o->draining = false;
    o->on_drained(o->arg);
}

void output_drain(struct output *o, void (*on_drained)(void *arg), void *arg)
{
    o->on_drained = on_drained;
    o->arg = arg;
    o->draining = true;
    for (int i = 0; i < 2 * o->n_ranks; i++)
        set_limit(&o->streams[i]);
    try_drain(o);
}

void output_retire(struct output *o, void (*on_retired)(void *arg), void *arg)
{
    if (o->exits[0].holds_old || o->exits[1].holds_old) {
        output_drain(o, on_retired, arg);
        return;
    }
    for (int i = 0; i < 2 * o->n_ranks; i++)
        retire(o, &o->streams[i]);
    flush_folded(o);
    for (int i = 0; i < 2; i++)
        o->exits[i].holds_old = is_full(&o->exits[i]);
    say_trouble(o);
    on_retired(arg);
}

void output_catch_up(struct output *o, int rank)
{
    struct stream *s = &o->streams[2 * rank + OUTPUT_TO_STDERR];
    for (int i = 0; i < CATCH_UP_TURNS && s->fd >= 0 && !must_wait(o, s); i++)
        if (!take_turn(o, s, false))
            break;
    check_rest(s);
    say_trouble(o);
}

const char *output_error(const struct output *o)
{
    return o->error.text[0] != '\0' ? o->error.text : NULL;
}

bool output_has_loss(const struct output *o)
{
    return stream_writer_loss(o->exits[OUTPUT_TO_STDOUT].writer) < 0 ||
           stream_writer_loss(o->exits[OUTPUT_TO_STDERR].writer) < 0;
}

uint64_t output_last_ms(const struct output *o)
{
    return o->last_ms;
}

uint64_t output_error_age_ms(const struct output *o, int rank)
{
    const uint64_t last_ms = o->streams[2 * rank + OUTPUT_TO_STDERR].last_ms;
    return last_ms > 0 ? co_now_ms() - last_ms : UINT64_MAX;
}

uint64_t output_rank_ms(const struct output *o, int rank)
{
    const struct stream *s = &o->streams[2 * rank];
    return s[0].last_ms > s[1].last_ms ? s[0].last_ms : s[1].last_ms;
}

char *output_tail(const struct output *o, int rank)
{
    return tail_copy(&o->tails[rank]);
}

char *output_since(const struct output *o, int rank, size_t from, size_t *ret_from, size_t *ret_n)
{
    return tail_since(&o->tails[rank], from, ret_from, ret_n);
}

size_t output_written(const struct output *o, int rank)
{
    return o->tails[rank].total;
}

void output_close(struct output *o)
{
    if (o == NULL)
        return;
    for (int i = 0; i < 2 * o->n_ranks; i++)
        close_stream(&o->streams[i]);
    if (o->fold != NULL)
        uv_close((uv_handle_t *)&o->fold->timer, on_fold_closed);
    for (int i = 0; i < 2; i++)
        stream_writer_close(o->exits[i].writer);
    unref(o);
}
