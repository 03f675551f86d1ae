/* perf_cli.h - ddp-perf's command line. Pure: words in, a perf_spec out. */
#ifndef DDP_PERF_PERF_CLI_H
#define DDP_PERF_PERF_CLI_H

#include "common/options.h"
#include "perf_spec.h"

#include <stdio.h>

struct co_error;

enum perf_option {
    PERF_OPTION_MIN_BYTES = 1,
    PERF_OPTION_MAX_BYTES,
    PERF_OPTION_STEP_FACTOR,
    PERF_OPTION_STEP_BYTES,
    PERF_OPTION_DATATYPE,
    PERF_OPTION_OP,
    PERF_OPTION_ROOT,
    PERF_OPTION_BUFFER,
    PERF_OPTION_ITERATIONS,
    PERF_OPTION_WARMUPS,
    PERF_OPTION_CHECK,
    PERF_OPTION_REWRITE,
    PERF_OPTION_RANKS,
    PERF_OPTION_JSON,
    PERF_OPTION_TUNE,
    PERF_OPTION_HELP,
    PERF_OPTION_VERSION,
};

extern const struct co_option perf_cli_table[];

enum perf_wish {
    PERF_RUN,
    PERF_HELP,       /* --help */
    PERF_HELP_BRIEF, /* -h */
    PERF_VERSION,
};

/* launched   a launcher has started the ranks: RANK, or a similar variable, is set
 * returns    0; *ret_spec is written with PERF_RUN only. -EINVAL: wrong usage */
int perf_cli_parse(int argc, char **argv, bool launched, enum perf_wish *ret_wish,
                   struct perf_spec *ret_spec, struct co_error *err);

/* is_brief   as for -h, the common options */
void perf_cli_print_help(bool is_brief, FILE *out);

/* "float32", "sum": as the options take them, and as they are printed. */
const char *perf_cli_dtype_name(enum ddp_dtype dtype);
const char *perf_cli_op_name(enum ddp_op op);
const char *perf_cli_buffer_name(enum perf_buffer buffer);

#endif
