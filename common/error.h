/* error.h - what went wrong, for a human, in addition to a negative errno for the program.
 *
 * A function that can fail takes `struct co_error *err` as its last argument, NULL allowed, and
 * returns 0 or -errno. The innermost failure writes the text; callers put in front what only they
 * know: "hosts.txt:7: slots 'eight' is not a number". */
#ifndef DDP_COMMON_ERROR_H
#define DDP_COMMON_ERROR_H

#define CO_ERROR_TEXT_BYTES 1024 /* longer texts are cut */

struct co_error {
    int code; /* the negative errno */
    char text[CO_ERROR_TEXT_BYTES];
};

/* What a line on stderr reports: "PROGRAM: error: TEXT". */
enum co_severity {
    CO_ERROR,   /* the program, or what was asked of it, fails */
    CO_WARNING, /* it continues without something */
    CO_NOTE,    /* information */
};

/* "error", "warning" or "note" */
const char *co_severity_name(enum co_severity severity);

/* Fill err (if not NULL) and return code, which is negative. */
__attribute__((format(printf, 3, 4))) int co_fail(struct co_error *err, int code,
                                                  const char *format, ...);

/* Put "WHERE: " in front of err's text and return its code (-EIO if err is NULL or empty). */
__attribute__((format(printf, 2, 3))) int co_fail_in(struct co_error *err, const char *format, ...);

#endif
