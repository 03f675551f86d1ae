/* generate.c - prints the completion of a program for a shell, made of its tables: generate PROGRAM
 * bash|zsh|fish.
 *
 * Three parts: what a row of an option table means to a shell; programs that take options, and
 * perhaps one word of a list, or a program and its arguments after them; and ddpctl, which takes a
 * command, perhaps an action of that command, and options. main() selects the part; print_shell()
 * the shell. */
#include "common/options.h"
#include "ctl/ctl_table.h"
#include "launcher/options/cli_table.h"
#include "perf/perf_cli.h"
#include "perf/perf_work.h"
#include "rendezvous/daemon/daemon_cli.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* === a row of an option table === */

/* The help calls a value "FILE", "N|auto|int8": parts in small letters are words to type. */
static bool is_word(const char *part, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!islower((unsigned char)part[i]) && part[i] != '-' &&
            !(i > 0 && isdigit((unsigned char)part[i])))
            return false;
    return len > 0;
}

/* Is its value a file or a directory? */
static bool is_path(const struct co_option *o)
{
    return o->value != NULL && (strcmp(o->value, "FILE") == 0 || strcmp(o->value, "DIR") == 0);
}

/* The words that a value may be, with `between` between them. */
static void print_value_words(const struct co_option *o, const char *between)
{
    int n = 0;
    for (const char *part = o->value; part != NULL && *part != '\0';) {
        size_t len = strcspn(part, "|");
        if (is_word(part, len))
            printf("%s%.*s", n++ > 0 ? between : "", (int)len, part);
        part += len + (part[len] == '|');
    }
}

static bool has_words(const struct co_option *o)
{
    for (const char *part = o->value; part != NULL && *part != '\0';) {
        size_t len = strcspn(part, "|");
        if (is_word(part, len))
            return true;
        part += len + (part[len] == '|');
    }
    return false;
}

/* The first sentence of a help text, without what the shell would read as its own. */
static void print_summary(const char *help, const char *dropped)
{
    const char *end = strstr(help, ". ");
    size_t len = end != NULL ? (size_t)(end - help) : strlen(help);
    if (len > 0 && help[len - 1] == '.')
        len--;
    for (size_t i = 0; i < len; i++)
        putchar(strchr(dropped, help[i]) != NULL ? ' ' : help[i]);
}

/* What `--help TOPIC` takes: the groups of the table that have a topic. */
static void print_topics(const struct co_option *table)
{
    for (const struct co_option *o = table; o->id != 0; o++)
        if (o->topic != NULL)
            printf("%s ", o->topic);
    fputs("environment exit-status topics", stdout);
}

static void print_zsh_value(const struct co_option *o)
{
    fputs(o->optional ? "::value:" : ":value:", stdout);
    if (is_path(o)) {
        fputs("_files", stdout);
    } else if (has_words(o)) {
        putchar('(');
        print_value_words(o, " ");
        putchar(')');
    }
}

static void print_zsh_options(const struct co_option *table)
{
    for (const struct co_option *o = table; o->id != 0; o++) {
        const char *value = o->value == NULL ? "" : o->optional ? "=-" : "=";
        if (o->takes_next) { /* the letter takes no value */
            printf("    '-%c[", o->letter);
            print_summary(o->help, "'[]:\\");
            fputs("]' \\\n", stdout);
            printf("    '--%s=[", o->name);
            print_summary(o->help, "'[]:\\");
            fputs("]::topic:(", stdout);
            print_topics(table);
            fputs(")' \\\n", stdout);
            continue;
        }
        if (o->letter != 0)
            printf("    '(-%c --%s)'{-%c%s,--%s%s}'[", o->letter, o->name, o->letter,
                   o->value != NULL ? "+" : "", o->name, value);
        else
            printf("    '--%s%s[", o->name, value);
        print_summary(o->help, "'[]:\\");
        putchar(']');
        if (o->value != NULL)
            print_zsh_value(o);
        fputs("' \\\n", stdout);
    }
}

static void print_fish_options(const char *begin, const struct co_option *table)
{
    for (const struct co_option *o = table; o->id != 0; o++) {
        fputs(begin, stdout);
        if (o->letter != 0)
            printf(" -s %c", o->letter);
        printf(" -l %s", o->name);
        if (o->value != NULL && !o->optional)
            fputs(is_path(o) ? " -r" : " -x", stdout);
        if (o->takes_next || has_words(o)) {
            fputs(" -a '", stdout);
            if (o->takes_next)
                print_topics(table);
            else
                print_value_words(o, " ");
            putchar('\'');
        }
        fputs(" -d '", stdout);
        print_summary(o->help, "'\\");
        fputs("'\n", stdout);
    }
}

/* === programs with options === */

struct flat_program {
    const char *name;
    const char *function; /* the name as a shell function */
    const struct co_option *table;
    bool runs_program;        /* a program and its arguments follow the options */
    const char *const *words; /* one of these goes with the options; ends with NULL. NULL: none */
};

static void print_bash_name(const struct co_option *o)
{
    printf("--%s", o->name);
    if (o->letter != 0)
        printf(" | -%c", o->letter);
}

static void print_words(const struct flat_program *p, const char *before)
{
    for (const char *const *word = p->words; word != NULL && *word != NULL; word++)
        printf("%s%s", before, *word);
}

