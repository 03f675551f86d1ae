/* job_print.h - a job's status for human eyes.
 *
 * Pure: what ddprun answered in, lines out. What is missing in an answer, or of another type, is
 * shown as '-'. */
#ifndef DDP_CTL_JOB_JOB_PRINT_H
#define DDP_CTL_JOB_JOB_PRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum { JOB_TEXT_BYTES = 32 };

struct job_print_row {
    const json_t *status;  /* all lent; NULL: it does not answer, and the rest is shown */
    const char *directory; /* NULL: not known */
    int pid;               /* 0: not known */
    uid_t uid;             /* -1: not known */
};

/* A line for each.
 *
 * has_users   with the owner's user ID
 * width     of the terminal, 0: lines are as long as they are
 * returns   0, -ENOMEM */
int job_print_list(const struct job_print_row *rows, size_t n, bool has_users, int width,
                   FILE *out);

/* One node: what it does, and a line for each of its ranks. */
int job_print_status(const json_t *status, int width, FILE *out);

/* How its start went: when each rank was executed and had joined the others, since the generation's
 * start, and which rank was the slowest. */
int job_print_start(const json_t *status, int width, FILE *out);

/* "512 B", "1.2 GiB". returns buf */
char *job_print_size(int64_t bytes, char buf[JOB_TEXT_BYTES]);

#endif
