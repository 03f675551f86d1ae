#include "ctl_job_cli.h"

#include "common/error.h"
#include "common/parse.h"
#include "console/job_request.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

enum {
    DEFAULT_TIMEOUT_MS = 5000,
    STACK_TIMEOUT_MS = 90000, /* ddprun itself gives up before */
    DEFAULT_WATCH_MS = 1000,
    MIN_WATCH_MS = 10,
    MAX_OPERANDS = 2
};

int ctl_job_cli_signal(const char *word)
{
    int64_t number;
    if (co_parse_int("signal", word, 1, JOB_REQUEST_SIGNAL_MAX, &number, NULL) == 0)
        return (int)number;
    if (strncmp(word, "SIG", 3) == 0)
        word += 3;
    for (int sig = 1; sig <= JOB_REQUEST_SIGNAL_MAX; sig++) {
        const char *name = sigabbrev_np(sig);
        if (name != NULL && strcmp(name, word) == 0)
            return sig;
    }
    return 0;
}

static int read_watch(struct ctl_job_task *task, const struct co_option_found *found,
                      struct co_error *err)
{
    task->watch_ms = DEFAULT_WATCH_MS;
    if (found->value != NULL &&
        co_parse_duration_ms(found->spelled, found->value, &task->watch_ms, err) < 0)
        return -EINVAL;
    if (task->watch_ms < MIN_WATCH_MS)
        task->watch_ms = MIN_WATCH_MS;
    return 0;
}

static int read_order(struct ctl_job_task *task, const struct co_option_found *found,
                      struct co_error *err)
{
    for (int i = 0; i < TOP_N_ORDERS; i++) {
        if (strcmp(found->value, top_order_names[i]) == 0) {
            task->order = (enum top_order)i;
            return 0;
        }
    }
    return co_fail(err, -EINVAL,
                   "invalid value '%.60s' for %s: expected one of rank, cpu, memory, own",
                   found->value, found->spelled);
}

static int read_option(struct ctl_job_task *task, const struct co_option_found *found,
                       struct co_error *err)
{
    switch ((enum ctl_job_option)found->option->id) {
    case CTL_JOB_OPTION_JSON:
        task->json = true;
        return 0;
    case CTL_JOB_OPTION_ALL_USERS:
        task->all_users = true;
        return 0;
    case CTL_JOB_OPTION_WATCH:
        return read_watch(task, found, err);
    case CTL_JOB_OPTION_START:
        task->start = true;
        return 0;
    case CTL_JOB_OPTION_FOLLOW:
        task->follow = true;
        return 0;
    case CTL_JOB_OPTION_SIGNAL:
        task->signal = ctl_job_cli_signal(found->value);
        return task->signal != 0 ? 0
                                 : co_fail(err, -EINVAL,
                                           "invalid value '%.60s' for %s: expected a signal such "
                                           "as TERM, SIGUSR1 or 9",
                                           found->value, found->spelled);
    case CTL_JOB_OPTION_NODE:
        task->this_node = true;
        return 0;
    case CTL_JOB_OPTION_NO_TOOLS:
        task->no_tools = true;
        return 0;
    case CTL_JOB_OPTION_ONCE:
        task->once = true;
        return 0;
    case CTL_JOB_OPTION_ORDER:
        return read_order(task, found, err);
    case CTL_JOB_OPTION_OUTPUT:
        task->output = found->value;
        return 0;
    case CTL_JOB_OPTION_RUN_ID:
        task->run_id = found->value;
        return 0;
    case CTL_JOB_OPTION_TIMEOUT:
        return co_parse_duration_ms(found->spelled, found->value, &task->timeout_ms, err);
    case CTL_JOB_OPTION_HELP:
        task->is_help = true;
        return 0;
    }
    return 0;
}

static enum ctl_command find_command(const char *name)
{
    int i = 0;
    while (i < CTL_N_COMMANDS && strcmp(ctl_commands[i].name, name) != 0)
        i++;
    return (enum ctl_command)i;
}

/* Read the options up to the next operand.
 * returns   the index of that operand, argc at the end, or -EINVAL */
