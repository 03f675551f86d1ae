/* The descriptors of a rank. rank_io_make() makes them all: plan_rank() reads what the options
 * specify for the rank, make_logs() makes its directory, and then either make_ptys() gives both
 * streams a terminal, if ours are terminals and nothing goes to files, or make_stream() decides for
 * each stream: a log file, a pipe to output.c, or the very descriptor that ddprun has.
 * rank_io_adopt() does the same for a process that has its pipes already. Read make_stream() first.
 *
 * Rule: a stream goes through ddprun only if something needs that: a label, a copy, a tail, a
 * filter, a log file that is rotated, or the watch for ranks that hang (is_watched()). All other
 * bytes reach their destination at no cost to ddprun. */
#include "rank_io.h"

#include "launcher/job/job_spec.h"
#include "launcher/lines/fold.h"
#include "launcher/lines/lines.h"
#include "launcher/spawner/runtime_dir.h"
#include "log_files.h"
#include "output.h"
#include "pty.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *const log_names[] = {"stdout.log", "stderr.log"};
static const char *const filtered_names[] = {"filtered_stdout.log", "filtered_stderr.log"};

/* A rank's part of the output_spec. */
struct plan {
    bool to_file[2], tee[2];
    bool hidden;
};

static struct plan plan_rank(const struct output_spec *s, int local_rank)
{
    struct plan p = {0};
    if (s->log_dir_null)
        return p;
    for (int i = 0; i < 2; i++) {
        p.tee[i] = (s->tees[local_rank] & (OUTPUT_OUT << i)) != 0;
        p.to_file[i] = p.tee[i] || (s->redirects[local_rank] & (OUTPUT_OUT << i)) != 0;
    }
    p.hidden = s->hidden[local_rank];
    return p;
}

static bool needs_log_dir(const struct job_spec *spec)
{
    const struct output_spec *s = &spec->output;
    if (s->log_dir_null)
        return false;
    bool needs = s->log_dir != NULL;
    for (int i = 0; i < spec->n_local; i++)
        needs = needs || s->redirects[i] != 0 || s->tees[i] != 0;
    return needs;
}

static size_t make_fold_label(const void *arg, const struct fold_line *line, char *to, size_t n);

int rank_io_open(struct rank_io *io, const struct job_spec *spec, struct output *output,
                 int null_fd, struct co_error *err)
{
    *io = (struct rank_io){.spec = spec, .output = output, .null_fd = null_fd};
    io->on_terminal = isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
    gethostname(io->hostname, sizeof io->hostname - 1);
    snprintf(io->host, sizeof io->host, "%.*s", (int)strcspn(io->hostname, "."), io->hostname);
    int rc = 0;
    if (spec->output.fold_ms > 0)
        rc = output_set_fold(output, spec->output.fold_ms, make_fold_label, io);
    if (rc < 0)
        return co_fail(err, rc, "out of memory");
    if (!needs_log_dir(spec))
        return 0;
    rc = log_files_make(spec->output.log_dir, spec->run_id, &io->log_dir, err);
    if (rc == 0 && spec->output.log_dir == NULL) {
        char text[PATH_MAX + 64];
        snprintf(text, sizeof text, "ddprun: note: log files are in %s\n", io->log_dir);
        output_say(output, text);
    }
    return rc;
}

void rank_io_close(struct rank_io *io)
{
    free(io->log_dir);
    io->log_dir = NULL;
}

/* A rank that reads our stdin from a terminal talks to a user: a question waits for its answer, not
 * for a newline. */
static bool has_the_terminal(const struct rank_io *io, int rank)
{
    const struct output_spec *s = &io->spec->output;
    return s->stdin_asked && rank == s->stdin_rank && io->on_terminal && isatty(STDIN_FILENO);
}

static bool wants_label(const struct rank_io *io, int rank)
{
    const struct job_spec *spec = io->spec;
    if (spec->output.label != NULL)
        return spec->output.label[0] != '\0';
    if (has_the_terminal(io, rank))
        return false;
    if (spec->output.fold_ms > 0)
        return true;
    return io->on_terminal && spec->n_local > 1 && !spec->as_torchrun;
}

