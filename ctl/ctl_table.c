#include "ctl_table.h"

#include <limits.h>
#include <stddef.h>

const struct co_option ctl_table[] = {
    {CTL_OPTION_HELP, 'h', "help", .subject = "Options", .help = "Print this text."},
    {CTL_OPTION_VERSION, 'V', "version", .help = "Print the version."},
    {0},
};

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

const struct ctl_command_form ctl_commands[CTL_N_COMMANDS] = {
    [CTL_STORE] = {"store", "Look at the keys of a TCPStore, and change them.", ctl_store_table,
                   ctl_store_forms, CTL_STORE_N_ACTIONS},
};
