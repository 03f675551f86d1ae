#include "ctl_table.h"

#include "ctl/check/check_options.h"

#include <limits.h>
#include <stddef.h>

const struct co_option ctl_table[] = {
    {CTL_OPTION_HELP, 'h', "help", .subject = "Options",
     .help = "-h: print the commands. --help: print the commands and all of their options."},
    {CTL_OPTION_VERSION, 'V', "version", .help = "Print the version."},
    {0},
};

#define ROW_JSON                                                                                   \
    {                                                                                              \
        CTL_JOB_OPTION_JSON, 'j', "json", .help = "Print JSON, one object on a line."              \
    }
#define ROW_WATCH                                                                                  \
    {                                                                                              \
        CTL_JOB_OPTION_WATCH, 'w', "watch", "TIME",                                                \
            .optional = true,                                                                      \
            .help = "Print again after each TIME until the job ends. Default of TIME: 1s."         \
    }
#define ROW_TIMEOUT                                                                                \
    {                                                                                              \
        CTL_JOB_OPTION_TIMEOUT, 't', "timeout", "TIME",                                            \
            .help = "Wait at most TIME for an answer: 90, 1.5s, 250ms. Default: 5s."               \
    }
#define ROW_HELP                                                                                   \
    {                                                                                              \
        CTL_JOB_OPTION_HELP, 'h', "help", .help = "Print this text."                               \
    }

static const struct co_option ps_table[] = {
    {CTL_JOB_OPTION_ALL_USERS, 'a', "all-users",
     .help = "List the jobs of all users, with their owners. Only root sees those of others."},
    ROW_JSON,
    ROW_WATCH,
    ROW_TIMEOUT,
    ROW_HELP,
    {0},
};

static const struct co_option status_table[] = {
    {CTL_JOB_OPTION_START, 's', "start",
     .help = "Show the start of the generation: when each rank was executed, and when it joined "
             "its peers."},
    ROW_JSON,
    ROW_WATCH,
    ROW_TIMEOUT,
    ROW_HELP,
    {0},
};

static const struct co_option top_table[] = {
    {CTL_JOB_OPTION_WATCH, 'd', "delay", "TIME",
     .help = "Time between updates: 90, 1.5s, 250ms. Default: 1s."},
    {CTL_JOB_OPTION_ONCE, 0, "once", .help = "Print once and exit; needs no terminal."},
    {CTL_JOB_OPTION_ORDER, 'o', "order", "rank|cpu|memory|own",
     .help = "Order of the ranks. own: a rank's own time per step. The keys r, c, m and o change "
             "it, q quits."},
    ROW_TIMEOUT,
    ROW_HELP,
    {0},
};

static const struct co_option logs_table[] = {
    {CTL_JOB_OPTION_FOLLOW, 'f', "follow", .help = "Print new output until the job ends."},
    ROW_JSON,
    ROW_TIMEOUT,
    ROW_HELP,
    {0},
};

static const struct co_option stack_table[] = {
    {CTL_JOB_OPTION_SIGNAL, 's', "signal", "SIGNAL",
     .help = "Send SIGNAL to the ranks that handle it, and print what they write to stderr, as a "
             "handler of Python's faulthandler.register() does."},
    {CTL_JOB_OPTION_NO_TOOLS, 'n', "no-tools",
     .help = "Run neither py-spy nor gdb, which stop the ranks for a moment."},
    ROW_JSON,
    {CTL_JOB_OPTION_TIMEOUT, 't', "timeout", "TIME",
     .help = "Wait at most TIME for an answer. Default: 90s."},
    ROW_HELP,
    {0},
};

static const struct co_option stop_table[] = {
    {CTL_JOB_OPTION_SIGNAL, 's', "signal", "SIGNAL",
     .help = "Stop the job as this signal to ddprun does: TERM, INT, HUP, QUIT, or one of "
             "--signals-to-handle. Default: TERM."},
    {CTL_JOB_OPTION_NODE, 'n', "node",
     .help = "Only make this node leave; the other nodes continue as --nnodes allows."},
    ROW_JSON,
    ROW_TIMEOUT,
    ROW_HELP,
    {0},
};

