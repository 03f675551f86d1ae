/* error_file.h - the file in which a rank writes down its uncaught exception, as torch's @record
 * does:
 *
 *     {"message": {"message": "RuntimeError: ...", "extraInfo": {"py_callstack": "...",
 *      "timestamp": "1795197468"}}}
 *
 * or with a plain string as "message". A rank may write anything there, so sizes are bounded and a
 * malformed file is an error to be mentioned, never a failure of ours. */
#ifndef DDP_LAUNCHER_DIAGNOSIS_ERROR_FILE_H
#define DDP_LAUNCHER_DIAGNOSIS_ERROR_FILE_H

#include <stddef.h>
#include <stdint.h>

struct co_error;

#define ERROR_FILE_MAX_BYTES   (1024 * 1024)
#define ERROR_FILE_MAX_MESSAGE 4096 /* bytes of the message that are used; longer ones are cut */

/* The message in the file's bytes.
 *
 * ret_message   a string to free()
 * returns       0, -EPROTO (not JSON, or no such message; the text has the reason), -ENOMEM */
int error_file_parse(const char *bytes, size_t n, char **ret_message, struct co_error *err);

/* The same of a file, and the bytes too.
 *
 * ret_text   the whole content, to free(); handed to error_file_write(). Set with ret_message only
 * returns    as above, and -ENOENT (also for an empty file), -EFBIG, -errno */
int error_file_read(const char *path, char **ret_message, char **ret_text, struct co_error *err);

/* Write the root cause to our own error file, replacing an old one: the rank's file with the exit
 * status added as torchrun adds it, or `message` where the rank wrote none.
 *
 * text        of error_file_read(), or NULL
 * exit_code   the rank's exit status, or minus its signal
 * now_s       seconds since 1970
 * returns     0, -EPROTO, -ENOMEM, -errno */
int error_file_write(const char *path, const char *text, const char *message, int exit_code,
                     int64_t now_s, struct co_error *err);

#endif
