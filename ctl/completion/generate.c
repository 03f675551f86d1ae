/* generate.c - prints the completion of a program for a shell, made of its tables: generate PROGRAM
 * bash|zsh|fish.
 *
 * common/completion.c prints that of programs that take options. This file has that of ddpctl,
 * which takes a command, perhaps an action of that command, and options. */
#include "common/completion.h"
#include "common/options.h"
#include "ctl/ctl_table.h"
#include "launcher/options/cli_table.h"
#include "perf/perf_cli.h"
#include "perf/perf_work.h"
#include "rendezvous/daemon/daemon_cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* === ddpctl === */

static void print_commands(void)
{
    for (int i = 0; i < CTL_N_COMMANDS; i++)
        printf("%s%s", i > 0 ? " " : "", ctl_commands[i].name);
}

static void print_actions(const struct ctl_command_form *c)
{
    for (int i = 0; i < c->n_actions; i++)
        printf("%s%s", i > 0 ? " " : "", c->actions[i].name);
}

static void print_options(const struct co_option *table)
{
    for (const struct co_option *o = table; o->id != 0; o++)
        printf("%s--%s", o == table ? "" : " ", o->name);
}

/* The options whose next word is their value, as a pattern of `case`. */
static void print_bash_value_options(void)
{
    const char *between = "";
    for (int i = 0; i < CTL_N_COMMANDS; i++) {
        const struct ctl_command_form *c = &ctl_commands[i];
        for (const struct co_option *o = c->table; o->id != 0; o++) {
            if (o->value == NULL || o->optional)
                continue;
            printf("%s%s:--%s", between, c->name, o->name);
            between = " | ";
            if (o->letter != 0)
                printf(" | %s:-%c", c->name, o->letter);
        }
    }
}

static void commands_print_bash(void)
{
    fputs("# bash completion of ddpctl, made of its tables\n"
          "_ddpctl() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} command='' action='' i words\n"
          "    COMPREPLY=()\n"
          "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
          "        case $command:${COMP_WORDS[i]} in\n"
          "        ",
          stdout);
    print_bash_value_options();
    fputs(")\n"
          "            [[ ${COMP_WORDS[i + 1]} == = ]] && ((i++))\n"
          "            ((++i < COMP_CWORD)) || return\n"
          "            ;;\n"
          "        *:-*) ;;\n"
          "        :*) command=${COMP_WORDS[i]} ;;\n"
          "        *) action=${COMP_WORDS[i]} ;;\n"
          "        esac\n"
          "    done\n"
          "    case $command:$cur in\n"
          "    :-*) words='",
          stdout);
    print_options(ctl_table);
    fputs("' ;;\n    :*) words='", stdout);
    print_commands();
    fputs("' ;;\n", stdout);
    for (int i = 0; i < CTL_N_COMMANDS; i++) {
        const struct ctl_command_form *c = &ctl_commands[i];
        printf("    %s:-*) words='", c->name);
        print_options(c->table);
        printf("' ;;\n    %s:*) [[ $action ]] && return || words='", c->name);
        print_actions(c);
        fputs("' ;;\n", stdout);
    }
    fputs("    *) return ;;\n"
          "    esac\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
          "}\n"
          "complete -F _ddpctl ddpctl\n",
          stdout);
}

static void commands_print_zsh(void)
{
    fputs("#compdef ddpctl\n"
          "# zsh completion of ddpctl, made of its tables\n"
          "local line state\n"
          "_arguments -C -S \\\n",
          stdout);
    co_completion_print_zsh_options(ctl_table, stdout);
    fputs("    '1:command:(", stdout);
    print_commands();
    fputs(")' \\\n"
          "    '*::argument:->rest'\n"
          "case $line[1] in\n",
          stdout);
    for (int i = 0; i < CTL_N_COMMANDS; i++) {
        const struct ctl_command_form *c = &ctl_commands[i];
        printf("%s)\n    _arguments -s -S \\\n", c->name);
        co_completion_print_zsh_options(c->table, stdout);
        if (c->n_actions > 0) {
            fputs("    '1:action:(", stdout);
            print_actions(c);
            fputs(")' \\\n", stdout);
        }
        fputs("    '*:operand:'\n    ;;\n", stdout);
    }
    fputs("esac\n", stdout);
}

static void print_fish_word(const char *condition, const char *word, const char *help)
{
    printf("complete -c ddpctl -f -n '%s' -a %s -d '", condition, word);
    co_completion_print_summary(help, "'\\", stdout);
    fputs("'\n", stdout);
}

static void commands_print_fish(void)
{
    char condition[256], begin[320];
    fputs("# fish completion of ddpctl, made of its tables\n", stdout);
    co_completion_print_fish_options("complete -c ddpctl -f -n __fish_use_subcommand", ctl_table,
                                     stdout);
    for (int i = 0; i < CTL_N_COMMANDS; i++) {
        const struct ctl_command_form *c = &ctl_commands[i];
        print_fish_word("__fish_use_subcommand", c->name, c->help);
        snprintf(condition, sizeof condition, "__fish_seen_subcommand_from %s", c->name);
        for (int j = 0; j < c->n_actions; j++)
            print_fish_word(condition, c->actions[j].name, c->actions[j].help);
        snprintf(begin, sizeof begin, "complete -c ddpctl -f -n '%s'", condition);
        co_completion_print_fish_options(begin, c->table, stdout);
    }
}

/* === all programs === */

static const char *perf_words[PERF_N_COLLECTIVES + 1];
static const struct co_completion programs[] = {
    {"ddprun", "_ddprun", cli_table, .runs_program = true},
    {"ddp-rendezvous", "_ddp_rendezvous", daemon_cli_table},
    {"ddp-perf", "_ddp_perf", perf_cli_table, .words = perf_words},
};

static void fill_words(void)
{
    for (int c = 0; c < PERF_N_COLLECTIVES; c++)
        perf_words[c] = perf_work_name((enum perf_collective)c);
}

static const struct co_completion *find_program(const char *name)
{
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (strcmp(programs[i].name, name) == 0)
            return &programs[i];
    return NULL;
}

/* returns whether the shell is known */
static bool print_ddpctl(const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        commands_print_bash();
    else if (strcmp(shell, "zsh") == 0)
        commands_print_zsh();
    else if (strcmp(shell, "fish") == 0)
        commands_print_fish();
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return EXIT_FAILURE;
    fill_words();
    const struct co_completion *program = find_program(argv[1]);
    bool is_known = program != NULL                  ? co_completion_print(program, argv[2], stdout)
                    : strcmp(argv[1], "ddpctl") == 0 ? print_ddpctl(argv[2])
                                                     : false;
    return is_known && fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
