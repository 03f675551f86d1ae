/* ctl_job_cli.h - the words of the commands that ask a job: ps, status, top, logs, stack,
 * stop, restart, report.
 *
 * Pure: words in, a task out. */
#ifndef DDP_CTL_CTL_JOB_CLI_H
#define DDP_CTL_CTL_JOB_CLI_H

#include "ctl/top/top_frame.h"
#include "ctl_table.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct co_error;

struct ctl_job_task {
    enum ctl_command command;
    bool is_help;         /* print that, and nothing else */
    const char *job;      /* part of argv; NULL: the only one; REPORT: or a file */
    const char *output;   /* REPORT: part of argv; NULL: stdout */
    const char *run_id;   /* REPORT: part of argv; NULL: the first in the file */
    int32_t rank;         /* LOGS, STACK; -1: all, of STACK */
    bool json, follow;    /* follow: LOGS */
    bool all_users;       /* PS */
    bool start;           /* STATUS */
    bool once;            /* TOP */
    enum top_order order; /* TOP */
    uint64_t watch_ms;    /* 0: once; TOP: never 0 */
    uint64_t timeout_ms;  /* for an answer */
    int signal;           /* STOP, STACK; 0: none, of STACK */
    bool this_node;       /* STOP */
    bool no_tools;        /* STACK */
};

/* argv[0] is the command.
 *
 * returns   0, -EINVAL: wrong usage */
int ctl_job_cli_parse(int argc, char **argv, struct ctl_job_task *ret_task, struct co_error *err);

void ctl_job_cli_print_help(enum ctl_command command, FILE *out);

/* "TERM", "SIGTERM", "15". returns the number; 0: unknown */
int ctl_job_cli_signal(const char *word);

#endif
