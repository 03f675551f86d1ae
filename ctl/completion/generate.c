/* Print the completion of a program for a shell, made of its tables: generate PROGRAM
 * bash|zsh|fish. */
#include "commands.h"
#include "flat.h"
#include "launcher/options/cli_table.h"
#include "perf/perf_cli.h"
#include "perf/perf_work.h"
#include "rendezvous/daemon/daemon_cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *perf_words[PERF_N_COLLECTIVES + 1];
static const struct flat_program flat_programs[] = {
    {"ddprun", "_ddprun", cli_table, .runs_program = true},
    {"ddp-rendezvous", "_ddp_rendezvous", daemon_cli_table},
    {"ddp-perf", "_ddp_perf", perf_cli_table, .words = perf_words},
};

static void fill_words(void)
{
    for (int c = 0; c < PERF_N_COLLECTIVES; c++)
        perf_words[c] = perf_work_name((enum perf_collective)c);
}

static const struct flat_program *find_flat(const char *name)
{
    for (size_t i = 0; i < sizeof flat_programs / sizeof *flat_programs; i++)
        if (strcmp(flat_programs[i].name, name) == 0)
            return &flat_programs[i];
    return NULL;
}

/* flat   NULL: ddpctl. returns whether the shell is known */
static bool print(const struct flat_program *flat, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        flat != NULL ? flat_print_bash(flat) : commands_print_bash();
    else if (strcmp(shell, "zsh") == 0)
        flat != NULL ? flat_print_zsh(flat) : commands_print_zsh();
    else if (strcmp(shell, "fish") == 0)
        flat != NULL ? flat_print_fish(flat) : commands_print_fish();
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return EXIT_FAILURE;
    fill_words();
    const struct flat_program *flat = find_flat(argv[1]);
    if ((flat == NULL && strcmp(argv[1], "ddpctl") != 0) || !print(flat, argv[2]))
        return EXIT_FAILURE;
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
