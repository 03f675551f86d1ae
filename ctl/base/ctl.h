/* ctl.h - what ddpctl's commands share. Each has its words in ctl_NAME_cli, its work in
 * ctl_NAME; those that ask a job are together in ctl_job. */
#ifndef DDP_CTL_BASE_CTL_H
#define DDP_CTL_BASE_CTL_H

#include "common/error.h"

enum ctl_exit {
    CTL_EXIT_OK = 0,
    CTL_EXIT_NO = 1, /* the requested thing does not exist */
    CTL_EXIT_USAGE = 2,
    CTL_EXIT_UNAVAILABLE = 69, /* the job or store to ask does not exist, or does not answer */
    CTL_EXIT_INTERNAL = 70,
    CTL_EXIT_IO = 74, /* stdin or stdout */
};

/* Write "ddpctl: SEVERITY: TEXT" to stderr, as table_plain() leaves it: it may have the name of
 * another user's job. */
__attribute__((format(printf, 2, 3))) void ctl_tell(enum co_severity severity, const char *format,
                                                    ...);

/* Report an error, and return `code`. */
enum ctl_exit ctl_fail(enum ctl_exit code, const struct co_error *err);

/* Flush stdout. returns `code`, or CTL_EXIT_IO with a message if a write failed */
enum ctl_exit ctl_flush(enum ctl_exit code);

#endif
