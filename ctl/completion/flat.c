#include "flat.h"

#include "option_text.h"

#include <stdio.h>

/* --- bash --- */

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

void flat_print_bash(const struct flat_program *p)
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
          "        -*) ;;\n",
          stdout);
    fputs(p->words != NULL ? "        *) ;;\n"
                           : "        *) return ;; # the rest is for somebody else\n",
          stdout);
    fputs("        esac\n"
          "        ((i++))\n"
          "    done\n"
          "    [[ $cur == = ]] && cur=\n"
          "    case $option in\n",
          stdout);
    for (const struct co_option *o = p->table; o->id != 0; o++) {
        if (!option_text_has_words(o))
            continue;
        fputs("    ", stdout);
        print_bash_name(o);
        fputs(") mapfile -t COMPREPLY < <(compgen -W '", stdout);
        option_text_print_words(o, " ");
        fputs("' -- \"$cur\") ;;\n", stdout);
    }
    print_bash_words(p);
    printf("    esac\n"
           "}\n"
           "complete -o default -F %s %s\n",
           p->function, p->name);
}

/* --- zsh --- */

void flat_print_zsh(const struct flat_program *p)
{
    printf("#compdef %s\n"
           "# zsh completion of %s, made of its option table\n"
           "_arguments -s -S \\\n",
           p->name, p->name);
    option_text_print_zsh(p->table);
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

/* --- fish --- */

void flat_print_fish(const struct flat_program *p)
{
    printf("# fish completion of %s, made of its option table\n", p->name);
    char begin[80];
    snprintf(begin, sizeof begin, "complete -c %s", p->name);
    option_text_print_fish(begin, p->table);
    if (p->words == NULL)
        return;
    printf("%s -f -a '", begin);
    print_words(p, " ");
    fputs("'\n", stdout);
}
