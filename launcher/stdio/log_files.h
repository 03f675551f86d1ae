/* log_files.h - the job's log directory: DIR/RUN_ID_XXXXXX/attempt_GENERATION/LOCAL_RANK/ with
 * stdout.log, stderr.log and error.json in it, as torchrun lays it out. Earlier generations' files
 * stay. */
#ifndef DDP_LAUNCHER_STDIO_LOG_FILES_H
#define DDP_LAUNCHER_STDIO_LOG_FILES_H

#include "launcher/job/output_spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;

/* Make the job's directory.
 *
 * dir       made if it is missing; NULL: a new directory torchelastic_XXXXXX in $TMPDIR or /tmp
 * run_id    a '/' in it becomes '_'
 * ret_dir   the job's directory, an absolute path, owned by the caller
 * returns   0, -ENOMEM, -ENAMETOOLONG, -errno */
int log_files_make(const char *dir, const char *run_id, char **ret_dir, struct co_error *err);

/* Make the directory of a rank in a generation. returns 0, -errno */
int log_files_make_rank(const char *dir, uint32_t generation, int local_rank, struct co_error *err);

/* The path of a rank's file, into buf. returns buf */
char *log_files_path(const char *dir, uint32_t generation, int local_rank, const char *name,
                     char *buf, size_t n);

/* Open a file to append to, made with mode 0666 less the umask.
 *
 * local_rank   -1: the generation's own directory
 * returns      a descriptor, or -errno */
int log_files_open(const char *dir, uint32_t generation, int local_rank, const char *name,
                   struct co_error *err);

/* Write a block to a file of its own in that directory, and remove the file.
 *
 * returns   0; -ENOSPC and its like: err has the reason */
int log_files_check_room(const char *folder, struct co_error *err);

/* --- what of a stream is written to log files --- */

/* All of it to one, lines that hold a word to
 * another.
 *
 * The first may be rotated: when it would get too large it becomes FILE.1, the old FILE.1 becomes
 * FILE.2, and a new one is begun, at the end of a line if one is near enough. A full disk leaves a
 * hole in the file, and a line that marks it; after any other error the file is abandoned. */

struct log_copy {
    struct log_turn turn;
    char *path;                     /* owned; of fd, if it may be turned over */
    uint64_t size;                  /* size of the file */
    int fd;                         /* owned; gets all bytes; -1: none */
    int filter_fd;                  /* owned; gets lines with one of these words; -1: none */
    char *const *words;             /* borrowed, NULL-terminated; NULL: no line is looked at */
    bool in_match;                  /* a long line that goes to filter_fd is not over */
    bool has_hole, filter_has_hole; /* bytes are missing at their ends */
};

void log_copy_close(struct log_copy *l); /* may be called again */

/* fd is begun, and may be turned over.
 *
 * path      copied
 * returns   0, -ENOMEM: it never will be */
int log_copy_set_turn(struct log_copy *l, const struct log_turn *turn, const char *path);

/* Bytes as they come. A full disk is tried again with the next bytes.
 *
 * returns   0; -errno: a file has just been given up, or lost bytes; err names it */
int log_copy_bytes(struct log_copy *l, const char *bytes, size_t n, struct co_error *err);

/* Lines as they are written, each after n_prefix bytes, which are written but not examined; the
 * last one may continue in the next call.
 *
 * continued   the first one continues from the last call, and has no prefix
 * returns     as above */
int log_copy_lines(struct log_copy *l, const char *text, size_t n, size_t n_prefix, bool continued,
                   struct co_error *err);

#endif
