/* What -h, --help and --help TOPIC print. A topic is a group of the option table, or a text of this
 * file. Read cli_print_help() first. */
#include "cli.h"

#include "cli_table.h"
#include "common/completion.h"
#include "common/error.h"
#include "common/options.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static void print_usage(FILE *out)
{
    fputs("Usage: ddprun [OPTION]... PROGRAM [ARGUMENT]... [: [OPTION]... PROGRAM...]\n"
          "Start PROGRAM as the ranks of a distributed job, with torchrun's options and\n"
          "environment variables. Python runs NAME.py; other programs are executed.\n"
          "\n",
          out);
}

static void print_examples(FILE *out)
{
    fputs("Examples:\n"
          "  ddprun train.py                        one worker per GPU of this node\n"
          "  ddprun -H node1:8,node2:8 train.py     two nodes, 8 workers each, over ssh\n"
          "  ddprun --nnodes 2:4 -p 8 --rdzv-endpoint node1 --rdzv-id job7 train.py\n"
          "                                         elastic; the same command on each node\n",
          out);
}

static void print_environment(FILE *out)
{
    fputs("Options from environment variables (the command line takes precedence; for\n"
          "options without a value: 1 or 0):\n",
          out);
    for (const struct co_option *o = cli_table; o->id != 0; o++)
        if (o->env != NULL)
            fprintf(out, "  %-37s  --%s\n", o->env, o->name);
    fputs("  TORCH_ELASTIC_SHUTDOWN_TIMEOUT         --shutdown-timeout\n"
          "  DDPRUN_SSH                             --ssh-command\n"
          "  TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1   --store worker\n"
          "\n"
          "Other variables that ddprun reads:\n"
          "  DDP_TOKEN                              shared secret; see --token-file\n"
          "  PYTHON_EXEC                            Python that runs scripts\n"
          "  VIRTUAL_ENV, CONDA_PREFIX              environment whose Python does\n"
          "  HIP_VISIBLE_DEVICES                    GPUs of this node; if not set:\n"
          "  CUDA_VISIBLE_DEVICES                   GPUs of this node\n"
          "  OMP_NUM_THREADS                        kept if it is set; see --omp\n"
          "  TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE  label of --tee\n"
          "  TORCHELASTIC_ENABLE_FILE_TIMER=1       serve torch's timers\n"
          "  TORCHELASTIC_TIMER_FILE                path of the pipe for them\n"
          "  TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT\n"
          "                                         seconds a rank may sleep uninterruptibly\n"
          "  NO_COLOR, TERM                         see --color\n"
          "\n"
          "Variables that the ranks get, among others:\n"
          "  RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE,\n"
          "  MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT\n"
          "\n"
          "ddprun-environment(7) has all variables, also those of schedulers.\n",
          out);
}

static void print_exit_status(FILE *out)
{
    fputs("Exit status:\n"
          "  0      all ranks succeeded\n"
          "  1-255  status of the first rank that failed, or 128 + N if signal N killed it\n"
          "  2      wrong usage\n"
          "  69     endpoint, hosts or enough nodes not reached in time, or port in use\n"
          "  70     ddprun itself failed\n"
          "  74     all ranks succeeded, but their output could not be written\n"
          "  75     too few nodes are left, or the rendezvous endpoint is lost\n"
          "  77     the nodes do not have the same shared secret\n"
          "  78     the rendezvous refused this node: another job, --nnodes, or --node-rank\n"
          "  124    --timeout ended the job\n"
          "  126    PROGRAM cannot be executed\n"
          "  127    PROGRAM, or its interpreter, does not exist\n"
          "\n"
          "After SIGTERM, SIGINT, SIGHUP or SIGQUIT ddprun stops the ranks, and dies of\n"
          "that signal. Under the name torchrun the status of every failure except 2 is 1.\n",
          out);
}

static void print_topics(FILE *out);

