#include "check_options.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>

enum { DEFAULT_TIMEOUT_MS = 10000, MAX_TIMEOUT_MS = 3600000 };

const struct co_option check_options_table[] = {
    {CHECK_OPTION_HOSTS, 'H', "hosts", "HOST,...",
     .help = "Check these nodes over ssh: node1,user@node[02-16]. Default: the nodes that a "
             "scheduler has allocated, else this machine."},
    {CHECK_OPTION_HOSTFILE, 0, "hostfile", "FILE",
     .help = "Check the nodes of FILE, one host on a line, as for ddprun."},
    {CHECK_OPTION_SSH_COMMAND, 0, "ssh-command", "COMMAND",
     .help = "Reach hosts with COMMAND HOST ... instead of ssh. Default: DDPRUN_SSH, else ssh "
             "with options that prevent password prompts."},
    {CHECK_OPTION_INTERFACE, 'i', "interface", "NAME",
     .help = "Test the ports on the addresses of this interface. Default: the address that ssh "
             "used."},
    {CHECK_OPTION_NET, 'n', "net",
     .help = "Also measure the network between pairs of nodes: round-trip time, and bandwidth in "
             "each direction. Takes about a second for each round of pairs."},
    {CHECK_OPTION_JSON, 'j', "json", .help = "Print JSON, one object."},
    {CHECK_OPTION_TIMEOUT, 't', "timeout", "TIME",
     .help = "Wait at most TIME for a node, and for each answer. Default: 10s."},
    {CHECK_OPTION_HELP, 'h', "help", .help = "Print this text."},
    {0},
};

static int read_timeout(struct check_task *task, const struct co_option_found *found,
                        struct co_error *err)
{
    int rc = co_parse_duration_ms(found->spelled, found->value, &task->timeout_ms, err);
    if (rc == 0 && (task->timeout_ms == 0 || task->timeout_ms > MAX_TIMEOUT_MS))
        rc = co_fail(
            err, -EINVAL,
            "invalid value '%.60s' for %s: expected a duration greater than 0 and at most 1h",
            found->value, found->spelled);
    return rc;
}

static int read_text(const char **to, const struct co_option_found *found, struct co_error *err)
{
    *to = found->value;
    return *found->value != '\0' ? 0 : co_fail(err, -EINVAL, "%s requires a value", found->spelled);
}

static int read_option(struct check_task *task, const struct co_option_found *found,
                       struct co_error *err)
{
    switch ((enum check_option)found->option->id) {
    case CHECK_OPTION_HOSTS:
        return read_text(&task->hosts, found, err);
    case CHECK_OPTION_HOSTFILE:
        return read_text(&task->hostfile, found, err);
    case CHECK_OPTION_SSH_COMMAND:
        return read_text(&task->ssh_command, found, err);
    case CHECK_OPTION_INTERFACE:
        return read_text(&task->interface, found, err);
    case CHECK_OPTION_NET:
        task->net = true;
        return 0;
    case CHECK_OPTION_JSON:
        task->json = true;
        return 0;
    case CHECK_OPTION_TIMEOUT:
        return read_timeout(task, found, err);
    case CHECK_OPTION_HELP:
        task->is_help = true;
        return 0;
    }
    return 0;
}

int check_options_parse(int argc, char **argv, struct check_task *ret_task, struct co_error *err)
{
    struct check_task task = {.timeout_ms = DEFAULT_TIMEOUT_MS};
    struct co_option_walk walk;
    struct co_option_found found;
    int rc;
    co_options_start(&walk, check_options_table, argc, argv);
    while (!task.is_help && (rc = co_options_next(&walk, &found, err)) != 0)
        if (rc < 0 || read_option(&task, &found, err) < 0)
            return -EINVAL;
    if (!task.is_help && walk.at < argc)
        return co_fail(err, -EINVAL, "check: too many arguments; usage: ddpctl check [OPTION]...");
    if (!task.is_help && task.hosts != NULL && task.hostfile != NULL)
        return co_fail(err, -EINVAL, "--hosts and --hostfile cannot be used together");
    *ret_task = task;
    return 0;
}

void check_options_print_help(FILE *out)
{
    fprintf(out, "Usage: ddpctl check [OPTION]...\n%s\n\nOptions:\n", CHECK_OPTIONS_HELP);
    co_options_print_help(check_options_table, out);
    fputs("\n"
          "Exit status: 0 no problems, or only warnings; 69 a node is not fit; 2 wrong usage;\n"
          "70 out of memory; 74 stdout cannot be written. More in ddpctl(1).\n",
          out);
}
