#include "option_text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The help calls a value "FILE", "N|auto|int8": parts in small letters are words to type. */
static bool is_word(const char *part, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!islower((unsigned char)part[i]) && part[i] != '-' &&
            !(i > 0 && isdigit((unsigned char)part[i])))
            return false;
    return len > 0;
}

/* Is its value a file or a folder? */
static bool is_path(const struct co_option *o)
{
    return o->value != NULL && (strcmp(o->value, "FILE") == 0 || strcmp(o->value, "DIR") == 0);
}

/* The words that a value may be, with `between` between them. returns how many */
int option_text_print_words(const struct co_option *o, const char *between)
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

bool option_text_has_words(const struct co_option *o)
{
    for (const char *part = o->value; part != NULL && *part != '\0';) {
        size_t len = strcspn(part, "|");
        if (is_word(part, len))
            return true;
        part += len + (part[len] == '|');
    }
    return false;
}

void option_text_print_summary(const char *help, const char *dropped)
{
    const char *end = strstr(help, ". ");
    size_t len = end != NULL ? (size_t)(end - help) : strlen(help);
    if (len > 0 && help[len - 1] == '.')
        len--;
    for (size_t i = 0; i < len; i++)
        putchar(strchr(dropped, help[i]) != NULL ? ' ' : help[i]);
}

static void print_zsh_value(const struct co_option *o)
{
    fputs(o->optional ? "::value:" : ":value:", stdout);
    if (is_path(o)) {
        fputs("_files", stdout);
    } else if (option_text_has_words(o)) {
        putchar('(');
        option_text_print_words(o, " ");
        putchar(')');
    }
}

void option_text_print_zsh(const struct co_option *table)
{
    for (const struct co_option *o = table; o->id != 0; o++) {
        const char *value = o->value == NULL ? "" : o->optional ? "=-" : "=";
        if (o->letter != 0)
            printf("    '(-%c --%s)'{-%c%s,--%s%s}'[", o->letter, o->name, o->letter,
                   o->value != NULL ? "+" : "", o->name, value);
        else
            printf("    '--%s%s[", o->name, value);
        option_text_print_summary(o->help, "'[]:\\");
        putchar(']');
        if (o->value != NULL)
            print_zsh_value(o);
        fputs("' \\\n", stdout);
    }
}

void option_text_print_fish(const char *begin, const struct co_option *table)
{
    for (const struct co_option *o = table; o->id != 0; o++) {
        fputs(begin, stdout);
        if (o->letter != 0)
            printf(" -s %c", o->letter);
        printf(" -l %s", o->name);
        if (o->value != NULL && !o->optional)
            fputs(is_path(o) ? " -r" : " -x", stdout);
        if (option_text_has_words(o)) {
            fputs(" -a '", stdout);
            option_text_print_words(o, " ");
            putchar('\'');
        }
        fputs(" -d '", stdout);
        option_text_print_summary(o->help, "'\\");
        fputs("'\n", stdout);
    }
}
