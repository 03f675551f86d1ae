#include "output.h"

#include "lines.h"
#include "pty.h"
#include "sink.h"
#include "tail.h"

#include "common/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

/* The happy path: a pipe is readable, a chunk is read, kept in the rank's tail, logged, and
 * written. What the sink does not take waits in the sink's `rest`, and until that is gone a
 * readable stream is only marked `waits` and no longer polled. When the sink takes bytes again,
 * `rest` is written and those streams get their turns, beginning behind the one that had the last:
 * so none is forgotten while another one floods. */

enum { REST_BYTES = LINES_BYTES + LINES_PREFIX_MAX + 1, TURN_BYTES = 8192 };

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
    int sink;    /* OUTPUT_NOWHERE: none */
    int log_fd;  /* -1: none */
    int filter_fd;
    char *const *filters; /* borrowed */
    bool in_match;        /* a long line that goes to filter_fd is not over */
    char *prefix;         /* owned */
    size_t n_prefix;
    struct lines lines;
};

struct exit_to { /* a sink, and what waits for it */
    struct output *o;
    int fd;
    struct sink sink;
    bool is_open;  /* with the first byte: a quiet job needs none of this */
    bool was_full; /* others wait: turns are short */
    int next;      /* the stream whose turn comes first */
    int line_of;   /* the stream whose line is not over; NOBODY: a dead one's; -1: none is open */
    int room_fd;   /* an epoll of the sink alone: readable when the sink has room. libuv sets
                      O_NONBLOCK on what it polls, and the sink may belong to others */
    uv_poll_t room;
    bool has_room_handle, room_is_polled;
    char rest[REST_BYTES];
    size_t rest_start, rest_end;
};

enum { NOBODY = -2 };

struct output {
    uv_loop_t *loop;
    int n_ranks;
    int sink_of[2]; /* stdout and stderr may be one */
    struct exit_to *exits;
    struct tail *tails; /* by rank */
    void (*on_drained)(void *arg);
    void *arg;
    bool draining;
    int log_error; /* errno of the first log file that failed; 0: none */
    bool log_error_said;
    int n_handles;
    struct stream streams[]; /* rank * 2 + which */
};

static void on_pipe(uv_poll_t *poll, int status, int events);
static void try_drain(struct output *o);