static const struct {
    const char *topic, *subject;
    void (*print)(FILE *out);
} texts[] = {
    {"environment", "Environment variables", print_environment},
    {"exit-status", "Exit statuses", print_exit_status},
    {"topics", "This list", print_topics},
};
enum { N_TEXTS = sizeof texts / sizeof *texts };

static void print_topics(FILE *out)
{
    fputs("Topics (ddprun --help TOPIC):\n", out);
    co_options_print_topics(cli_table, out);
    for (int i = 0; i < N_TEXTS; i++)
        fprintf(out, "  %-14s %s\n", texts[i].topic, texts[i].subject);
}

/* returns whether there is such a topic */
static bool print_topic(const char *topic, FILE *out)
{
    for (int i = 0; i < N_TEXTS; i++) {
        if (strcmp(topic, texts[i].topic) == 0) {
            texts[i].print(out);
            return true;
        }
    }
    return co_options_print_group(cli_table, topic, out);
}

static void print_brief(FILE *out)
{
    print_usage(out);
    fputs("Common options (--help prints all):\n", out);
    co_options_print_brief(cli_table, out);
    fputs("\n", out);
    print_topics(out);
    fputs("\n", out);
    print_examples(out);
}

static void print_all(FILE *out)
{
    print_usage(out);
    co_options_print_help(cli_table, out);
    fputs("\n"
          "TIME is a number of seconds, or has a unit: 90, 1.5s, 250ms, 10m, 2h. Long names\n"
          "may be shortened, and _ stands for -. A name in brackets is the environment\n"
          "variable that sets the option; the command line takes precedence.\n"
          "\n",
          out);
    print_exit_status(out);
    fputs("\n", out);
    print_examples(out);
    fputs("\nMore in ddprun(1).\n", out);
}

int cli_check_topic(const char *topic, struct co_error *err)
{
    char names[256] = "";
    size_t len = 0;
    bool is_known = topic == NULL;
    for (const struct co_option *o = cli_table; o->id != 0; o++) {
        if (o->topic == NULL)
            continue;
        is_known = is_known || strcmp(topic, o->topic) == 0;
        len += (size_t)snprintf(names + len, sizeof names - len, "%s, ", o->topic);
    }
    for (int i = 0; i < N_TEXTS; i++) {
        is_known = is_known || strcmp(topic, texts[i].topic) == 0;
        len += (size_t)snprintf(names + len, sizeof names - len, "%s%s", texts[i].topic,
                                i < N_TEXTS - 1 ? ", " : "");
    }
    return is_known ? 0
                    : co_fail(err, -EINVAL, "invalid value '%.60s' for --help: expected one of %s",
                              topic, names);
}

void cli_print_completion(int argc, char **argv, FILE *out)
{
    const bool as_torchrun = cli_is_torchrun(argc > 0 ? argv[0] : NULL);
    const struct co_completion completion = {.name = as_torchrun ? "torchrun" : "ddprun",
                                             .function = as_torchrun ? "_torchrun" : "_ddprun",
                                             .table = cli_table,
                                             .runs_program = true};
    struct co_option_walk walk;
    struct co_option_found found = {0};
    co_options_start(&walk, cli_table, argc, argv);
    while (co_options_next(&walk, &found, NULL) > 0 && found.option->id != OPTION_PRINT_COMPLETION)
        continue;
    if (found.value != NULL)
        co_completion_print(&completion, found.value, out);
}

void cli_print_help(int argc, char **argv, FILE *out)
{
    struct co_option_walk walk;
    struct co_option_found found = {0};
    co_options_start(&walk, cli_table, argc, argv);
    while (co_options_next(&walk, &found, NULL) > 0 && found.option->id != OPTION_HELP)
        continue;
    const bool is_letter = found.spelled != NULL && found.spelled[1] != '-';
    const char *topic =
        is_letter || cli_is_torchrun(argc > 0 ? argv[0] : NULL) ? NULL : found.value;
    if (is_letter)
        print_brief(out);
    else if (topic == NULL || !print_topic(topic, out))
        print_all(out);
}
