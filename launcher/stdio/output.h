/* output.h - what the ranks write: passed on, written to log files, its last lines kept.
 *
 * A stream without a prefix is passed on byte for byte, in order; what several ranks write mixes by
 * what came together, as it does on a shared terminal. A stream with a prefix (also an empty one)
 * is passed on in whole lines, each by one write with the lines around it. A line longer than
 * LINES_BYTES is passed on in pieces; should another stream write in between, it begins on a line
 * of its own.
 *
 * At most OUTPUT_CHUNK bytes wait for a sink, and as many in a stream with a prefix: while a sink
 * takes no more, ranks that write to it find their pipes full and wait, each in its turn; those
 * that don't are not affected, and the loop continues. Only the remaining output of the ranks of
 * one generation is kept whatever its length, so that a paused terminal holds no restart up. */
#ifndef DDP_LAUNCHER_STDIO_OUTPUT_H
#define DDP_LAUNCHER_STDIO_OUTPUT_H

#include "launcher/lines/fold.h"
#include "log_files.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#define OUTPUT_CHUNK 65536

/* How long a reader that stands still holds the last output of a job that a signal has stopped. A
 * further stop signal ends it earlier; a job that was not stopped waits until one arrives. */
#define OUTPUT_STOPPED_MS 5000

/* With which ddprun ends where all else went well (output_has_loss()). */
#define OUTPUT_EXIT_LOST 74

struct co_error;
struct output; /* opaque */

enum output_sink { OUTPUT_TO_STDOUT, OUTPUT_TO_STDERR, OUTPUT_NOWHERE };

/* How a stream is treated. */
struct output_way {
    enum output_sink to;
    const char
        *prefix; /* n_prefix bytes, at most LINES_PREFIX_MAX, copied; NULL: none, unchanged */
    size_t n_prefix;
    int log_fd;           /* a file all bytes go to, owned from here on; -1: none */
    const char *log_path; /* its name, if it may be turned over; copied */
    struct log_turn log_turn;
    char *const *filters; /* lines that hold one of these words are also written to filter_fd;
                           * borrowed; needs a prefix; NULL: none */
    int filter_fd;        /* owned from here on; -1: none */
    bool folds;           /* lines that other ranks also write are folded (output_set_fold()); needs
                           * a prefix, which is not used, and no filters */
    bool draws_bar;       /* the sink is a terminal, and shows a progress bar of this stream while
                           * it runs; needs a prefix. Elsewhere only the last state is written */
};

/* to_fd     stdout and stderr, borrowed; they may be the same file
 * returns   0, -ENOMEM */
int output_create(uv_loop_t *loop, int n_ranks, const int to_fd[2], struct output **ret,
                  struct co_error *err);

/* The label for a line that one rank or several have written. returns its length, at most n */
typedef size_t (*output_fold_label)(const void *arg, const struct fold_line *line, char *to,
                                    size_t n);

/* Hold lines of streams that fold for so long. Before the first is added.
 *
 * label     makes their labels, of one rank or several; arg is borrowed
 * returns   0, -ENOMEM */
int output_set_fold(struct output *o, uint64_t hold_ms, output_fold_label label, const void *arg);

/* rank's pipe or pty, our end, non-blocking. What is left of an earlier one, to which no process
 * writes any more, is passed on first, or kept while the sink is full. All descriptors are owned by
 * output from here on, even on failure.
 *
 * which     OUTPUT_TO_STDOUT, OUTPUT_TO_STDERR: what it is to the rank. The tail of stderr (and of
 *           a pty, which is added as stderr) is kept, a new one each time
 * is_pty    follow the terminal's new size
 * returns   0, -ENOMEM, -errno */
int output_add(struct output *o, int rank, enum output_sink which, int fd, bool is_pty,
               const struct output_way *way);

/* The terminal `like` has a new size: resize the ptys. */
void output_resize(struct output *o, int like);

/* Lines of our own, to stderr, in between ("ddprun: ..."), including the last ended by a newline.
 * Dropped while the sink is full. */
void output_say(struct output *o, const char *lines);

/* The same for a line of a terminal without a newline: the next drawing or line erases it. An empty
 * one only erases. */
void output_draw(struct output *o, const char *line);

/* The same, kept while the sink is full: for messages that are printed once in a generation, or
 * once for a rank. */
void output_report(struct output *o, const char *lines);

/* No rank writes any more: pass on what the pipes hold, then call on_drained: from the loop, or
 * before this returns. Of a process that outlives its rank no more is read than the pipe can
 * hold. */
void output_drain(struct output *o, void (*on_drained)(void *arg), void *arg);

/* The ranks are gone, others follow: take all that the pipes hold, so that the output of the others
 * follows it, and call on_retired, both as above. Does not wait for a sink, unless that has not yet
 * taken what was kept for it the time before: the last output of one generation is kept, not
 * more. */
void output_retire(struct output *o, void (*on_retired)(void *arg), void *arg);

/* The rank has ended: read what it wrote to standard error last, so that its tail has it. At most
 * what a pipe holds (another process may have it, and write on), while the sink takes it. */
void output_catch_up(struct output *o, int rank);

/* What could not be written first, and why: standard output, standard error or a log file. The
 * other stream gets a line about it. Output that has no reader any more is not counted.
 *
 * returns   a text without newline, until o is closed; NULL: all was written at once */
const char *output_error(const struct output *o);

/* Did ddprun lose output of the ranks, because standard output or standard error could not be
 * written even later? */
bool output_has_loss(const struct output *o);

/* When a rank last wrote to its standard output, as far as that comes through here by a stream of
 * its own; 0: never. */
uint64_t output_last_ms(const struct output *o);

/* How long ago a rank last wrote to its standard error, in the same sense; UINT64_MAX: it never
 * has. */
uint64_t output_error_age_ms(const struct output *o, int rank);

/* When a rank last wrote anything, in the same sense. */
uint64_t output_rank_ms(const struct output *o, int rank);

/* See tail_copy(): the last lines of rank's stderr, or NULL. */
char *output_tail(const struct output *o, int rank);

/* See tail_since(): what rank wrote to stderr. */
char *output_since(const struct output *o, int rank, size_t from, size_t *ret_from, size_t *ret_n);

/* How many bytes that were, ever. */
size_t output_written(const struct output *o, int rank);

/* Stop reading, close the pipes; ranks that still write get SIGPIPE. Frees o when the loop has
 * closed its handles; NULL is fine. */
void output_close(struct output *o);

#endif
