#include "commands.h"

#include "ctl/ctl_table.h"
#include "option_text.h"

#include <stdio.h>

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

/* --- bash --- */

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

void commands_print_bash(void)
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

/* --- zsh --- */

void commands_print_zsh(void)
{
    fputs("#compdef ddpctl\n"
          "# zsh completion of ddpctl, made of its tables\n"
          "local line state\n"
          "_arguments -C -S \\\n",
          stdout);
    option_text_print_zsh(ctl_table);
    fputs("    '1:command:(", stdout);
    print_commands();
    fputs(")' \\\n"
          "    '*::argument:->rest'\n"
          "case $line[1] in\n",
          stdout);
    for (int i = 0; i < CTL_N_COMMANDS; i++) {
        const struct ctl_command_form *c = &ctl_commands[i];
        printf("%s)\n    _arguments -s -S \\\n", c->name);
        option_text_print_zsh(c->table);
        if (c->n_actions > 0) {
            fputs("    '1:action:(", stdout);
            print_actions(c);
            fputs(")' \\\n", stdout);
        }
        fputs("    '*:operand:'\n    ;;\n", stdout);
    }
    fputs("esac\n", stdout);
}

/* --- fish --- */

static void print_fish_word(const char *condition, const char *word, const char *help)
{
    printf("complete -c ddpctl -f -n '%s' -a %s -d '", condition, word);
    option_text_print_summary(help, "'\\");
    fputs("'\n", stdout);
}

void commands_print_fish(void)
{
    char condition[256], begin[320];
    fputs("# fish completion of ddpctl, made of its tables\n", stdout);
    option_text_print_fish("complete -c ddpctl -f -n __fish_use_subcommand", ctl_table);
    for (int i = 0; i < CTL_N_COMMANDS; i++) {
        const struct ctl_command_form *c = &ctl_commands[i];
        print_fish_word("__fish_use_subcommand", c->name, c->help);
        snprintf(condition, sizeof condition, "__fish_seen_subcommand_from %s", c->name);
        for (int j = 0; j < c->n_actions; j++)
            print_fish_word(condition, c->actions[j].name, c->actions[j].help);
        snprintf(begin, sizeof begin, "complete -c ddpctl -f -n '%s'", condition);
        option_text_print_fish(begin, c->table);
    }
}
