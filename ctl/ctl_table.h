/* ctl_table.h - the names of ddpctl's commands, actions and options, for its parsers and for
 * completion. */
#ifndef DDP_CTL_CTL_TABLE_H
#define DDP_CTL_CTL_TABLE_H

#include "common/options.h"

enum ctl_option {
    CTL_OPTION_HELP = 1,
    CTL_OPTION_VERSION,
};

enum ctl_store_option {
    CTL_STORE_OPTION_ENDPOINT = 1,
    CTL_STORE_OPTION_TIMEOUT,
    CTL_STORE_OPTION_RAW,
    CTL_STORE_OPTION_PREFIX,
    CTL_STORE_OPTION_FULL,
    CTL_STORE_OPTION_HELP,
};

/* Of the commands that ask a job: each has some of them. */
enum ctl_job_option {
    CTL_JOB_OPTION_JSON = 1,
    CTL_JOB_OPTION_ALL_USERS,
    CTL_JOB_OPTION_WATCH,
    CTL_JOB_OPTION_START,
    CTL_JOB_OPTION_FOLLOW,
    CTL_JOB_OPTION_SIGNAL,
    CTL_JOB_OPTION_NODE,
    CTL_JOB_OPTION_NO_TOOLS,
    CTL_JOB_OPTION_ONCE,
    CTL_JOB_OPTION_ORDER,
    CTL_JOB_OPTION_OUTPUT,
    CTL_JOB_OPTION_RUN_ID,
    CTL_JOB_OPTION_TIMEOUT,
    CTL_JOB_OPTION_HELP,
};

extern const struct co_option ctl_table[];       /* before the command */
extern const struct co_option ctl_store_table[]; /* of `ddpctl store` */

enum ctl_store_action {
    CTL_STORE_GET,
    CTL_STORE_SET,
    CTL_STORE_ADD,
    CTL_STORE_WAIT,
    CTL_STORE_DELETE,
    CTL_STORE_DUMP,
    CTL_STORE_N_ACTIONS,
};

/* What follows a command's name, or the name of an action. */
struct ctl_form {
    const char *name;
    const char *operands; /* for the help */
    const char *help;     /* a sentence */
    int n_least, n_most;  /* operands */
};

extern const struct ctl_form ctl_store_forms[CTL_STORE_N_ACTIONS];

enum ctl_command {
    CTL_PS,
    CTL_STATUS,
    CTL_TOP,
    CTL_LOGS,
    CTL_STACK,
    CTL_STOP,
    CTL_RESTART,
    CTL_REPORT,
    CTL_CHECK,
    CTL_STORE,
    CTL_N_COMMANDS,
};

struct ctl_command_form {
    const char *name;
    const char *operands;          /* for the help; NULL: an action and its own */
    const char *help;              /* a sentence */
    const struct co_option *table; /* of its options */
    const struct ctl_form *actions;
    int n_actions;
};

extern const struct ctl_command_form ctl_commands[CTL_N_COMMANDS];

#endif
