/* log_files.h - the job's log directory: DIR/RUN_ID_XXXXXX/attempt_GENERATION/LOCAL_RANK/ with
 * stdout.log, stderr.log and error.json in it, as torchrun lays it out. Earlier generations' files
 * stay. */
#ifndef DDP_LAUNCHER_STDIO_LOG_FILES_H
#define DDP_LAUNCHER_STDIO_LOG_FILES_H

#include <stddef.h>
#include <stdint.h>

struct co_error;

/* Make the job's folder.
 *
 * dir       made if it is missing; NULL: a new folder torchelastic_XXXXXX in $TMPDIR or /tmp
 * run_id    a '/' in it becomes '_'
 * ret_dir   the job's folder, an absolute path, owned by the caller
 * returns   0, -ENOMEM, -ENAMETOOLONG, -errno */
int log_files_make(const char *dir, const char *run_id, char **ret_dir, struct co_error *err);

/* Make the folder of a rank in a generation. returns 0, -errno */
int log_files_make_rank(const char *dir, uint32_t generation, int local_rank, struct co_error *err);

/* The path of a rank's file, into buf. returns buf */
char *log_files_path(const char *dir, uint32_t generation, int local_rank, const char *name,
                     char *buf, size_t n);

/* Open a file to append to, made with mode 0666 less the umask.
 *
 * local_rank   -1: the generation's own folder
 * returns      a descriptor, or -errno */
int log_files_open(const char *dir, uint32_t generation, int local_rank, const char *name,
                   struct co_error *err);

#endif