static bool is_full(const struct exit_to *e)
{
    return e->rest_start != e->rest_end;
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

static void output_destroy(struct output *o)
{
    for (int i = 0; o->tails != NULL && i < o->n_ranks; i++)
        tail_fini(&o->tails[i]);
    for (int i = 0; o->exits != NULL && i < 2; i++) {
        if (o->exits[i].is_open)
            sink_close(&o->exits[i].sink);
        if (o->exits[i].room_fd >= 0)
            close(o->exits[i].room_fd);
    }
    free(o->tails);
    free(o->exits);
    free(o);
}

int output_create(uv_loop_t *loop, int n_ranks, const int to_fd[2], struct output **ret,
                  struct co_error *err)
{
    struct output *o = calloc(1, sizeof *o + 2 * (size_t)n_ranks * sizeof o->streams[0]);
    if (o == NULL)
        return co_fail(err, -ENOMEM, "no memory for %d ranks' output", n_ranks);
    o->exits = calloc(2, sizeof *o->exits);
    o->tails = calloc((size_t)n_ranks, sizeof *o->tails);
    if (o->exits == NULL || o->tails == NULL) {
        free(o->exits);
        free(o->tails);
        free(o);
        return co_fail(err, -ENOMEM, "no memory for %d ranks' output", n_ranks);
    }
    o->loop = loop;
    o->n_ranks = n_ranks;
    o->sink_of[OUTPUT_TO_STDERR] = OUTPUT_TO_STDERR;
    o->sink_of[OUTPUT_TO_STDOUT] = are_same(to_fd) ? OUTPUT_TO_STDERR : OUTPUT_TO_STDOUT;
    for (int i = 0; i < 2; i++) {
        o->exits[i].o = o;
        o->exits[i].fd = to_fd[i];
        o->exits[i].line_of = -1;
        o->exits[i].room_fd = -1;
    }
    for (int i = 0; i < 2 * n_ranks; i++)
        o->streams[i] = (struct stream){.fd = -1, .log_fd = -1, .filter_fd = -1};
    *ret = o;
    return 0;
}

/* Handles close one by one as pipes end; the object goes with the last, after output_close(). */
static void unref(struct output *o)
{
    if (--o->n_handles < 0)
        output_destroy(o);
}

static void on_source_closed(uv_handle_t *handle)
{
    struct source *source = handle->data;
    struct output *o = source->o;
    free(source);
    unref(o);
}

static void on_room_closed(uv_handle_t *handle)
{
    unref(handle->data);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_pipe(struct stream *s)
{
    if (s->source != NULL)
        uv_close((uv_handle_t *)&s->source->poll, on_source_closed);
    s->source = NULL;
    close_fd(&s->fd);
}

static void close_stream(struct stream *s)
{
    close_pipe(s);
    close_fd(&s->log_fd);
    close_fd(&s->filter_fd);
    free(s->prefix);
    s->prefix = NULL;
    lines_fini(&s->lines);
    s->waits = false;
}

/* --- The sinks --- */

static int make_room_handle(struct exit_to *e)
{
    struct epoll_event when = {.events = EPOLLOUT};
    e->room_fd = epoll_create1(EPOLL_CLOEXEC);
    if (e->room_fd < 0 || epoll_ctl(e->room_fd, EPOLL_CTL_ADD, e->sink.fd, &when) < 0)
        return -errno;
    int rc = uv_poll_init(e->o->loop, &e->room, e->room_fd);
    if (rc < 0)
        return rc;
    e->room.data = e->o;
    e->has_room_handle = true;
    e->o->n_handles++;
    return 0;
}

static void on_room(uv_poll_t *poll, int status, int events);

/* Hear of it when the sink has room. A sink that can't be waited for is given up. */
static void await_room(struct exit_to *e)
{
    e->was_full = true;
    if (e->room_is_polled)
        return;
    if ((e->has_room_handle || make_room_handle(e) == 0) &&
        uv_poll_start(&e->room, UV_READABLE, on_room) == 0) {
        e->room_is_polled = true;
        return;
    }
    sink_close(&e->sink);
    e->rest_start = e->rest_end = 0;
}

/* Write `bytes`, or keep what is not taken. Only while nothing is kept. */
static void pass_on(struct exit_to *e, const char *bytes, size_t n)
{
    if (!e->is_open) {
        sink_open(&e->sink, e->fd);
        e->is_open = true;
    }
    size_t took = sink_write(&e->sink, bytes, n);
    if (took == n)
        return;
    memmove(e->rest, bytes + took, n - took);
    e->rest_start = 0;
    e->rest_end = n - took;
    await_room(e);
}

static void flush(struct exit_to *e)
{
    size_t n = e->rest_end - e->rest_start;
    e->rest_start += sink_write(&e->sink, e->rest + e->rest_start, n);
    if (!is_full(e))
        e->rest_start = e->rest_end = 0;
}

/* --- A stream's turn --- */

/* A log file that takes no more (a full disk) is given up, and that is said once. */
static void log_bytes(struct output *o, int *fd, const char *bytes, size_t n)
{
    while (n > 0 && *fd >= 0) {
        ssize_t took = write(*fd, bytes, n);
        if (took > 0) {
            bytes += took;
            n -= (size_t)took;
        } else if (errno != EINTR) {
            if (o->log_error == 0)
                o->log_error = errno;
            close_fd(fd);
        }
    }
}

/* Not in the middle of a turn: that uses the sinks' buffers. */
static void say_log_error(struct output *o)
{
    char text[160];
    if (o->log_error == 0 || o->log_error_said)
        return;
    o->log_error_said = true;
    snprintf(text, sizeof text, "ddprun: cannot write a log file, it ends here: %s\n",
             strerror(o->log_error));
    output_say(o, text);
}

static bool has_word(char *const *words, const char *line, size_t n)
{
    while (*words != NULL && memmem(line, n, *words, strlen(*words)) == NULL)
        words++;
    return *words != NULL;
}

/* Lines as they go out, a first one perhaps continued: those with a word go to the filter's
 * file. */
static void filter(struct output *o, struct stream *s, const char *text, size_t n, bool continued)
{
    while (n > 0) {
        const char *newline = memchr(text, '\n', n);
        size_t n_line = newline != NULL ? (size_t)(newline + 1 - text) : n;
        size_t skip = continued ? 0 : s->n_prefix;
        if ((continued && s->in_match) || has_word(s->filters, text + skip, n_line - skip)) {
            log_bytes(o, &s->filter_fd, text, n_line);
            s->in_match = newline == NULL;
        } else {
            s->in_match = false;
        }
        continued = false;
        text += n_line;
        n -= n_line;
    }
}

/* Whole lines that the stream holds, while the sink takes them. */
static void emit(struct output *o, struct stream *s)
{
    int number = (int)(s - o->streams);
    struct exit_to *e = s->sink != OUTPUT_NOWHERE ? &o->exits[s->sink] : NULL;
    char *text = o->exits[e != NULL ? s->sink : OUTPUT_TO_STDERR].rest;
    while (e != NULL && !is_full(e) && lines_has_some(&s->lines, s->at_end)) {
        bool between = e->line_of != -1 && e->line_of != number;
        if (e->line_of != number) /* somebody came in between: it is a line of its own now */
            s->lines.in_line = false;
        bool continued = s->lines.in_line;
        text[0] = '\n';
        size_t n =
            lines_take(&s->lines, s->prefix, s->n_prefix, text + 1, REST_BYTES - 1, s->at_end);
        if (s->filters != NULL)
            filter(o, s, text + 1, n, continued);
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

/* Where to read into. A stream without a prefix uses the sink's buffer, which is empty. */
static char *find_room(struct output *o, struct stream *s, size_t *ret_n)
{
    if (!s->is_raw)
        return lines_room(&s->lines, ret_n);
    *ret_n = OUTPUT_CHUNK;
    return o->exits[s->sink != OUTPUT_NOWHERE ? s->sink : OUTPUT_TO_STDERR].rest;
}

/* Read one chunk and pass it on. returns false at the end, or when nothing is there */
static bool take_turn(struct output *o, struct stream *s)
{
    int number = (int)(s - o->streams);
    struct exit_to *e = s->sink != OUTPUT_NOWHERE ? &o->exits[s->sink] : NULL;
    static char nowhere[OUTPUT_CHUNK];
    if (!s->is_raw && lines_has_some(&s->lines, s->at_end)) { /* what was not taken last time */
        emit(o, s);
        return s->fd >= 0;
    }
    size_t room;
    char *to = e == NULL ? nowhere : find_room(o, s, &room);
    if (e == NULL)
        room = sizeof nowhere;
    if (e != NULL && e->was_full && !s->is_raw && room > TURN_BYTES)
        room = TURN_BYTES; /* of a raw stream the whole pipe: no line that came at once is torn */
    ssize_t n;
    do {
        n = to != NULL ? read(s->fd, to, room) : -1;
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) { /* of a pty: EIO */
        s->at_end = true;
        close_pipe(s);
        emit(o, s);
        return false;
    }
    if (number % 2 == OUTPUT_TO_STDERR)
        tail_add(&o->tails[number / 2], to, (size_t)n);
    log_bytes(o, &s->log_fd, to, (size_t)n);
    if (e == NULL)
        return true;
    if (s->is_raw) {
        pass_on(e, to, (size_t)n);
        return true;
    }
    lines_add(&s->lines, (size_t)n);
    emit(o, s);
    return s->fd >= 0;
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
    take_turn(o, s);
    check_rest(s);
    say_log_error(o);
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
        take_turn(o, s);
        if (s->source != NULL)
            uv_poll_start(&s->source->poll, UV_READABLE | UV_DISCONNECT, on_pipe);
        check_rest(s);
    }
    if (!is_full(e))
        e->was_full = false;
}

static void on_room(uv_poll_t *poll, int status, int events)
{
    struct output *o = poll->data;
    (void)status;
    (void)events;
    int sink = poll == &o->exits[OUTPUT_TO_STDOUT].room ? OUTPUT_TO_STDOUT : OUTPUT_TO_STDERR;
    struct exit_to *e = &o->exits[sink];
    flush(e);
    if (is_full(e))
        return;
    resume_streams(o, sink);
    if (!is_full(e)) {
        uv_poll_stop(&e->room);
        e->room_is_polled = false;
    }
    if (o->draining)
        try_drain(o);
}

/* --- From outside --- */

/* An earlier generation's pipe: its last words come before those of the next one. */
static void finish(struct output *o, struct stream *s)
{
    while (s->fd >= 0 && !must_wait(o, s) && take_turn(o, s)) {
    }
    s->at_end = true;
    close_pipe(s);
    emit(o, s);
    if (s->lines.buf != NULL) { /* the sink is full: better lost than held in the way */
        if (s->sink != OUTPUT_NOWHERE && o->exits[s->sink].line_of == (int)(s - o->streams))
            o->exits[s->sink].line_of = NOBODY;
    }
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
    finish(o, s);
    if (which == OUTPUT_TO_STDERR)
        tail_fini(&o->tails[rank]);
    *s = (struct stream){.fd = fd,
                         .is_pty = is_pty,
                         .is_raw = way->prefix == NULL,
                         .sink = way->to == OUTPUT_NOWHERE ? OUTPUT_NOWHERE : o->sink_of[way->to],
                         .log_fd = way->log_fd,
                         .filter_fd = way->filter_fd,
                         .filters = way->filters,
                         .n_prefix = way->n_prefix};
    int rc = 0;
    if (!s->is_raw) {
        s->prefix = malloc(s->n_prefix + 1);
        if (s->prefix == NULL)
            rc = -ENOMEM;
        else
            memcpy(s->prefix, way->prefix, s->n_prefix);
    }
    if (rc == 0)
        rc = open_source(o, number, fd);
    if (rc < 0)
        close_stream(s);
    return rc;
}

void output_resize(struct output *o, int like)
{
    for (int i = 0; i < 2 * o->n_ranks; i++)
        if (o->streams[i].is_pty && o->streams[i].fd >= 0)
            pty_resize(o->streams[i].fd, like);
}

void output_say(struct output *o, const char *lines)
{
    struct exit_to *e = &o->exits[OUTPUT_TO_STDERR];
    if (is_full(e))
        return;
    if (e->line_of != -1)
        pass_on(e, "\n", 1);
    e->line_of = -1;
    if (!is_full(e))
        pass_on(e, lines, strnlen(lines, OUTPUT_CHUNK));
}

/* Empty all pipes, unless a sink stops us; then on_room() calls again. */
static void try_drain(struct output *o)
{
    bool waits = is_full(&o->exits[0]) || is_full(&o->exits[1]);
    for (int i = 0; i < 2 * o->n_ranks; i++) {
        struct stream *s = &o->streams[i];
        while (!must_wait(o, s) && s->fd >= 0 && take_turn(o, s)) {
        }
        if (!must_wait(o, s) && s->lines.buf != NULL) {
            s->at_end = true; /* EAGAIN: a stranger holds the pipe, but nobody of ours writes */
            emit(o, s);
        }
        waits = waits || must_wait(o, s);
    }
    if (waits)
        return;
    say_log_error(o);
    o->draining = false;
    o->on_drained(o->arg);
}

void output_drain(struct output *o, void (*on_drained)(void *arg), void *arg)
{
    o->on_drained = on_drained;
    o->arg = arg;
    o->draining = true;
    try_drain(o);
}

char *output_tail(const struct output *o, int rank)
{
    return tail_copy(&o->tails[rank]);
}

void output_close(struct output *o)
{
    if (o == NULL)
        return;
    for (int i = 0; i < 2 * o->n_ranks; i++)
        close_stream(&o->streams[i]);
    for (int i = 0; i < 2; i++)
        if (o->exits[i].has_room_handle)
            uv_close((uv_handle_t *)&o->exits[i].room, on_room_closed);
    unref(o);
}
