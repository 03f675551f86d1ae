/* check_options.h - the words of `ddpctl check`.
 *
 * Pure: words in, a task out. */
#ifndef DDP_CTL_CHECK_CHECK_OPTIONS_H
#define DDP_CTL_CHECK_CHECK_OPTIONS_H

#include "ctl/ctl_table.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct co_error;

struct ctl_check_task {
    bool is_help;                                           /* print that, and nothing else */
    const char *hosts, *hostfile, *ssh_command, *interface; /* part of argv; NULL: not said */
    bool net, json;
    uint64_t timeout_ms; /* > 0 */
};

/* argv[0] is "check".
 *
 * returns   0, -EINVAL: wrong usage */
int check_options_parse(int argc, char **argv, struct ctl_check_task *ret_task,
                        struct co_error *err);

void check_options_print_help(FILE *out);

#endif
