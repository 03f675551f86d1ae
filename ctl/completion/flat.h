/* flat.h - completion of a program that takes options, and perhaps one of some words, or the words
 * of another program behind them. Prints to stdout. */
#ifndef DDP_CTL_COMPLETION_FLAT_H
#define DDP_CTL_COMPLETION_FLAT_H

#include "common/options.h"

struct flat_program {
    const char *name;
    const char *function; /* the name as a shell function */
    const struct co_option *table;
    bool runs_program;        /* behind the options a program and its arguments follow */
    const char *const *words; /* one of these goes with the options; ends with NULL. NULL: none */
};

void flat_print_bash(const struct flat_program *p);
void flat_print_zsh(const struct flat_program *p);
void flat_print_fish(const struct flat_program *p);

#endif
