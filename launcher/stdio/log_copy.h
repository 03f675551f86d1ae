/* log_copy.h - what of a stream goes to log files, too: all of it to one, lines that hold a word to
 * another.
 *
 * The first may be turned over: when it would get too large it becomes FILE.1, what was that
 * FILE.2, and a new one is begun, at the end of a line if there is one in reach. A file that takes
 * no more (a full disk) is given up. */
#ifndef DDP_LAUNCHER_STDIO_LOG_COPY_H
#define DDP_LAUNCHER_STDIO_LOG_COPY_H

#include "launcher/job/output_spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;

struct log_copy {
    struct log_turn turn;
    char *path;         /* owned; of fd, if it may be turned over */
    uint64_t size;      /* of the file, then */
    int fd;             /* owned; gets all bytes; -1: none */
    int filter_fd;      /* owned; gets lines with one of these words; -1: none */
    char *const *words; /* borrowed, NULL-terminated; NULL: no line is looked at */
    bool in_match;      /* a long line that goes to filter_fd is not over */
};

void log_copy_close(struct log_copy *l); /* may be called again */

/* fd is begun, and may be turned over.
 *
 * path      copied
 * returns   0, -ENOMEM: it never will be */
int log_copy_set_turn(struct log_copy *l, const struct log_turn *turn, const char *path);

/* Bytes as they come. returns 0; -errno: a file has just been given up, which err names */
int log_copy_bytes(struct log_copy *l, const char *bytes, size_t n, struct co_error *err);

/* Lines as they go out, each behind n_prefix bytes, which are written but not looked at; a last one
 * may go on with the next call.
 *
 * continued   the first one goes on from the last call, and has no prefix
 * returns     as above */
int log_copy_lines(struct log_copy *l, const char *text, size_t n, size_t n_prefix, bool continued,
                   struct co_error *err);

#endif
