/* cli_table.h - the names of ddprun's options. What they mean: cli.c, cli_nodes.c,
 * cli_meet.c, cli_output.c, cli_end.c. */
#ifndef DDP_LAUNCHER_CLI_TABLE_H
#define DDP_LAUNCHER_CLI_TABLE_H

#include "common/options.h"

enum cli_option {
    /* ranks */
    OPTION_NP = 1,
    OPTION_NPROC_PER_NODE,
    OPTION_NNODES,
    OPTION_NODE_RANK,
    OPTION_STANDALONE,
    OPTION_VIRTUAL_LOCAL_RANK,
    OPTION_NUMA_BINDING,
    /* program */
    OPTION_MODULE,
    OPTION_NO_PYTHON,
    OPTION_RUN_PATH,
    OPTION_LOCAL_RANK_ARG,
    OPTION_USE_ENV,
    OPTION_START_METHOD,
    OPTION_OMP,
    /* meeting */
    OPTION_RDZV_BACKEND,
    OPTION_RDZV_ENDPOINT,
    OPTION_RDZV_ID,
    OPTION_RDZV_CONF,
    OPTION_ROLE,
    OPTION_MASTER_ADDR,
    OPTION_MASTER_PORT,
    OPTION_LOCAL_ADDR,
    OPTION_START_TIMEOUT,
    OPTION_JOIN_WINDOW,
    OPTION_REJOIN_TIMEOUT,
    OPTION_DAEMON_TIMEOUT,
    OPTION_SCALE_AT,
    OPTION_SCALE_TIMEOUT,
    OPTION_TOKEN_FILE,
    OPTION_REQUIRE_TOKEN,
    OPTION_STORE,
    OPTION_STORE_ALLOW,
    /* restarts */
    OPTION_MAX_RESTARTS,
    OPTION_RESTART_AFTER_PROGRESS,
    OPTION_NO_RESTART_ON,
    OPTION_MONITOR_INTERVAL,
    /* the end */
    OPTION_TIMEOUT,
    OPTION_SHUTDOWN_TIMEOUT,
    OPTION_SIGNALS_TO_HANDLE,
    OPTION_SIGNAL_SCOPE,
    /* input and output */
    OPTION_TEE,
    OPTION_REDIRECTS,
    OPTION_LOG_DIR,
    OPTION_LOCAL_RANKS_FILTER,
    OPTION_STDOUT_FILTERS,
    OPTION_STDERR_FILTERS,
    OPTION_LABEL,
    OPTION_STDIN,
    OPTION_LOGS_SPECS,
    /* seeing */
    OPTION_EVENTS,
    OPTION_REPORT,
    OPTION_EVENT_LOG_HANDLER,
    OPTION_DRY_RUN,
    OPTION_VERBOSE,
    OPTION_HELP,
    OPTION_VERSION,
    N_CLI_OPTIONS
};

/* Options that torchrun has not are weak: they make none of its prefixes ambiguous. */
extern const struct co_option cli_table[];

#endif
