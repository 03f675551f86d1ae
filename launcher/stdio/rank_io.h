/* rank_io.h - what a rank has as stdin, stdout and stderr: ours, a pipe, a pty, a log file. */
#ifndef DDP_LAUNCHER_STDIO_RANK_IO_H
#define DDP_LAUNCHER_STDIO_RANK_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct job_spec;
struct output;

struct rank_io {
    const struct job_spec *spec;   /* borrowed */
    struct output *output;         /* borrowed */
    int null_fd;                   /* borrowed */
    char *log_dir;                 /* owned; the job's directory; NULL: none */
    bool on_terminal;              /* stdout and stderr are terminals */
    char hostname[256], host[256]; /* all of it, and up to its first dot */
    uint32_t generation;           /* of the ranks started last: the caller counts it up */
    int first_rank;                /* of this node in it: the caller sets it */
};

/* Look at our descriptors; make the log directory, if one is asked for, and print where it is if
 * the user did not choose it. A zeroed one may be closed.
 *
 * returns   0, -errno: no log directory */
int rank_io_open(struct rank_io *io, const struct job_spec *spec, struct output *output,
                 int null_fd, struct co_error *err);
void rank_io_close(struct rank_io *io);

struct rank_fds {
    int fds[3];   /* what shall be the rank's 0, 1 and 2 */
    int owned[2]; /* those of them to close when the rank has them; -1: none */
    int ours[2];  /* rank_io_adopt(): our ends of its 1 and 2, until output has them; -1: none */
};

/* Make a rank's descriptors, and have output read our ends.
 *
 * returns   0, -errno; rank_fds_close() in any case */
int rank_io_make(const struct rank_io *io, int local_rank, int rank, struct rank_fds *ret,
                 struct co_error *err);
void rank_fds_close(struct rank_fds *fds);

/* Have output read what a process writes that has its pipes already, and is this rank from now on:
 * all of it goes where the rank's own would.
 *
 * ends      ours, of its standard output and error; owned from here on, even on failure
 * returns   0, -errno */
int rank_io_adopt(const struct rank_io *io, int local_rank, int rank, const int ends[2],
                  struct co_error *err);

/* Where the rank may describe its error: in the log directory, else in the runtime directory.
 * returns buf */
char *rank_io_error_file(const struct rank_io *io, const char *runtime_dir, int local_rank,
                         char *buf, size_t n);

/* The last lines of the rank's stderr, wherever it went; to free(). NULL: none */
char *rank_io_tail(const struct rank_io *io, int local_rank);

/* The last TAIL_BYTES of it as they are, of a rank that may have ended just now; to free().
 *
 * ret_n        how many
 * ret_age_ms   how long ago they were written; may be NULL
 * returns      NULL: none */
char *rank_io_last_words(const struct rank_io *io, int local_rank, size_t *ret_n,
                         uint64_t *ret_age_ms);

/* Does what the rank writes to stderr go to its log file without us? */
bool rank_io_bypasses(const struct rank_io *io, int local_rank);

/* Can some more bytes be written to the rank's directory in the log directory? A rank that writes
 * to its files by itself cannot report that they are cut.
 *
 * returns   0, also without such a directory; -errno: it does not */
int rank_io_check_room(const struct rank_io *io, int local_rank, struct co_error *err);

/* The log file of the rank's stdout (0) or stderr (1), into buf. returns buf; NULL: it has none */
char *rank_io_log_path(const struct rank_io *io, int local_rank, int which, char *buf, size_t n);

#endif