static const struct co_option report_table[] = {
    {CTL_JOB_OPTION_OUTPUT, 'o', "output", "FILE",
     .help = "Write the page to FILE instead of standard output."},
    {CTL_JOB_OPTION_RUN_ID, 'r', "run-id", "ID",
     .help = "Select a job by its run ID, if the file has events of several. Default: the first."},
    ROW_TIMEOUT,
    ROW_HELP,
    {0},
};

static const struct co_option restart_table[] = {ROW_JSON, ROW_TIMEOUT, ROW_HELP, {0}};

const struct co_option ctl_store_table[] = {
    {CTL_STORE_OPTION_ENDPOINT, 'e', "endpoint", "HOST[:PORT]",
     .help = "Address of the store. Default port: 29400. Default: MASTER_ADDR and MASTER_PORT of "
             "the environment, else 127.0.0.1:29400."},
    {CTL_STORE_OPTION_TIMEOUT, 't', "timeout", "TIME",
     .help = "Give up after TIME: 90, 1.5s, 250ms, 10m. Default: 10s; for wait: 5m."},
    {CTL_STORE_OPTION_RAW, 'r', "raw",
     .help = "KEY is the key in the protocol. Otherwise '/' is put before it, as torch does."},
    {CTL_STORE_OPTION_PREFIX, 'p', "prefix",
     .help = "delete: delete all keys that begin with KEY, and print how many."},
    {CTL_STORE_OPTION_FULL, 'f', "full",
     .help = "dump: print whole values, not only their first 200 bytes."},
    {CTL_STORE_OPTION_HELP, 'h', "help", .help = "Print this text."},
    {0},
};

const struct ctl_form ctl_store_forms[CTL_STORE_N_ACTIONS] = {
    [CTL_STORE_GET] = {"get", "KEY", "Print the value.", 1, 1},
    [CTL_STORE_SET] = {"set", "KEY VALUE", "Store VALUE; - reads it from stdin.", 2, 2},
    [CTL_STORE_ADD] = {"add", "KEY [N]", "Add N (default: 1) to a counter, print the sum.", 1, 2},
    [CTL_STORE_WAIT] = {"wait", "KEY...", "Wait until all keys exist.", 1, INT_MAX},
    [CTL_STORE_DELETE] = {"delete", "KEY...", "Delete keys.", 1, INT_MAX},
    [CTL_STORE_DUMP] = {"dump", "[PREFIX]", "Print all keys, or some, with their values.", 0, 1},
};

/* A command without actions. */
#define COMMAND(its_name, its_operands, its_help, its_table)                                       \
    {                                                                                              \
        .name = its_name, .operands = its_operands, .help = its_help, .table = its_table           \
    }

const struct ctl_command_form ctl_commands[CTL_N_COMMANDS] = {
    [CTL_PS] = COMMAND("ps", "", "List your jobs on this machine.", ps_table),
    [CTL_STATUS] =
        COMMAND("status", "[JOB]", "Show the state of a job and its ranks.", status_table),
    [CTL_TOP] = COMMAND("top", "[JOB]", "Watch jobs and their ranks on the terminal.", top_table),
    [CTL_LOGS] =
        COMMAND("logs", "RANK [JOB]", "Print the last stderr output of a rank.", logs_table),
    [CTL_STACK] = COMMAND("stack", "RANK|all [JOB]", "Print the stacks of ranks.", stack_table),
    [CTL_STOP] = COMMAND("stop", "[JOB]", "Stop a job.", stop_table),
    [CTL_RESTART] = COMMAND("restart", "[JOB]", "Restart all ranks of a job.", restart_table),
    [CTL_REPORT] = COMMAND("report", "JOB|FILE", "Write an HTML report from the events of a job.",
                           report_table),
    [CTL_CHECK] = COMMAND("check", "", CHECK_OPTIONS_HELP, check_options_table),
    [CTL_STORE] = {"store", NULL, "Inspect and change the keys of a TCPStore.", ctl_store_table,
                   ctl_store_forms, CTL_STORE_N_ACTIONS},
};