static size_t make_label(const struct rank_io *io, const struct output_label *of, bool colored,
                         char *to)
{
    const struct output_spec *s = &io->spec->output;
    const char *label = s->label != NULL ? s->label : OUTPUT_LABEL_DEFAULT;
    bool wants_color =
        s->color == OUTPUT_COLOR_ALWAYS || (s->color == OUTPUT_COLOR_AUTO && io->on_terminal);
    if (colored && wants_color)
        return output_spec_colored_label(label, of, to, LINES_PREFIX_MAX);
    return output_spec_label(label, of, to, LINES_PREFIX_MAX);
}

static size_t make_prefix(const struct rank_io *io, bool tee, int local_rank, int rank, char *to)
{
    const struct output_spec *s = &io->spec->output;
    struct output_label of = {.host = io->host,
                              .hostname = io->hostname,
                              .role = io->spec->role,
                              .rank = rank,
                              .local_rank = local_rank,
                              .generation = io->generation};
    if (tee && s->label == NULL)
        return output_spec_template(
            s->line_prefix != NULL ? s->line_prefix : "[${role_name}${local_rank}]:", &of, to,
            LINES_PREFIX_MAX);
    return make_label(io, &of, !tee, to); /* files of filtered lines have no colors */
}

static size_t make_fold_label(const void *arg, const struct fold_line *line, char *to, size_t n)
{
    const struct rank_io *io = arg;
    char ranks[LINES_PREFIX_MAX / 2], local_ranks[LINES_PREFIX_MAX / 2];
    struct output_label of = {
        .host = io->host,
        .role = io->spec->role,
        .generation = io->generation,
        .ranks = fold_print_ranks(line, io->first_rank, ranks, sizeof ranks),
        .local_ranks = fold_print_ranks(line, 0, local_ranks, sizeof local_ranks),
    };
    (void)n;                  /* also LINES_PREFIX_MAX */
    of.rank = atoi(of.ranks); /* for its color, if it is one rank */
    return make_label(io, &of, line->n_ranks == 1, to);
}

/* The output that arrives through a pty as `which`. returns -errno: no pty */
static int make_pty(const struct rank_io *io, int local_rank, int which,
                    const struct output_way *way, struct rank_fds *ret)
{
    int ours;
    int rc = pty_open(STDERR_FILENO, &ours, &ret->owned[which]);
    if (rc < 0)
        return rc;
    ret->fds[1 + which] = ret->owned[which];
    return output_add(io->output, local_rank, (enum output_sink)which, ours, true, way);
}

/* One pty for both streams, so that their lines keep their order; or one each, where it must be
 * known what is standard output. */
static int make_ptys(const struct rank_io *io, int local_rank, int rank, struct rank_fds *ret)
{
    char prefix[LINES_PREFIX_MAX];
    struct output_way way = {.to = OUTPUT_TO_STDOUT,
                             .log_fd = -1,
                             .filter_fd = -1,
                             .draws_bar = rank == 0,
                             .folds = io->spec->output.fold_ms > 0};
    if (wants_label(io, rank)) {
        way.prefix = prefix;
        way.n_prefix = make_prefix(io, false, local_rank, rank, prefix);
    }
    int rc = make_pty(io, local_rank, OUTPUT_TO_STDERR, &way, ret);
    if (rc == 0 && io->spec->restart_after_progress)
        return make_pty(io, local_rank, OUTPUT_TO_STDOUT, &way, ret);
    ret->fds[1] = ret->fds[2];
    return rc;
}

/* With an end of ours, the other one is in use already. */
static int make_pipe(const struct rank_io *io, int local_rank, int which, struct output_way *way,
                     struct rank_fds *ret)
{
    int pair[2];
    if (ret->ours[which] >= 0) {
        const int end = co_take_fd(&ret->ours[which]);
        fcntl(end, F_SETFL, O_NONBLOCK);
        return output_add(io->output, local_rank, (enum output_sink)which, end, false, way);
    }
    if (pipe2(pair, O_CLOEXEC) < 0) {
        int rc = -errno;
        co_close_fd(&way->log_fd);
        co_close_fd(&way->filter_fd);
        return rc;
    }
    fcntl(pair[0], F_SETFL, O_NONBLOCK); /* the rank's end must not be */
    ret->fds[1 + which] = ret->owned[which] = pair[1];
    return output_add(io->output, local_rank, (enum output_sink)which, pair[0], false, way);
}

/* The rank's directory, and the files of filtered lines, which exist even if no line is ever
 * written: a reader that waits for one need not know which ranks are shown. */
