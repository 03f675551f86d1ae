/* main.c - ddpctl: the first word of the command line selects the command.
 *
 * Read main() and run_command() first. A command is a file: ctl_job.c (ps, status, logs, stack,
 * stop, restart), ctl_top.c, ctl_report.c, ctl_store.c, ctl_check.c. It returns the exit status
 * (enum ctl_exit). `ddpctl check` with the word for an agent is the other end of ctl_check.c on a
 * node. */
#include "common/error.h"
#include "common/options.h"
#include "common/secret_memory.h"
#include "ctl/base/ctl.h"
#include "ctl/probe/check_agent.h"
#include "ctl_commands.h"
#include "ctl_table.h"

#include <stdio.h>
#include <string.h>

#ifndef DDPRUN_VERSION
#error "the build gives the version"
#endif

static enum ctl_exit (*const on_jobs[CTL_N_COMMANDS])(const struct ctl_job_task *task) = {
    [CTL_PS] = ctl_job,      [CTL_STATUS] = ctl_job,    [CTL_TOP] = ctl_top,
    [CTL_LOGS] = ctl_job,    [CTL_STACK] = ctl_job,     [CTL_STOP] = ctl_job,
    [CTL_RESTART] = ctl_job, [CTL_REPORT] = ctl_report,
};

static enum ctl_exit run_on_jobs(int argc, char **argv)
{
    struct ctl_job_task task;
    struct co_error err = {0};
    if (ctl_job_cli_parse(argc, argv, &task, &err) < 0)
        return ctl_fail(CTL_EXIT_USAGE, &err);
    if (!task.is_help)
        return ctl_flush(on_jobs[task.command](&task));
    ctl_job_cli_print_help(task.command, stdout);
    return ctl_flush(CTL_EXIT_OK);
}

static enum ctl_exit run_check(int argc, char **argv)
{
    return check_agent_is_asked_for(argc, argv) ? check_agent() : ctl_check(argc, argv);
}

static enum ctl_exit run_command(enum ctl_command command, int argc, char **argv)
{
    if (command != CTL_CHECK && co_secret_env_take("DDP_TOKEN") == 0)
        co_secret_env_drop(); /* srun passes it on to the agents of a check */
    switch (command) {
    case CTL_STORE:
        return ctl_store(argc, argv);
    case CTL_CHECK:
        return run_check(argc, argv);
    default:
        return run_on_jobs(argc, argv);
    }
}

static void print_commands(void)
{
    fputs("Usage: ddpctl COMMAND [ARGUMENT]...\n"
          "Monitor and control running jobs, check nodes, and inspect stores.\n"
          "\n"
          "Commands:\n",
          stdout);
    for (int i = 0; i < CTL_N_COMMANDS; i++)
        printf("  %-7s  %-14s  %s\n", ctl_commands[i].name, ctl_commands[i].operands ?: "ACTION...",
               ctl_commands[i].help);
    fputs("\n", stdout);
}

/* is_brief   as for -h, without the options of the commands */
static enum ctl_exit print_help(bool is_brief)
{
    print_commands();
    co_options_print_help(ctl_table, stdout);
    for (int i = 0; i < CTL_N_COMMANDS && !is_brief; i++) {
        printf("\nOptions of %s:\n", ctl_commands[i].name);
        co_options_print_help(ctl_commands[i].table, stdout);
    }
    fputs("\n"
          "Examples:\n"
          "  ddpctl status -w                 state of the only job, each second\n"
          "  ddpctl stack all job7            where the ranks of job7 hang\n"
          "  ddpctl check -H node[01-16]      are these nodes fit for a job?\n"
          "\n"
          "`ddpctl COMMAND --help` describes a command. More in ddpctl(1).\n",
          stdout);
    return ctl_flush(CTL_EXIT_OK);
}

int main(int argc, char **argv)
{
    struct co_option_walk walk;
    struct co_option_found found;
    struct co_error err = {0};
    co_options_start(&walk, ctl_table, argc, argv);
    int rc = co_options_next(&walk, &found, &err);
    if (rc < 0)
        return ctl_fail(CTL_EXIT_USAGE, &err);
    if (rc > 0 && found.option->id == CTL_OPTION_HELP)
        return print_help(found.spelled[1] != '-');
    if (rc > 0) {
        printf("ddpctl %s\n", DDPRUN_VERSION);
        return ctl_flush(CTL_EXIT_OK);
    }
    const char *name = walk.at < argc ? argv[walk.at] : "";
    for (int i = 0; i < CTL_N_COMMANDS; i++)
        if (strcmp(name, ctl_commands[i].name) == 0)
            return run_command((enum ctl_command)i, argc - walk.at, argv + walk.at);
    if (*name == '\0')
        ctl_tell(CO_ERROR, "no command given; try ddpctl --help");
    else
        ctl_tell(CO_ERROR, "unknown command '%.60s'; try ddpctl --help", name);
    return CTL_EXIT_USAGE;
}
