/* Print the completion of a shell, made of ddprun's option table: generate bash|zsh|fish. */
#include "launcher/cli_table.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The help calls a value "FILE", "N|auto|gpu": parts in small letters are words to type. */
static bool is_word(const char *part, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!islower((unsigned char)part[i]) && part[i] != '-')
            return false;
    return len > 0;
}

static bool is_path(const struct co_option *o)
{
    return o->value != NULL && (strcmp(o->value, "FILE") == 0 || strcmp(o->value, "DIR") == 0);
}

/* The words that a value may be, with `between` between them. returns how many */
static int print_words(const struct co_option *o, const char *between)
{
    int n = 0;
    for (const char *part = o->value; part != NULL && *part != '\0';) {
        size_t len = strcspn(part, "|");
        if (is_word(part, len))
            printf("%s%.*s", n++ > 0 ? between : "", (int)len, part);
        part += len + (part[len] == '|');
    }
    return n;
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

/* The first sentence of the help, without what the shell would read as its own. */
static void print_summary(const struct co_option *o, const char *dropped)
{
    const char *end = strstr(o->help, ". ");
    size_t len = end != NULL ? (size_t)(end - o->help) : strlen(o->help);
    if (len > 0 && o->help[len - 1] == '.')
        len--;
    for (size_t i = 0; i < len; i++)
        putchar(strchr(dropped, o->help[i]) != NULL ? ' ' : o->help[i]);
}

/* --- bash --- */

static void print_bash_name(const struct co_option *o)
{
    printf("--%s", o->name);
    if (o->letter != 0)
        printf(" | -%c", o->letter);
}

static void print_bash(void)
{
    fputs("# bash completion of ddprun, made of its option table\n"
          "_ddprun() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} option='' i=1\n"
          "    COMPREPLY=()\n"
          "    while ((i < COMP_CWORD)); do\n"
          "        case ${COMP_WORDS[i]} in\n"
          "        =) [[ $i -eq $((COMP_CWORD - 1)) ]] || option= && ((i++)) ;;\n"
          "        --) return ;;\n",
          stdout);
    fputs("        ", stdout);
    bool first = true;
    for (const struct co_option *o = cli_table; o->id != 0; o++) {
        if (o->value == NULL || o->optional)
            continue;
        if (!first)
            fputs(" | ", stdout);
        first = false;
        print_bash_name(o);
    }
    fputs(")\n"
          "            option=${COMP_WORDS[i]}\n"
          "            [[ ${COMP_WORDS[i + 1]} == = ]] && ((i++))\n"
          "            ((++i < COMP_CWORD)) && option=\n"
          "            ;;\n"
          "        -*) ;;\n"
          "        *) return ;; # the program: the rest is for it\n"
          "        esac\n"
          "        ((i++))\n"
          "    done\n"
          "    [[ $cur == = ]] && cur=\n"
          "    case $option in\n",
          stdout);
    for (const struct co_option *o = cli_table; o->id != 0; o++) {
        if (!has_words(o))
            continue;
        fputs("    ", stdout);
        print_bash_name(o);
        fputs(") mapfile -t COMPREPLY < <(compgen -W '", stdout);
        print_words(o, " ");
        fputs("' -- \"$cur\") ;;\n", stdout);
    }
    fputs("    '')\n"
          "        if [[ $cur == -* ]]; then\n"
          "            mapfile -t COMPREPLY < <(compgen -W '",
          stdout);
    for (const struct co_option *o = cli_table; o->id != 0; o++)
        printf("%s--%s", o == cli_table ? "" : " ", o->name);
    fputs("' -- \"$cur\")\n"
          "        else\n"
          "            mapfile -t COMPREPLY < <(compgen -A command -A file -- \"$cur\")\n"
          "        fi\n"
          "        ;;\n"
          "    esac\n"
          "}\n"
          "complete -o default -F _ddprun ddprun\n",
          stdout);
}

/* --- zsh --- */

static void print_zsh(void)
{
    fputs("#compdef ddprun\n"
          "# zsh completion of ddprun, made of its option table\n"
          "_arguments -s -S \\\n",
          stdout);
    for (const struct co_option *o = cli_table; o->id != 0; o++) {
        const char *value = o->value == NULL ? "" : o->optional ? "=-" : "=";
        if (o->letter != 0)
            printf("    '(-%c --%s)'{-%c%s,--%s%s}'[", o->letter, o->name, o->letter,
                   o->value != NULL ? "+" : "", o->name, value);
        else
            printf("    '--%s%s[", o->name, value);
        print_summary(o, "'[]:\\");
        putchar(']');
        if (o->value != NULL) {
            fputs(o->optional ? "::value:" : ":value:", stdout);
            if (is_path(o)) {
                fputs("_files", stdout);
            } else if (has_words(o)) {
                putchar('(');
                print_words(o, " ");
                putchar(')');
            }
        }
        fputs("' \\\n", stdout);
    }
    fputs("    '(-)1:program: _alternative \"files:file:_files\" "
          "\"commands:command:_path_commands\"' "
          "\\\n"
          "    '*::argument:_files'\n",
          stdout);
}

/* --- fish --- */

static void print_fish(void)
{
    fputs("# fish completion of ddprun, made of its option table\n", stdout);
    for (const struct co_option *o = cli_table; o->id != 0; o++) {
        fputs("complete -c ddprun", stdout);
        if (o->letter != 0)
            printf(" -s %c", o->letter);
        printf(" -l %s", o->name);
        if (o->value != NULL && !o->optional)
            fputs(is_path(o) ? " -r" : " -x", stdout);
        if (has_words(o)) {
            fputs(" -a '", stdout);
            print_words(o, " ");
            putchar('\'');
        }
        fputs(" -d '", stdout);
        print_summary(o, "'\\");
        fputs("'\n", stdout);
    }
}

int main(int argc, char **argv)
{
    const char *shell = argc == 2 ? argv[1] : "";
    if (strcmp(shell, "bash") == 0)
        print_bash();
    else if (strcmp(shell, "zsh") == 0)
        print_zsh();
    else if (strcmp(shell, "fish") == 0)
        print_fish();
    else
        return EXIT_FAILURE;
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
