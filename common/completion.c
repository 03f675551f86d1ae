/* Options of a program as the completions of four shells. print_bash_name() and its like turn a row
 * of the option table into a shell's words; print_bash(), print_zsh(), print_fish() and
 * print_tcsh() put a whole program together. Read co_completion_print() first. */
#include "completion.h"

#include "options.h"

#include <ctype.h>
#include <string.h>

/* --- a row of an option table ----------------------------------------------------------------- */

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
static void print_value_words(const struct co_option *o, const char *between, FILE *out)
{
    int n = 0;
    for (const char *part = o->value; part != NULL && *part != '\0';) {
        size_t len = strcspn(part, "|");
        if (is_word(part, len))
            fprintf(out, "%s%.*s", n++ > 0 ? between : "", (int)len, part);
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
void co_completion_print_summary(const char *help, const char *dropped, FILE *out)
{
    const char *end = strstr(help, ". ");
    size_t len = end != NULL ? (size_t)(end - help) : strlen(help);
    if (len > 0 && help[len - 1] == '.')
        len--;
    for (size_t i = 0; i < len; i++)
        putc(strchr(dropped, help[i]) != NULL ? ' ' : help[i], out);
}

/* What `--help TOPIC` takes: the groups of the table that have a topic. */
static void print_topics(const struct co_option *table, FILE *out)
{
    for (const struct co_option *o = table; o->id != 0; o++)
        if (o->topic != NULL)
            fprintf(out, "%s ", o->topic);
    fputs("environment exit-status topics", out);
}

static void print_zsh_value(const struct co_option *o, FILE *out)
{
    fputs(o->optional ? "::value:" : ":value:", out);
    if (is_path(o)) {
        fputs("_files", out);
    } else if (has_words(o)) {
        putc('(', out);
        print_value_words(o, " ", out);
        putc(')', out);
    }
}

void co_completion_print_zsh_options(const struct co_option *table, FILE *out)
{
    for (const struct co_option *o = table; o->id != 0; o++) {
        const char *value = o->value == NULL ? "" : o->optional ? "=-" : "=";
        if (o->takes_next) { /* the letter takes no value */
            fprintf(out, "    '-%c[", o->letter);
            co_completion_print_summary(o->help, "'[]:\\", out);
            fputs("]' \\\n", out);
            fprintf(out, "    '--%s=[", o->name);
            co_completion_print_summary(o->help, "'[]:\\", out);
            fputs("]::topic:(", out);
            print_topics(table, out);
            fputs(")' \\\n", out);
            continue;
        }
        if (o->letter != 0)
            fprintf(out, "    '(-%c --%s)'{-%c%s,--%s%s}'[", o->letter, o->name, o->letter,
                    o->value != NULL ? "+" : "", o->name, value);
        else
            fprintf(out, "    '--%s%s[", o->name, value);
        co_completion_print_summary(o->help, "'[]:\\", out);
        putc(']', out);
        if (o->value != NULL)
            print_zsh_value(o, out);
        fputs("' \\\n", out);
    }
}

void co_completion_print_fish_options(const char *begin, const struct co_option *table, FILE *out)
{
    for (const struct co_option *o = table; o->id != 0; o++) {
        fputs(begin, out);
        if (o->letter != 0)
            fprintf(out, " -s %c", o->letter);
        fprintf(out, " -l %s", o->name);
        if (o->value != NULL && !o->optional)
            fputs(is_path(o) ? " -r" : " -x", out);
        if (o->takes_next || has_words(o)) {
            fputs(" -a '", out);
            if (o->takes_next)
                print_topics(table, out);
            else
                print_value_words(o, " ", out);
            putc('\'', out);
        }
        fputs(" -d '", out);
        co_completion_print_summary(o->help, "'\\", out);
        fputs("'\n", out);
    }
}

/* --- whole programs --------------------------------------------------------------------------- */

static void print_bash_name(const struct co_option *o, FILE *out)
{
    fprintf(out, "--%s", o->name);
    if (o->letter != 0)
        fprintf(out, " | -%c", o->letter);
}

static void print_words(const struct co_completion *p, const char *before, FILE *out)
{
    for (const char *const *word = p->words; word != NULL && *word != NULL; word++)
        fprintf(out, "%s%s", before, *word);
}

/* What is offered where no value of an option is due. */
static void print_bash_words(const struct co_completion *p, FILE *out)
{
    fputs(p->runs_program ? "    '')\n"
                            "        if [[ $cur == -* ]]; then\n"
                            "            "
                          : "    '') ",
          out);
    fputs("mapfile -t COMPREPLY < <(compgen -W '", out);
    for (const struct co_option *o = p->table; o->id != 0; o++)
        fprintf(out, "%s--%s", o == p->table ? "" : " ", o->name);
    print_words(p, " ", out);
    fputs(p->runs_program
              ? "' -- \"$cur\")\n"
                "        else\n"
                "            mapfile -t COMPREPLY < <(compgen -A command -A file -- \"$cur\")\n"
                "        fi\n"
                "        ;;\n"
              : "' -- \"$cur\") ;;\n",
          out);
}

static void print_bash(const struct co_completion *p, FILE *out)
{
    fprintf(out,
            "# bash completion of %s, made of its option table\n"
            "%s() {\n",
            p->name, p->function);
    fputs("    local cur=${COMP_WORDS[COMP_CWORD]} option='' i=1\n"
          "    COMPREPLY=()\n"
          "    while ((i < COMP_CWORD)); do\n"
          "        case ${COMP_WORDS[i]} in\n"
          "        =) [[ $i -eq $((COMP_CWORD - 1)) ]] || option= && ((i++)) ;;\n"
          "        --) return ;;\n",
          out);
    fputs("        ", out);
    bool first = true;
    for (const struct co_option *o = p->table; o->id != 0; o++) {
        if (o->value == NULL || (o->optional && !o->takes_next))
            continue;
        if (!first)
            fputs(" | ", out);
        first = false;
        if (o->takes_next)
            fprintf(out, "--%s", o->name);
        else
            print_bash_name(o, out);
    }
    fputs(")\n"
          "            option=${COMP_WORDS[i]}\n"
          "            [[ ${COMP_WORDS[i + 1]} == = ]] && ((i++))\n"
          "            ((++i < COMP_CWORD)) && option=\n"
          "            ;;\n"
          "        -*) ;;\n",
          out);
    fputs(p->words != NULL ? "        *) ;;\n"
                           : "        *) return ;; # the rest belongs to the program\n",
          out);
    fputs("        esac\n"
          "        ((i++))\n"
          "    done\n"
          "    [[ $cur == = ]] && cur=\n"
          "    case $option in\n",
          out);
    for (const struct co_option *o = p->table; o->id != 0; o++) {
        if (o->takes_next) {
            fprintf(out, "    --%s) mapfile -t COMPREPLY < <(compgen -W '", o->name);
            print_topics(p->table, out);
            fputs("' -- \"$cur\") ;;\n", out);
            continue;
        }
        if (!has_words(o))
            continue;
        fputs("    ", out);
        print_bash_name(o, out);
        fputs(") mapfile -t COMPREPLY < <(compgen -W '", out);
        print_value_words(o, " ", out);
        fputs("' -- \"$cur\") ;;\n", out);
    }
    print_bash_words(p, out);
    fprintf(out,
            "    esac\n"
            "}\n"
            "complete -o default -F %s %s\n",
            p->function, p->name);
}

static void print_zsh(const struct co_completion *p, FILE *out)
{
    fprintf(out,
            "#compdef %s\n"
            "# zsh completion of %s, made of its option table\n"
            "_arguments -s -S \\\n",
            p->name, p->name);
    co_completion_print_zsh_options(p->table, out);
    fputs(p->runs_program    ? "    '(-)1:program: _alternative \"files:file:_files\" "
                               "\"commands:command:_path_commands\"' \\\n"
                               "    '*::argument:_files'\n"
          : p->words != NULL ? "    '1:word:("
                             : "    && return\n",
          out);
    if (p->words != NULL) {
        print_words(p, " ", out);
        fputs(")'\n", out);
    }
}

static void print_fish(const struct co_completion *p, FILE *out)
{
    fprintf(out, "# fish completion of %s, made of its option table\n", p->name);
    char begin[80];
    snprintf(begin, sizeof begin, "complete -c %s", p->name);
    co_completion_print_fish_options(begin, p->table, out);
    if (p->words == NULL)
        return;
    fprintf(out, "%s -f -a '", begin);
    print_words(p, " ", out);
    fputs("'\n", out);
}

/* tcsh has no list of words for a flag that takes a value only after '='. */
static void print_tcsh(const struct co_completion *p, FILE *out)
{
    fprintf(out, "# tcsh completion of %s, made of its option table\ncomplete %s", p->name,
            p->name);
    for (const struct co_option *o = p->table; o->id != 0; o++) {
        if (o->value == NULL || o->optional || !(is_path(o) || has_words(o)))
            continue;
        fprintf(out, " \\\n    'n/--%s/", o->name);
        if (is_path(o)) {
            fputs("f/'", out);
            continue;
        }
        putc('(', out);
        print_value_words(o, " ", out);
        fputs(")/'", out);
    }
    fputs(" \\\n    'c/--/(", out);
    for (const struct co_option *o = p->table; o->id != 0; o++)
        fprintf(out, "%s%s", o == p->table ? "" : " ", o->name);
    fputs(")/'", out);
    if (p->words != NULL) {
        fputs(" \\\n    'n/*/(", out);
        print_words(p, " ", out);
        fputs(")/'", out);
    }
    putc('\n', out);
}

bool co_completion_print(const struct co_completion *p, const char *shell, FILE *out)
{
    static const struct {
        const char *name;
        void (*print)(const struct co_completion *p, FILE *out);
    } shells[] = {
        {"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}, {"tcsh", print_tcsh}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].print(p, out);
            return true;
        }
    return false;
}
