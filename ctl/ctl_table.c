#include "ctl_table.h"

#include "ctl/check/check_options.h"

#include <limits.h>
#include <stddef.h>

const struct co_option ctl_table[] = {
    {CTL_OPTION_HELP, 'h', "help", .subject = "Options", .help = "Print this text."},
    {CTL_OPTION_VERSION, 'V', "version", .help = "Print the version."},
    {0},
};

#define ROW_JSON                                                                                   \
    {                                                                                              \
        CTL_JOB_OPTION_JSON, 'j', "json", .help = "Print JSON, an object on a line."               \
    }
#define ROW_WATCH                                                                                  \
    {                                                                                              \
        CTL_JOB_OPTION_WATCH, 'w', "watch", "TIME",                                                \
            .optional = true,                                                                      \
            .help = "Print it again each TIME, or each second, until the job is over."             \
    }
#define ROW_TIMEOUT                                                                                \
    {                                                                                              \
        CTL_JOB_OPTION_TIMEOUT, 't', "timeout", "TIME",                                            \
            .help = "Wait so long for an answer: 90, 1.5s, 250ms. Default: 5s."                    \
    }
#define ROW_HELP                                                                                   \
    {                                                                                              \
        CTL_JOB_OPTION_HELP, 'h', "help", .help = "Print this text."                               \
    }

static const struct co_option ps_table[] = {
    {CTL_JOB_OPTION_ALL_USERS, 'a', "all-users",
     .help = "Of all users, each with its owner. Others than root see their own only."},
    ROW_JSON,
    ROW_WATCH,
    ROW_TIMEOUT,
    ROW_HELP,
    {0},
};

static const struct co_option status_table[] = {
    {CTL_JOB_OPTION_START, 's', "start",
     .help = "How the start went: when each rank was executed and had joined the others."},
    ROW_JSON,
    ROW_WATCH,
    ROW_TIMEOUT,
    ROW_HELP,
    {0},
};

static const struct co_option top_table[] = {
    {CTL_JOB_OPTION_WATCH, 'd', "delay", "TIME",
     .help = "Draw it again each TIME: 90, 1.5s, 250ms. Default: 1s."},
    {CTL_JOB_OPTION_ONCE, 0, "once", .help = "Print it once, also to what is no terminal."},
    {CTL_JOB_OPTION_ORDER, 'o', "order", "ORDER",
     .help = "rank, cpu, memory, or own: a rank's own time for a step. The keys r, c, m and o "
             "change it, q ends."},
    ROW_TIMEOUT,
    ROW_HELP,
    {0},
};

static const struct co_option logs_table[] = {
    {CTL_JOB_OPTION_FOLLOW, 'f', "follow", .help = "Go on until the job is over."},
    ROW_JSON,
    ROW_TIMEOUT,
    ROW_HELP,
    {0},
};

static const struct co_option stack_table[] = {
    {CTL_JOB_OPTION_SIGNAL, 's', "signal", "SIGNAL",
     .help = "Send it to those that have a handler for it, and take what they write to stderr: the "
             "one that a Python script gave to faulthandler.register()."},
    {CTL_JOB_OPTION_NO_TOOLS, 'n', "no-tools",
     .help = "Run neither py-spy nor gdb, which stop the ranks for a moment."},
    ROW_JSON,
    {CTL_JOB_OPTION_TIMEOUT, 't', "timeout", "TIME", .help = "Wait so long for it. Default: 90s."},
    ROW_HELP,
    {0},
};

static const struct co_option stop_table[] = {
    {CTL_JOB_OPTION_SIGNAL, 's', "signal", "SIGNAL",
     .help = "As if ddprun had received this one: TERM, INT, HUP, QUIT, or one of its "
             "--signals-to-handle. Default: TERM."},
    {CTL_JOB_OPTION_NODE, 'n', "node",
     .help = "Only this node leaves; others of the job go on as --nnodes allows."},
    ROW_JSON,
    ROW_TIMEOUT,
    ROW_HELP,
    {0},
};

static const struct co_option report_table[] = {
    {CTL_JOB_OPTION_OUTPUT, 'o', "output", "FILE",
     .help = "Write the page there, not to standard output."},
    {CTL_JOB_OPTION_RUN_ID, 'r', "run-id", "ID",
     .help = "Of a file with events of several jobs: the run id of the one. Default: the first."},
    ROW_TIMEOUT,
    ROW_HELP,
    {0},
};

static const struct co_option restart_table[] = {ROW_JSON, ROW_TIMEOUT, ROW_HELP, {0}};

const struct co_option ctl_store_table[] = {
    {CTL_STORE_OPTION_ENDPOINT, 'e', "endpoint", "HOST[:PORT]", .subject = "Options",
     .help = "Where the store is; the port is 29400 if none is given. Default: MASTER_ADDR and "
             "MASTER_PORT of the environment, else 127.0.0.1:29400."},
    {CTL_STORE_OPTION_TIMEOUT, 't', "timeout", "TIME",
     .help = "Give up after TIME: 90, 1.5s, 250ms, 10m. Default: 10s, for wait 5m."},
    {CTL_STORE_OPTION_RAW, 'r', "raw",
     .help = "KEY is what is on the wire. Without it a '/' is put in front, as torch does."},
    {CTL_STORE_OPTION_PREFIX, 'p', "prefix",
     .help = "delete: KEY is the beginning of the keys that go; how many is printed."},
    {CTL_STORE_OPTION_FULL, 'f', "full",
     .help = "dump: show values of any length; without it their first 200 bytes."},
    {CTL_STORE_OPTION_HELP, 'h', "help", .help = "Print this text."},
    {0},
};

const struct ctl_form ctl_store_forms[CTL_STORE_N_ACTIONS] = {
    [CTL_STORE_GET] = {"get", "KEY", "Print the value.", 1, 1},
    [CTL_STORE_SET] = {"set", "KEY VALUE", "Store VALUE; - is what comes on stdin.", 2, 2},
    [CTL_STORE_ADD] = {"add", "KEY [N]", "Add N, or 1, to a counter, and print the sum.", 1, 2},
    [CTL_STORE_WAIT] = {"wait", "KEY...", "Wait until all of them are there.", 1, INT_MAX},
    [CTL_STORE_DELETE] = {"delete", "KEY...", "Delete them.", 1, INT_MAX},
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
        COMMAND("status", "[JOB]", "What a job does, and each of its ranks.", status_table),
    [CTL_TOP] = COMMAND("top", "[JOB]", "Watch jobs and their ranks.", top_table),
    [CTL_LOGS] =
        COMMAND("logs", "RANK [JOB]", "What a rank wrote to its standard error.", logs_table),
    [CTL_STACK] = COMMAND("stack", "RANK|all [JOB]", "Where ranks are: their stacks.", stack_table),
    [CTL_STOP] = COMMAND("stop", "[JOB]", "Stop a job.", stop_table),
    [CTL_RESTART] = COMMAND("restart", "[JOB]", "Start all ranks of a job again.", restart_table),
    [CTL_REPORT] = COMMAND("report", "JOB|FILE", "A page about a job, from what --events wrote.",
                           report_table),
    [CTL_CHECK] = COMMAND("check", "", CHECK_OPTIONS_HELP, check_options_table),
    [CTL_STORE] = {"store", NULL, "Look at the keys of a TCPStore, and change them.",
                   ctl_store_table, ctl_store_forms, CTL_STORE_N_ACTIONS},
};