/* What is offered where no value of an option is due. */
static void print_bash_words(const struct flat_program *p)
{
    fputs(p->runs_program ? "    '')\n"
                            "        if [[ $cur == -* ]]; then\n"
                            "            "
                          : "    '') ",
          stdout);
    fputs("mapfile -t COMPREPLY < <(compgen -W '", stdout);
    for (const struct co_option *o = p->table; o->id != 0; o++)
        printf("%s--%s", o == p->table ? "" : " ", o->name);
    print_words(p, " ");
    fputs(p->runs_program
              ? "' -- \"$cur\")\n"
                "        else\n"
                "            mapfile -t COMPREPLY < <(compgen -A command -A file -- \"$cur\")\n"
                "        fi\n"
                "        ;;\n"
              : "' -- \"$cur\") ;;\n",
          stdout);
}

static void flat_print_bash(const struct flat_program *p)
{
    printf("# bash completion of %s, made of its option table\n"
           "%s() {\n",
           p->name, p->function);
    fputs("    local cur=${COMP_WORDS[COMP_CWORD]} option='' i=1\n"
          "    COMPREPLY=()\n"
          "    while ((i < COMP_CWORD)); do\n"
          "        case ${COMP_WORDS[i]} in\n"
          "        =) [[ $i -eq $((COMP_CWORD - 1)) ]] || option= && ((i++)) ;;\n"
          "        --) return ;;\n",
          stdout);
    fputs("        ", stdout);
    bool first = true;
    for (const struct co_option *o = p->table; o->id != 0; o++) {
        if (o->value == NULL || (o->optional && !o->takes_next))
            continue;
        if (!first)
            fputs(" | ", stdout);
        first = false;
        if (o->takes_next)
            printf("--%s", o->name);
        else
            print_bash_name(o);
    }
    fputs(")\n"
          "            option=${COMP_WORDS[i]}\n"
          "            [[ ${COMP_WORDS[i + 1]} == = ]] && ((i++))\n"
          "            ((++i < COMP_CWORD)) && option=\n"
          "            ;;\n"
          "        -*) ;;\n",
          stdout);
    fputs(p->words != NULL ? "        *) ;;\n"
                           : "        *) return ;; # the rest belongs to the program\n",
          stdout);
    fputs("        esac\n"
          "        ((i++))\n"
          "    done\n"
          "    [[ $cur == = ]] && cur=\n"
          "    case $option in\n",
          stdout);
    for (const struct co_option *o = p->table; o->id != 0; o++) {
        if (o->takes_next) {
            printf("    --%s) mapfile -t COMPREPLY < <(compgen -W '", o->name);
            print_topics(p->table);
            fputs("' -- \"$cur\") ;;\n", stdout);
            continue;
        }
        if (!has_words(o))
            continue;
        fputs("    ", stdout);
        print_bash_name(o);
        fputs(") mapfile -t COMPREPLY < <(compgen -W '", stdout);
        print_value_words(o, " ");
        fputs("' -- \"$cur\") ;;\n", stdout);
    }
    print_bash_words(p);
    printf("    esac\n"
           "}\n"
           "complete -o default -F %s %s\n",
           p->function, p->name);
}

static void flat_print_zsh(const struct flat_program *p)
{
    printf("#compdef %s\n"
           "# zsh completion of %s, made of its option table\n"
           "_arguments -s -S \\\n",
           p->name, p->name);
    print_zsh_options(p->table);
    fputs(p->runs_program    ? "    '(-)1:program: _alternative \"files:file:_files\" "
                               "\"commands:command:_path_commands\"' \\\n"
                               "    '*::argument:_files'\n"
          : p->words != NULL ? "    '1:word:("
                             : "    && return\n",
          stdout);
    if (p->words != NULL) {
        print_words(p, " ");
        fputs(")'\n", stdout);
    }
}

static void flat_print_fish(const struct flat_program *p)
{
    printf("# fish completion of %s, made of its option table\n", p->name);
    char begin[80];
    snprintf(begin, sizeof begin, "complete -c %s", p->name);
    print_fish_options(begin, p->table);
    if (p->words == NULL)
        return;
    printf("%s -f -a '", begin);
    print_words(p, " ");
    fputs("'\n", stdout);
}

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
    print_zsh_options(ctl_table);
    fputs("    '1:command:(", stdout);
    print_commands();
    fputs(")' \\\n"
          "    '*::argument:->rest'\n"
          "case $line[1] in\n",
          stdout);
    for (int i = 0; i < CTL_N_COMMANDS; i++) {
        const struct ctl_command_form *c = &ctl_commands[i];
        printf("%s)\n    _arguments -s -S \\\n", c->name);
        print_zsh_options(c->table);
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
    print_summary(help, "'\\");
    fputs("'\n", stdout);
}

static void commands_print_fish(void)
{
    char condition[256], begin[320];
    fputs("# fish completion of ddpctl, made of its tables\n", stdout);
    print_fish_options("complete -c ddpctl -f -n __fish_use_subcommand", ctl_table);
    for (int i = 0; i < CTL_N_COMMANDS; i++) {
        const struct ctl_command_form *c = &ctl_commands[i];
        print_fish_word("__fish_use_subcommand", c->name, c->help);
        snprintf(condition, sizeof condition, "__fish_seen_subcommand_from %s", c->name);
        for (int j = 0; j < c->n_actions; j++)
            print_fish_word(condition, c->actions[j].name, c->actions[j].help);
        snprintf(begin, sizeof begin, "complete -c ddpctl -f -n '%s'", condition);
        print_fish_options(begin, c->table);
    }
}

/* === all programs === */

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
static bool print_shell(const struct flat_program *flat, const char *shell)
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
    if ((flat == NULL && strcmp(argv[1], "ddpctl") != 0) || !print_shell(flat, argv[2]))
        return EXIT_FAILURE;
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
