/* check_options.h - the options of `ddpctl check`.
 *
 * Pure: words in, a task out. */
#ifndef DDP_CTL_CHECK_CHECK_OPTIONS_H
#define DDP_CTL_CHECK_CHECK_OPTIONS_H

#include "common/options.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct co_error;

#define CHECK_OPTIONS_HELP "Check whether nodes are fit for a job."

enum check_option {
    CHECK_OPTION_HOSTS = 1,
    CHECK_OPTION_HOSTFILE,
    CHECK_OPTION_SSH_COMMAND,
    CHECK_OPTION_INTERFACE,
    CHECK_OPTION_NET,
    CHECK_OPTION_JSON,
    CHECK_OPTION_TIMEOUT,
    CHECK_OPTION_HELP,
};

extern const struct co_option check_options_table[];

struct check_task {
    bool is_help;                                           /* print that, and nothing else */
    const char *hosts, *hostfile, *ssh_command, *interface; /* part of argv; NULL: not given */
    bool net, json;
    uint64_t timeout_ms; /* > 0 */
};

/* argv[0] is "check".
 *
 * returns   0, -EINVAL: wrong usage */
int check_options_parse(int argc, char **argv, struct check_task *ret_task, struct co_error *err);

void check_options_print_help(FILE *out);

#endif