static int read_options(struct ctl_job_task *task, int argc, char **argv, struct co_error *err)
{
    struct co_option_walk walk;
    struct co_option_found found;
    int rc = 0;
    co_options_start(&walk, ctl_commands[task->command].table, argc, argv);
    while (!task->is_help && (rc = co_options_next(&walk, &found, err)) > 0)
        if (read_option(task, &found, err) < 0)
            return -EINVAL;
    return rc < 0 ? -EINVAL : walk.at;
}

/* Options and operands may be mixed, as far as "--".
 * returns   how many operands, or -EINVAL */
static int read_words(struct ctl_job_task *task, int argc, char **argv,
                      const char *operands[MAX_OPERANDS], struct co_error *err)
{
    const struct ctl_command_form *form = &ctl_commands[task->command];
    int n = 0;
    bool has_options = true;
    while (argc > 1) {
        int at = has_options ? read_options(task, argc, argv, err) : 1;
        if (at < 0 || task->is_help)
            return at < 0 ? -EINVAL : 0;
        if (at >= argc)
            break;
        has_options = has_options && (at == 1 || strcmp(argv[at - 1], "--") != 0);
        if (n == MAX_OPERANDS)
            return co_fail(err, -EINVAL, "%s: too many arguments; usage: ddpctl %s %s", form->name,
                           form->name, form->operands);
        operands[n++] = argv[at];
        argc -= at;
        argv += at;
    }
    return n;
}

static int read_rank(struct ctl_job_task *task, const char *word, struct co_error *err)
{
    int64_t rank = -1;
    if ((task->command != CTL_STACK || strcmp(word, "all") != 0) &&
        co_parse_int("RANK", word, 0, JOB_REQUEST_RANK_MAX, &rank, err) < 0)
        return -EINVAL;
    task->rank = (int32_t)rank;
    return 0;
}

static int set_operands(struct ctl_job_task *task, const char *const *operands, int n,
                        struct co_error *err)
{
    const struct ctl_command_form *form = &ctl_commands[task->command];
    bool has_rank = task->command == CTL_LOGS || task->command == CTL_STACK;
    int n_most = task->command == CTL_PS ? 0 : has_rank ? 2 : 1;
    int n_least = has_rank || task->command == CTL_REPORT;
    if (n < n_least || n > n_most)
        return co_fail(err, -EINVAL, "%s: %s arguments; usage: ddpctl %s %s", form->name,
                       n < n_least ? "missing" : "too many", form->name, form->operands);
    if (has_rank && read_rank(task, operands[0], err) < 0)
        return -EINVAL;
    if (n > has_rank)
        task->job = operands[has_rank];
    if (task->job != NULL && *task->job == '\0')
        return co_fail(err, -EINVAL, "JOB is empty; give a run id or a pid");
    return 0;
}

int ctl_job_cli_parse(int argc, char **argv, struct ctl_job_task *ret_task, struct co_error *err)
{
    const char *operands[MAX_OPERANDS];
    struct ctl_job_task task = {.command = find_command(argv[0])};
    task.timeout_ms = task.command == CTL_STACK ? STACK_TIMEOUT_MS : DEFAULT_TIMEOUT_MS;
    task.watch_ms = task.command == CTL_TOP ? DEFAULT_WATCH_MS : 0;
    task.signal = task.command == CTL_STOP ? SIGTERM : 0;
    int n = read_words(&task, argc, argv, operands, err);
    if (n < 0)
        return n;
    if (!task.is_help && set_operands(&task, operands, n, err) < 0)
        return -EINVAL;
    *ret_task = task;
    return 0;
}

void ctl_job_cli_print_help(enum ctl_command command, FILE *out)
{
    const struct ctl_command_form *form = &ctl_commands[command];
    fprintf(out, "Usage: ddpctl %s [OPTION]...%s%s\n%s\n", form->name,
            *form->operands != '\0' ? " " : "", form->operands, form->help);
    if (*form->operands != '\0')
        fputs("\nJOB is a run ID, the beginning of one, or the PID of a ddprun. It may be\n"
              "omitted if there is only one job.\n",
              out);
    fputs("\nOptions:\n", out);
    co_options_print_help(form->table, out);
    fputs("\n"
          "Exit status: 0 success; 1 no such job or rank, or not possible; 2 wrong usage; 69\n"
          "the job does not answer; 70 out of memory; 74 stdout cannot be written. More in\n"
          "ddpctl(1).\n",
          out);
}