static int make_logs(const struct rank_io *io, int local_rank, struct co_error *err)
{
    int rc = log_files_make_rank(io->log_dir, io->generation, local_rank, err);
    for (int which = 0; which < 2 && rc == 0; which++) {
        if (io->spec->output.filters[which] == NULL)
            continue;
        int fd = log_files_open(io->log_dir, io->generation, -1, filtered_names[which], err);
        if (fd < 0)
            return fd;
        close(fd);
    }
    return rc;
}

/* Whether ddprun must see what the rank writes there, whatever else gets it. */
static bool is_watched(const struct rank_io *io, int which)
{
    return (which == OUTPUT_TO_STDOUT && io->spec->restart_after_progress) ||
           io->spec->hang_timeout_ms > 0;
}

/* A stream that goes to the log directory and, with -t, also to our own output. */
static int make_logged(const struct rank_io *io, const struct plan *p, int local_rank, int which,
                       struct output_way *way, struct rank_fds *ret, struct co_error *err)
{
    char path[PATH_MAX];
    bool turns = io->spec->output.log_turn.max_bytes > 0; /* only ddprun can */
    int rc = log_files_open(io->log_dir, io->generation, local_rank, log_names[which], err);
    if (rc < 0)
        return rc;
    if (!p->tee[which] && !is_watched(io, which) && !turns && ret->ours[which] < 0) {
        ret->fds[1 + which] = ret->owned[which] = rc;
        return 0;
    }
    way->log_fd = rc;
    way->log_turn = io->spec->output.log_turn;
    way->log_path = log_files_path(io->log_dir, io->generation, local_rank, log_names[which], path,
                                   sizeof path);
    if (!p->tee[which])
        way->to = OUTPUT_NOWHERE;
    else if (io->spec->output.filters[which] != NULL && !p->hidden) {
        rc = log_files_open(io->log_dir, io->generation, -1, filtered_names[which], err);
        if (rc < 0) {
            close(way->log_fd);
            return rc;
        }
        way->filter_fd = rc;
        way->filters = io->spec->output.filters[which];
    }
    return make_pipe(io, local_rank, which, way, ret);
}

static int make_stream(const struct rank_io *io, const struct plan *p, int local_rank, int rank,
                       int which, struct rank_fds *ret, struct co_error *err)
{
    char prefix[LINES_PREFIX_MAX];
    bool label = p->tee[which] || wants_label(io, rank);
    struct output_way way = {.to = p->hidden ? OUTPUT_NOWHERE : (enum output_sink)which,
                             .prefix = label ? prefix : NULL,
                             .draws_bar = rank == 0 && io->on_terminal,
                             .folds = io->spec->output.fold_ms > 0 && !p->tee[which],
                             .log_fd = -1,
                             .filter_fd = -1};
    if (label)
        way.n_prefix = make_prefix(io, p->tee[which], local_rank, rank, prefix);
    if (p->to_file[which])
        return make_logged(io, p, local_rank, which, &way, ret, err);
    if (which == OUTPUT_TO_STDERR || (label && !p->hidden) || is_watched(io, which) ||
        ret->ours[which] >= 0)
        return make_pipe(io, local_rank, which, &way, ret);
    ret->fds[1] = p->hidden ? io->null_fd : STDOUT_FILENO;
    return 0;
}

int rank_io_make(const struct rank_io *io, int local_rank, int rank, struct rank_fds *ret,
                 struct co_error *err)
{
    struct plan p = plan_rank(&io->spec->output, local_rank);
    int rc = 0;
    *ret = (struct rank_fds){.owned = {-1, -1}, .ours = {-1, -1}};
    ret->fds[0] = rank == io->spec->output.stdin_rank ? STDIN_FILENO : io->null_fd;
    if (io->log_dir != NULL)
        rc = make_logs(io, local_rank, err);
    if (rc == 0 && io->on_terminal && !p.hidden && !p.to_file[0] && !p.to_file[1]) {
        if (make_ptys(io, local_rank, rank, ret) == 0)
            return 0;
        rank_fds_close(ret); /* no ptys here: pipes, then */
    }
    for (int which = 0; which < 2 && rc == 0; which++)
        rc = make_stream(io, &p, local_rank, rank, which, ret, err);
    return rc;
}

