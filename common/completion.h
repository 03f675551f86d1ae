/* completion.h - an option table as the completion of a program for a shell. */
#ifndef DDP_COMMON_COMPLETION_H
#define DDP_COMMON_COMPLETION_H

#include <stdbool.h>
#include <stdio.h>

struct co_option;

struct co_completion {
    const char *name;
    const char *function; /* the name as a shell function */
    const struct co_option *table;
    bool runs_program;        /* a program and its arguments follow the options */
    const char *const *words; /* one of these goes with the options; ends with NULL. NULL: none */
};

/* Print what the shell evaluates, or loads as a file.
 *
 * shell     bash, zsh, fish or tcsh
 * returns   false: another shell; nothing is printed */
bool co_completion_print(const struct co_completion *p, const char *shell, FILE *out);

/* --- parts, for a program with commands ------------------------------------------------------- */

/* The first sentence of a help text, with blanks instead of the characters of `dropped`. */
void co_completion_print_summary(const char *help, const char *dropped, FILE *out);

/* The options as arguments of zsh's _arguments, a line each. */
void co_completion_print_zsh_options(const struct co_option *table, FILE *out);

/* A command of fish for each option, which starts with `begin`. */
void co_completion_print_fish_options(const char *begin, const struct co_option *table, FILE *out);

#endif
