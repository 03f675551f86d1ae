#include "check_options.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>

enum { DEFAULT_TIMEOUT_MS = 10000, MAX_TIMEOUT_MS = 3600000 };

const struct co_option check_options_table[] = {
    {CHECK_OPTION_HOSTS, 'H', "hosts", "HOST,...", .subject = "Options",
     .help = "The nodes, reached by ssh: node1,user@node[02-16]. Default: those that a manager of "
             "jobs has given to this one, by Slurm's or another's variables, else this machine."},
    {CHECK_OPTION_HOSTFILE, 0, "hostfile", "FILE",
     .help = "The same from a file, a host a line, as of ddprun."},
    {CHECK_OPTION_SSH_COMMAND, 0, "ssh-command", "COMMAND",
     .help = "How hosts are reached: words in front of HOST and a command. Default: DDPRUN_SSH, "
             "else ssh, with options that let it ask nothing."},
    {CHECK_OPTION_INTERFACE, 'i', "interface", "NAME",
     .help = "Try the ports at the addresses of this interface. Default: where ssh came in."},
    {CHECK_OPTION_NET, 'n', "net",
     .help = "Measure the network between nodes, too, in pairs: round trip, and bytes a second in "
             "each direction. A second a pair; a node is in one pair at a time."},
    {CHECK_OPTION_JSON, 'j', "json", .help = "Print JSON, one object."},
    {CHECK_OPTION_TIMEOUT, 't', "timeout", "TIME",
     .help = "How long a node may take to be reached, and for each answer. Default: 10s."},
    {CHECK_OPTION_HELP, 'h', "help", .help = "Print this text."},
    {0},
};

static int read_timeout(struct check_task *task, const struct co_option_found *found,
                        struct co_error *err)
{
    int rc = co_parse_duration_ms(found->spelled, found->value, &task->timeout_ms, err);
    if (rc == 0 && (task->timeout_ms == 0 || task->timeout_ms > MAX_TIMEOUT_MS))
        rc = co_fail(err, -EINVAL, "%s '%.60s': more than nothing, and an hour at most",
                     found->spelled, found->value);
    return rc;
}

static int read_text(const char **to, const struct co_option_found *found, struct co_error *err)
{
    *to = found->value;
    return *found->value != '\0' ? 0 : co_fail(err, -EINVAL, "%s is empty", found->spelled);
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
        return co_fail(err, -EINVAL, "check: too many operands; usage: ddpctl check [OPTION]...");
    if (!task.is_help && task.hosts != NULL && task.hostfile != NULL)
        return co_fail(err, -EINVAL, "--hosts and --hostfile contradict each other");
    *ret_task = task;
    return 0;
}

void check_options_print_help(FILE *out)
{
    fprintf(out, "Usage: ddpctl check [OPTION]...\n%s\n\n", CHECK_OPTIONS_HELP);
    co_options_print_help(check_options_table, out);
    fputs("\n"
          "Exit status: 0 all is well, or there are warnings only; 69 a node is not fit; 2 wrong\n"
          "usage; 70 no memory; 74 stdout fails. More in ddpctl(1).\n",
          out);
}