int rank_io_adopt(const struct rank_io *io, int local_rank, int rank, const int ends[2],
                  struct co_error *err)
{
    const struct plan p = plan_rank(&io->spec->output, local_rank);
    struct rank_fds fds = {.owned = {-1, -1}, .ours = {ends[0], ends[1]}};
    int rc = io->log_dir != NULL ? make_logs(io, local_rank, err) : 0;
    for (int which = 0; which < 2 && rc == 0; which++)
        rc = make_stream(io, &p, local_rank, rank, which, &fds, err);
    rank_fds_close(&fds);
    return rc;
}

void rank_fds_close(struct rank_fds *fds)
{
    for (int i = 0; i < 2; i++) {
        co_close_fd(&fds->owned[i]);
        co_close_fd(&fds->ours[i]);
    }
}

char *rank_io_error_file(const struct rank_io *io, const char *runtime_dir, int local_rank,
                         char *buf, size_t n)
{
    if (io->log_dir == NULL)
        return runtime_dir_error_file(runtime_dir, local_rank, buf, n);
    return log_files_path(io->log_dir, io->generation, local_rank, "error.json", buf, n);
}

static uint64_t age_of(const struct timespec *written)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t ms =
        (now.tv_sec - written->tv_sec) * INT64_C(1000) + (now.tv_nsec - written->tv_nsec) / 1000000;
    return ms > 0 ? (uint64_t)ms : 0;
}

/* Of a stderr that went to a file without us. returns how many; 0: none, or no file */
static size_t end_of_file(const struct rank_io *io, int local_rank, char bytes[TAIL_BYTES],
                          uint64_t *ret_age_ms)
{
    char path[PATH_MAX];
    struct stat st;
    log_files_path(io->log_dir, io->generation, local_rank, log_names[1], path, sizeof path);
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size == 0)
        return 0;
    *ret_age_ms = age_of(&st.st_mtim);
    ssize_t n = pread(fd, bytes, TAIL_BYTES, st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0);
    return n > 0 ? (size_t)n : 0;
}

static char *tail_of_file(const struct rank_io *io, int local_rank)
{
    char bytes[TAIL_BYTES];
    uint64_t age_ms;
    size_t n = end_of_file(io, local_rank, bytes, &age_ms);
    if (n == 0)
        return NULL;
    struct tail tail = {0};
    tail_add(&tail, bytes, n);
    char *text = tail_copy(&tail);
    tail_fini(&tail);
    return text;
}

bool rank_io_bypasses(const struct rank_io *io, int local_rank)
{
    struct plan p = plan_rank(&io->spec->output, local_rank);
    bool turns = io->spec->output.log_turn.max_bytes > 0;
    bool needs_us = turns || is_watched(io, OUTPUT_TO_STDERR); /* as make_logged() decides */
    return io->log_dir != NULL && p.to_file[1] && !p.tee[1] && !needs_us;
}

char *rank_io_tail(const struct rank_io *io, int local_rank)
{
    if (rank_io_bypasses(io, local_rank))
        return tail_of_file(io, local_rank);
    return output_tail(io->output, local_rank);
}

char *rank_io_last_words(const struct rank_io *io, int local_rank, size_t *ret_n,
                         uint64_t *ret_age_ms)
{
    size_t from;
    uint64_t age_ms;
    if (ret_age_ms == NULL)
        ret_age_ms = &age_ms;
    if (!rank_io_bypasses(io, local_rank)) {
        output_catch_up(io->output, local_rank);
        *ret_age_ms = output_error_age_ms(io->output, local_rank);
        return output_since(io->output, local_rank, 0, &from, ret_n);
    }
    char bytes[TAIL_BYTES];
    *ret_n = end_of_file(io, local_rank, bytes, ret_age_ms);
    char *copy = *ret_n > 0 ? malloc(*ret_n) : NULL;
    return copy != NULL ? memcpy(copy, bytes, *ret_n) : NULL;
}

int rank_io_check_room(const struct rank_io *io, int local_rank, struct co_error *err)
{
    char path[PATH_MAX];
    if (io->log_dir == NULL)
        return 0;
    log_files_path(io->log_dir, io->generation, local_rank, "", path, sizeof path);
    return log_files_check_room(path, err);
}

char *rank_io_log_path(const struct rank_io *io, int local_rank, int which, char *buf, size_t n)
{
    struct plan p = plan_rank(&io->spec->output, local_rank);
    if (io->log_dir == NULL || !p.to_file[which])
        return NULL;
    return log_files_path(io->log_dir, io->generation, local_rank, log_names[which], buf, n);
}
