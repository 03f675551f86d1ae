/* ctl_store_cli.h - the words of `ddpctl store`.
 *
 * Pure: words in, a task out. */
#ifndef DDP_CTL_CTL_STORE_CLI_H
#define DDP_CTL_CTL_STORE_CLI_H

#include "ctl_table.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct co_error;

enum { CTL_HOST_BYTES = 256 };

/* The variables of the environment that are used; NULL: not set. */
struct ctl_store_env {
    const char *master_addr, *master_port;
};

struct ctl_store_task {
    bool is_help; /* print that, and nothing else */
    enum ctl_store_action action;
    char host[CTL_HOST_BYTES];
    uint16_t port;
    uint64_t timeout_ms;
    bool raw;          /* keys are sent as they are; else with a '/' in front */
    bool is_prefix;    /* of DELETE: the key is the beginning of keys */
    bool is_full;      /* of DUMP */
    char *const *keys; /* part of argv; DUMP: the prefix, if there is one */
    int n_keys;
    const char *value; /* of SET: part of argv; NULL: stdin has it */
    int64_t delta;     /* of ADD */
};

/* argv[0] is "store".
 *
 * returns   0, -EINVAL: wrong usage */
int ctl_store_cli_parse(int argc, char **argv, const struct ctl_store_env *env,
                        struct ctl_store_task *ret_task, struct co_error *err);

void ctl_store_cli_print_help(FILE *out);

#endif
