/* ctl.h - what ddpctl's commands share. Each has its words in ctl_NAME_cli, its work in
 * ctl_NAME; those that ask a job are together in ctl_job. */
#ifndef DDP_CTL_BASE_CTL_H
#define DDP_CTL_BASE_CTL_H

#include "common/error.h"

enum ctl_exit {
    CTL_EXIT_OK = 0,
    CTL_EXIT_NO = 1, /* it was asked for something that is not there */
    CTL_EXIT_USAGE = 2,
    CTL_EXIT_UNAVAILABLE = 69, /* who was to be asked is not there, or does not answer */
    CTL_EXIT_INTERNAL = 70,
    CTL_EXIT_IO = 74, /* stdin or stdout */
};

/* Write "ddpctl: SEVERITY: TEXT" to stderr, as table_plain() leaves it: it may have the name of
 * another user's job. */
__attribute__((format(printf, 2, 3))) void ctl_tell(enum co_severity severity, const char *format,
                                                    ...);

/* Report an error, and return `code`. */
enum ctl_exit ctl_fail(enum ctl_exit code, const struct co_error *err);

/* Is all that was printed really written? returns `code`, or CTL_EXIT_IO with a line about it */
enum ctl_exit ctl_flush(enum ctl_exit code);

#endif
